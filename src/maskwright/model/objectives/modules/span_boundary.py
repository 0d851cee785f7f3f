"""The module of `span-boundary`; for the method and its options see `../span_boundary.py`."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from maskwright.model.batch import Batch
from maskwright.model.nn.config import Norm
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_loss
from maskwright.model.nn.layers import NormModule
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    Loss,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    encode,
)
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.objectives.span_boundary import Options
from maskwright.text.store.rows import Rows


class BoundaryHead(nn.Module):
    """Compute a state for the vocabulary head from the hidden states at both boundaries of a span
    and an offset in the span."""

    def __init__(self, width: int, token_width: int, vocabulary: int, options: Options) -> None:
        super().__init__()
        self.place = nn.Embedding(options.max_pair_targets, options.position_width)
        self.first = nn.Linear(2 * width + options.position_width, width)
        self.first_norm = NormModule(Norm(), width)
        self.second = nn.Linear(width, token_width)
        self.second_norm = NormModule(Norm(), token_width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for module in (self.place, self.first, self.second):
            nn.init.normal_(module.weight, std=0.02)
        for layer in (self.first, self.second):
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        left_states: Float[Tensor, "P D"],
        right_states: Float[Tensor, "P D"],
        offset: Int[Tensor, " P"],
    ) -> Float[Tensor, "P E"]:
        x = torch.cat([left_states, right_states, self.place(offset)], -1)
        x = self.first_norm(functional.gelu(self.first(x)))
        return self.second_norm(functional.gelu(self.second(x)))


class SpanBoundary(Objective):
    """Masked modelling of spans, and prediction of the same tokens from the boundaries of spans."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.product = model
        self.options = options
        self.masked = Masked(model, options.masking, vocabulary)
        rows, token_width = model.head_weight.shape
        head = BoundaryHead(model.config.width, token_width, rows, options)
        self.boundary = head.to(model.device)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        return self.masked.corrupt(rows, epochs, seed, progress)

    def counts(self, batch: Batch) -> dict[str, int]:
        chosen, *_ = pairs(batch, self.options.max_pair_targets)
        return {**self.masked.counts(batch), "boundary": chosen.numel()}

    def forward(self, batch: Batch) -> Loss:
        assert batch.targets is not None
        assert batch.index is not None
        chosen, left_boundary, right_boundary, offset = pairs(batch, self.options.max_pair_targets)
        # Compute each position once, since the tokens of a span share their boundaries.
        at, inverse = torch.cat([batch.index, left_boundary, right_boundary]).unique(
            return_inverse=True
        )
        masked, *ends = inverse.tensor_split(
            [len(batch.index), len(batch.index) + len(left_boundary)]
        )
        hidden = encode(self.product, batch, at)
        states = self.boundary(*(hidden.index_select(0, end) for end in ends), offset)
        total, _ = vocabulary_loss(
            states, self.product.head_weight, self.boundary.bias, batch.targets[chosen]
        )
        return Loss(
            {
                "masked": self.masked.part(hidden.index_select(0, masked), batch),
                "boundary": Part(total, self.options.boundary_weight),
            }
        )

    def work(self, batch: Batch) -> list[NetworkWork]:
        assert batch.index is not None
        chosen, left_boundary, right_boundary, _ = pairs(batch, self.options.max_pair_targets)
        at = torch.cat([batch.index, left_boundary, right_boundary]).unique()
        head = 2 * (self.boundary.first.weight.numel() + self.boundary.second.weight.numel())
        return [NetworkWork(self.product, at, len(batch.index) + len(chosen), len(chosen) * head)]

    def target_states(self, batch: Batch) -> Tensor:
        return self.masked.target_states(batch)


def pairs(batch: Batch, longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return, for the targets predicted from boundaries, their indices (P,) among all targets, the
    flat positions of the left and right boundary, and their offsets in the span."""
    assert batch.index is not None
    index, length = batch.index, batch.tokens.shape[1]
    # Positions at the ends of a row or document have no neighbour on that side.
    documents = batch.documents
    if documents is None:
        documents = torch.ones_like(batch.tokens)
    padded = functional.pad(documents, (1, 1)).reshape(-1)  # document 0 at both ends of a row
    center = index + 2 * (index // length) + 1
    document, before, after = padded[center], padded[center - 1], padded[center + 1]
    begins = torch.ones_like(index, dtype=torch.bool)
    begins[1:] = (index[1:] != index[:-1] + 1) | (before[1:] != document[1:])
    ends = torch.ones_like(begins)
    ends[:-1] = begins[1:]
    span = begins.cumsum(0) - 1  # the number of each target's span
    span_begins, span_ends = begins.nonzero()[:, 0], ends.nonzero()[:, 0]
    bounded = (before[span_begins] == document[span_begins]) & (
        after[span_ends] == document[span_ends]
    )
    offset = index - index[span_begins][span]
    chosen = (bounded[span] & (offset < longest)).nonzero()[:, 0]
    left, right = index[span_begins][span[chosen]] - 1, index[span_ends][span[chosen]] + 1
    return chosen, left, right, offset[chosen]


build = SpanBoundary
