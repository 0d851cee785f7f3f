"""Classification of whole texts: the mean of the hidden states, a linear head, cross-entropy.

Fine-tuning is an objective like the others, so the one loop trains it too. Rows hold one text each,
padded at the end; `labels` has one class per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.data.batch import Batch
from maskwright.data.rows import Rows
from maskwright.errors import IncompatibleError
from maskwright.nn.transformer import Transformer
from maskwright.objectives.objective import Loss, Objective, Part, Vocabulary, encode, facts

ROWS = "labelled"
HEAD = "classifier"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The labels come with the rows; there is nothing to choose."""


class Supervised(Objective):
    """Single-text classification through the head named `classifier`, over mean-pooled states."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if HEAD not in {h.name for h in model.config.heads}:
            raise IncompatibleError(
                "`supervised` needs a head named 'classifier'",
                where="model.heads",
                do="add a sequence head with one output per label",
            )
        self.product = model

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        assert rows.pair_label is not None
        return Batch(
            tokens=torch.from_numpy(rows.tokens),
            labels=torch.from_numpy(rows.pair_label),
            **facts(rows),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"class": batch.labels.numel()}

    def features(self, batch: Batch) -> Tensor:
        """(B, D): the mean of each row's hidden states over its real positions."""
        hidden = encode(self.product, batch)
        if batch.documents is None:
            return hidden.mean(dim=1)
        real = (batch.documents != 0).to(hidden.dtype)[:, :, None]
        return (hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1.0)

    def scores(self, batch: Batch) -> Tensor:
        """(B, L) over the labels."""
        return self.product.head(HEAD, self.features(batch))

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None
        scores = self.scores(batch).float()
        return Loss(
            {"class": Part(functional.cross_entropy(scores, batch.labels, reduction="sum"))}
        )

    def target_states(self, batch: Batch) -> Tensor:
        raise IncompatibleError(
            "a classifier has no scores over the vocabulary",
            where="objective",
            found="supervised",
            wanted="masked or causal",
        )


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> Supervised:
    return Supervised(model, options, vocabulary)
