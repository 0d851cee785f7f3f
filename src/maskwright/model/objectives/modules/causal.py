"""The module of `causal`; for the method and its options see `../causal.py`."""

from __future__ import annotations

import numpy as np
import torch

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    TokenPrediction,
    Vocabulary,
    facts,
    refuse_leak,
)
from maskwright.model.objectives.causal import Options
from maskwright.text.store.rows import Rows


class Causal(TokenPrediction):
    """Next-token prediction over one causal stack."""

    name = "causal"
    is_language_model = True

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if model.config.vocabulary_head is None or len(model.config.stacks) != 1:
            raise IncompatibleError(
                "`causal` needs one stack with a vocabulary head",
                where="model",
                do="choose a decoder family such as gpt2",
            )
        ((where, stack),) = model.config.stacks.items()
        refuse_leak("causal", stack, where, "use pattern `causal`, or the objective `masked`")
        self.product = model
        self.vocabulary = vocabulary
        frame = (vocabulary.begin, vocabulary.end)
        self.framing = tuple(token for token in frame if token is not None)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        real, special = rows.documents[:, 1:] != 0, rows.special
        # The first special token of the next text is no target.
        next_document = rows.documents[:, 1:] != rows.documents[:, :-1]
        return next_tokens(rows, real & ~(next_document & special[:, 1:] & special[:, :-1]))


def next_tokens(rows: Rows, is_target: np.ndarray) -> Batch:
    """Return a batch with all tokens of `rows` but the last as inputs; `is_target` (B, T - 1) marks
    the targets among the tokens from the second on."""
    inputs = rows.cut(0, -1)
    targets = rows.tokens[:, 1:]
    everything = bool(is_target.all())
    index = None if everything else torch.from_numpy(np.flatnonzero(is_target))
    return Batch(
        tokens=torch.from_numpy(np.ascontiguousarray(inputs.tokens)),
        index=index,
        targets=torch.from_numpy(targets.reshape(-1) if everything else targets[is_target]),
        **facts(inputs),
    )


build = Causal
