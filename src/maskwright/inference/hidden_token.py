"""One question for models that read both ways and models that read one way: which token is hidden?

Every token is hidden with probability 0.15, by itself. A masked model sees what stands on both
sides of it, the mask in its place and in the place of the others that are hidden; a causal model
sees all that stands before it. The tokens asked are the same for both: what has no token of the
text before it is left out, since there a causal model has nothing to go by.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.rows import Rows, RowSource
from maskwright.inference import held_out_loss as likelihood
from maskwright.nn.transformer import Transformer
from maskwright.objectives.parts import corruption
from maskwright.objectives.parts.objective import (
    Loss,
    Objective,
    Part,
    encode_targets,
    facts,
    token_loss,
)
from maskwright.randomness import key

RATE = 0.15
ENOUGH = 16_384  # tokens asked, where the text has so many
MOST_ROUNDS = 16

Reads = Literal["both sides", "one side"]


def top1(model: Transformer, source: RowSource, reads: Reads, mask: int) -> float:
    """The share of the hidden tokens that the model names first, ties counted by their fair share.

    Args:
        source: rows of held-out text; each is read in several rounds, other tokens hidden in each.
        mask: the id that hides a token from a model that reads both sides.
    """
    tokens = max(1, len(source) * source.length)
    rounds = min(MOST_ROUNDS, math.ceil(ENOUGH / (RATE * tokens)))
    hits = predictions = 0.0
    for number in range(rounds):
        found = likelihood.evaluate(_Hidden(model, reads, mask, number), source, rows=len(source))
        hits += found.top1 * found.targets
        predictions += found.targets
    return hits / predictions


class _Hidden(Objective):
    def __init__(self, model: Transformer, reads: Reads, mask: int, number: int) -> None:
        super().__init__()
        self.product, self._reads, self._mask, self._number = model, reads, mask, number

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        keys = np.asarray(key("mask", seed, self._number, rows.ids))
        askable = ~rows.special & (rows.positions > 0)
        askable[:, 1:] &= ~rows.special[:, :-1]
        askable[:, 0] = False
        chosen = corruption.choose_each(askable, RATE, keys)
        tokens, place = rows.tokens, np.flatnonzero(chosen)
        if self._reads == "both sides":
            tokens = np.where(chosen, self._mask, tokens)
        else:
            place = place - 1
        return Batch(
            tokens=torch.from_numpy(tokens),
            index=torch.from_numpy(place),
            targets=torch.from_numpy(rows.tokens[chosen]),
            **facts(rows),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.targets is not None
        return {"hidden": batch.targets.numel()}

    def forward(self, batch: Batch) -> Loss:
        assert batch.targets is not None
        states = self.target_states(batch)
        return Loss({"hidden": Part(token_loss(self.product, states, batch.targets))})

    def target_states(self, batch: Batch) -> Tensor:
        return encode_targets(self.product, batch)
