"""Texts as vectors, so that what belongs together lies close together.

    similarity   (cos(a, b) - y)²                           Reimers & Gurevych 2019, section 3
    ranking      -log softmax_j(20 cos(a, b_j))[own b]      Henderson et al. 2017, section 4: the
                                                            b of other pairs are the wrong ones, and
                                                            the negatives of all, where there are

A batch holds two texts for each row of labels, or more: a, b, and what is near a and wrong. A
vector is the mean of a text's hidden states, or what else is read of it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.data.batch import Batch
from maskwright.data.rows import Rows
from maskwright.errors import IncompatibleError
from maskwright.nn.config import TextPooling
from maskwright.nn.transformer import Transformer
from maskwright.objectives.objective import Loss, Objective, Part
from maskwright.objectives.supervised import last_states, read_texts

SCALE = 20.0
Aim = Literal["similarity", "ranking"]


class Contrast(Objective):
    """A model without a head, and what its vectors are to say."""

    def __init__(self, model: Transformer, aim: Aim, pooling: TextPooling = "mean") -> None:
        super().__init__()
        self.pooling = pooling
        self.product = model
        self.aim = aim

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        raise IncompatibleError("pairs of texts are no rows of a corpus", where="objective",
                                do="use finetune with a file of pairs")  # fmt: skip

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {self.aim: len(batch.labels)}

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None
        found = self.scores(batch)
        if self.aim == "similarity":
            first, second = found.chunk(2, dim=1)  # R, D each
            near = (first * second).sum(1)
            return Loss({self.aim: Part((near - batch.labels.float()).square().sum())})
        anchors, *codes = batch.labels.T  # which text each is: a, b, and the negatives
        first, *others = found.chunk(1 + len(codes), dim=1)
        right = torch.arange(len(first), device=first.device)
        # What is the b of an equal a is as right as the row's own.
        same = (anchors[:, None] == anchors).float()
        equal = same @ (codes[0][:, None] == torch.cat(codes)).float() > 0
        near = SCALE * first @ torch.cat(others).T
        near = near.masked_fill(equal.fill_diagonal_(False), -torch.inf)
        total = functional.cross_entropy(near, right, reduction="sum")
        return Loss({self.aim: Part(total)})

    def scores(self, batch: Batch) -> Tensor:
        """(R, 2 D) float32: the vectors of each pair, of length 1, side by side; more columns where
        there are negatives."""
        assert batch.labels is not None
        found = read_texts(last_states(self.product, batch), batch, self.pooling).float()
        return functional.normalize(found, dim=1).view(len(batch.labels), -1)

    def target_states(self, batch: Batch) -> Tensor:
        raise IncompatibleError("vectors of texts are no scores over the vocabulary",
                                where="objective", found="contrast",
                                wanted="masked or causal")  # fmt: skip
