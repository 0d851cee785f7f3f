"""Contrastive learning of vectors of texts.

    similarity   (cos(a, b) - y)²                           Reimers & Gurevych 2019, section 3
    ranking      -log softmax_j(20 cos(a, b_j))[own b]      Henderson et al. 2017, section 4, with
                                                            in-batch negatives: the b of other rows
                                                            and all hard negatives, if any

A batch has two or more texts for each row of labels: a, b, and hard negatives of a. The vector of a
text is made of its hidden states, by one pooling or by several that are concatenated:

    cls, lasttoken               the first state, the last
    max, mean                    the maximum or mean of each dimension
    mean_sqrt_len_tokens         the sum divided by the square root of the length
    weightedmean                 the mean with weights 1, 2, 3, …        Muennighoff 2022, section 3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Loss, Objective, Part
from maskwright.model.objectives.modules.supervised import last_states, numbered
from maskwright.text.store.rows import Rows

SCALE = 20.0
Aim = Literal["similarity", "ranking"]


class Unit(nn.Module):
    """Vectors (R, D) scaled to length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1)


class Contrast(Objective):
    """A model without a head, trained on the similarities of its vectors of texts.

    Args:
        poolings: poolings as above, concatenated in this order.
        skip: number of initial tokens of each text that are not pooled.
    """

    def __init__(
        self, model: Transformer, aim: Aim, poolings: Sequence[str] = ("mean",), skip: int = 0
    ) -> None:
        super().__init__()
        self.poolings, self.skip = tuple(poolings), skip
        self.product = model
        self.aim = aim
        self.top: nn.Module = Unit()

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        raise IncompatibleError(
            "the contrastive objective learns from pairs of texts, not from a corpus",
            where="objective",
            do="use finetune with a file of pairs",
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {self.aim: len(batch.labels)}

    def forward(self, batch: Batch) -> Loss:
        assert batch.labels is not None
        vectors = self.scores(batch)
        if self.aim == "similarity":
            anchor_vectors, other_vectors = vectors.chunk(2, dim=1)  # R, D each
            similarities = (anchor_vectors * other_vectors).sum(1)
            return Loss({self.aim: Part((similarities - batch.labels.float()).square().sum())})
        anchors, *codes = batch.labels.T  # numbers of the texts a, b and of hard negatives
        anchor_vectors, *candidates = vectors.chunk(1 + len(codes), dim=1)
        own_indices = torch.arange(len(anchor_vectors), device=anchor_vectors.device)
        # Exclude candidates that are also a correct b of an equal a.
        same_anchor = (anchors[:, None] == anchors).float()
        is_positive = same_anchor @ (codes[0][:, None] == torch.cat(codes)).float() > 0
        similarities = SCALE * anchor_vectors @ torch.cat(candidates).T
        similarities = similarities.masked_fill(is_positive.fill_diagonal_(False), -torch.inf)
        total = functional.cross_entropy(similarities, own_indices, reduction="sum")
        return Loss({self.aim: Part(total)})

    def scores(self, batch: Batch) -> Tensor:
        """Return (R, 2 D) float32: the concatenated vectors of each pair, of length 1 unless `top`
        was replaced; more columns with hard negatives."""
        return self.scores_of(last_states(self.product, batch), batch)

    @property
    def reads_place(self) -> bool:
        """Whether only one state of each text is used: False, since tokens are pooled."""
        return False

    def scores_of(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Compute `scores` from the hidden states (B, T, D) of the batch."""
        assert batch.labels is not None
        pooled_states = pool(hidden, batch, self.poolings, self.skip)
        vectors: Tensor = self.top(pooled_states)
        return vectors.view(len(batch.labels), -1)

    def target_states(self, batch: Batch) -> Tensor:
        raise IncompatibleError(
            "the contrastive objective has no scores over the vocabulary",
            where="objective",
            found="contrast",
            wanted="masked or causal",
        )


def pool(hidden: Tensor, batch: Batch, poolings: Sequence[str], skip: int = 0) -> Tensor:
    """Return (R, D len(poolings)) float32: the pooled hidden states (B, T, D) of each text without
    its first `skip` tokens, in the order of `batch.pooled`."""
    assert batch.pooled is not None
    has_decoder = batch.decoder_tokens is not None
    documents = batch.decoder_documents if has_decoder else batch.documents
    numbers, total = numbered(documents, hidden)
    flat = hidden.reshape(len(numbers), -1)
    positions = torch.arange(len(numbers), device=hidden.device)
    ends = numbers.new_zeros(2, total + 1)
    ends[0] = ends[0].scatter_reduce(0, numbers, positions, "amin", include_self=False)
    ends[1] = ends[1].scatter_reduce(0, numbers, positions, "amax", include_self=False)
    order = positions - ends[0][numbers]  # of each token within its text, from 0
    pooled = torch.where(order >= skip, numbers, 0)

    def summed(weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the weighted sums of states (R, D), and the sums of the weights (R, 1)."""
        weighed = torch.ones_like(order) if weights is None else weights
        zeros = flat.new_zeros(total + 1, flat.shape[1], dtype=torch.float32)
        terms = flat.float() if weights is None else flat.float() * weights[:, None]
        counts = weighed.new_zeros(total + 1).index_add(0, pooled, weighed)
        return zeros.index_add(0, pooled, terms), counts[:, None].clamp(min=1).float()

    def pooled_by(pooling: str) -> Tensor:
        if pooling in ("cls", "lasttoken"):
            return flat.index_select(0, ends[0 if pooling == "cls" else 1])
        if pooling == "max":
            lowest = flat.new_full((total + 1, flat.shape[1]), -torch.inf)
            return lowest.scatter_reduce(0, pooled[:, None].expand_as(flat), flat, "amax")
        sums, counts = summed(order + 1 if pooling == "weightedmean" else None)
        return sums / (counts.sqrt() if pooling == "mean_sqrt_len_tokens" else counts)

    vectors = torch.cat([pooled_by(pooling).float() for pooling in poolings], dim=1)
    return vectors.index_select(0, numbers[batch.pooled])
