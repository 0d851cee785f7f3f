"""The module of `sentence-pair`; for the method and its options see `../sentence_pair.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    Loss,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    encode,
    facts,
)
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.objectives.sentence_pair import Options
from maskwright.text.store.rows import Rows


class SentencePair(Objective):
    """Binary classification of sentence pairs, plus masked modelling on the same hidden states."""

    decides = "pairs"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        judges = [h.name for h in model.config.heads if h.kind == "sequence" and h.labels == 2]
        if len(judges) != 1 or not model.config.pooler:
            raise IncompatibleError(
                "sentence pairs need a pooler and one sequence head with two labels",
                where="model.heads",
                found=[h.name for h in model.config.heads],
                do="choose an architecture with its pretraining heads",
            )
        self.product = model
        (self.head,) = judges
        self.masked = None
        if options.masked:
            self.masked = Masked(model, options.masking, vocabulary)
        else:
            self.classes = 2

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        if rows.pair_label is None:
            raise IncompatibleError(
                "the rows do not say whether their second part follows the first",
                where="rows.kind",
                found="rows that are no pairs",
                wanted="pairs or swapped-pairs",
                do="--set rows.kind=pairs",
            )
        if self.masked is not None:
            batch = self.masked.corrupt(rows, epochs, seed, progress)
        else:
            batch = Batch(tokens=torch.from_numpy(rows.tokens), **facts(rows))
        first_positions = torch.arange(rows.tokens.shape[0]) * rows.tokens.shape[1]
        return replace(batch, labels=torch.from_numpy(rows.pair_label), pooled=first_positions)

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        counts = {} if self.masked is None else self.masked.counts(batch)
        return {**counts, "pair": batch.labels.numel()}

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None and batch.pooled is not None
        at = _read(batch)
        states = encode(self.product, batch, at)
        masked, first_states = states.tensor_split([len(at) - len(batch.pooled)])
        parts = {} if self.masked is None else {"masked": self.masked.part(masked, batch)}
        scores = self.judge(first_states)
        parts["pair"] = Part(
            functional.cross_entropy(scores.float(), batch.labels, reduction="sum")
        )
        return Loss(parts)

    def judge(self, states: Tensor) -> Tensor:
        """Return scores (R, 2) from the states at first positions; column 0 means "B follows A"."""
        return self.product.head(self.head, states)

    def decisions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.labels is not None
        scores = self.judge(encode(self.product, batch, batch.pooled)).float()
        return scores[:, 1] - scores[:, 0], batch.labels == 1

    def work(self, batch: Batch) -> list[NetworkWork]:
        (work,) = super().work(batch)
        return [replace(work, at=_read(batch))]

    def target_states(self, batch: Batch) -> Tensor:
        if self.masked is not None:
            return self.masked.target_states(batch)
        return encode(self.product, batch, batch.pooled)

    def target_scores(self, states: Tensor) -> Tensor:
        return super().target_scores(states) if self.masked else self.judge(states)

    def targets(self, batch: Batch) -> Tensor:
        if self.masked is not None:
            return super().targets(batch)
        assert batch.labels is not None
        return batch.labels


def _read(batch: Batch) -> Tensor:
    """Return the flat positions whose states are used: masked ones, if any, then first ones."""
    assert batch.pooled is not None
    return batch.pooled if batch.index is None else torch.cat([batch.index, batch.pooled])


build = SentencePair
