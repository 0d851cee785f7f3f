"""A recurrent layer: LSTM cells that read a row from left to right, and perhaps others back.

Who is read after whom follows from the mask, as who sees whom does: a position is read if it sees
itself, and goes on from the position that was read before it if it sees that one. Texts packed in
a row begin anew, padding is not read.

`torch.lstm` reads whole rows and cannot begin anew. So there is a step between two texts whose
input, one number beside the vector, closes the gates: with input, forget and output gate at zero,
cell and state are exactly zero after it, and no gradient goes through. (Packed sequences of unequal
length would need no such steps; their gradients take twenty times as long, on a CPU.)

A projection enters the recurrence as a product of two matrices, made once per forward, because
there is no fast kernel for cells with projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.model.nn.config import Recurrent
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.mask import AttentionMask

# What closes a gate: its sigmoid is 0 in every dtype, whatever is added to it.
CLOSED = -1e4


@dataclass(frozen=True)
class Steps:
    """Rows of a batch laid out for cells that read in one direction, with steps that clear them.

    Attributes:
        index: flat positions (b*T + t) that are read.
        slot: where each is read, as step * B + row.
        count: number of steps.
        source: where the state of each flat position is. A position that is not read has that of
            the last one that it sees, or none (`count` * B).
    """

    index: Int[Tensor, " N"]
    slot: Int[Tensor, " N"]
    count: int
    source: Int[Tensor, " BT"]

    @classmethod
    def of(cls, mask: AttentionMask, shape: tuple[int, int], backward: bool, like: Tensor) -> Steps:
        """The steps for rows of the `shape` (B, T), on the device of `like`."""
        rows, length = shape
        flat = torch.arange(rows * length, device=like.device)
        seen = mask.rule(flat // length, flat % length, flat % length).expand(len(flat))
        index = flat[seen].flip(0) if backward else flat[seen]
        row, position = index // length, index % length
        same_row = torch.zeros(len(index), dtype=torch.bool, device=like.device)
        same_row[1:] = row[1:] == row[:-1]
        clears = same_row.clone()
        clears[1:] &= ~mask.rule(row[1:], position[1:], position[:-1])
        number = torch.arange(len(index), device=like.device)
        row_begin = number.masked_fill(same_row, 0).cummax(0).values
        step = number + clears.cumsum(0)
        step = step - step[row_begin]
        count = int(step.max()) + 1 if len(step) else 0
        slot = torch.full_like(flat, rows * count)
        slot[index] = step * rows + row
        before = torch.where(slot < rows * count, flat, -1).cummax(0).values.clamp(min=0)
        sees = mask.rule(flat // length, flat % length, before % length)
        in_row = before // length == flat // length
        source = torch.where(sees & in_row, slot[before], rows * count)
        return cls(index, slot[index], count, source)

    def take(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "S B _"]:
        """The input of each step: what stands at a position and 0, or zeros and 1."""
        clearing = F.pad(x.new_zeros(self.count * len(x), x.shape[2]), (0, 1), value=1.0)
        vectors = F.pad(x.flatten(0, 1).index_select(0, self.index), (0, 1))
        return clearing.index_copy(0, self.slot, vectors).unflatten(0, (self.count, -1))

    def put(self, states: Float[Tensor, "S B D"]) -> Float[Tensor, "B T D"]:
        """The state of each position, zeros where there is none."""
        rows, width = states.shape[1:]
        with_none = torch.cat([states.flatten(0, 1), states.new_zeros(1, width)])
        return with_none.index_select(0, self.source).unflatten(0, (rows, -1))


class LSTMCells(nn.Module):
    """The cells of one direction (Hochreiter & Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735,
    with forget gates), in PyTorch's order of the gates: input, forget, candidate, output.

    Their weights are no linear modules: what is done to those by hooks would not be done here.
    """

    project: nn.Parameter | None

    def __init__(self, config: Recurrent, inputs: int) -> None:
        super().__init__()
        self.config = config
        cells, width = config.cells, config.width
        self.input = nn.Parameter(torch.empty(4 * cells, inputs))
        self.state = nn.Parameter(torch.empty(4 * cells, width))
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        projected = nn.Parameter(torch.empty(width, cells)) if width < cells else None
        self.register_parameter("project", projected)
        for weight in self.matrices:
            if not weight.is_meta:
                nn.init.uniform_(weight, -(cells**-0.5), cells**-0.5)

    @property
    def matrices(self) -> list[nn.Parameter]:
        """The weights of its products: of the input, of the state before, of the projection."""
        return [w for w in (self.input, self.state, self.project) if w is not None]

    def forward(self, x: Float[Tensor, "S B _"]) -> Float[Tensor, "S B W"]:
        """The state after each of the `Steps`."""
        cells = self.config.cells
        state = dropout(self.state, self.config.weight_dropout, self.training)
        if self.project is not None:
            state = state @ self.project
        closing = x.new_full((4, cells), CLOSED)
        closing[2] = 0.0  # the candidate is no gate
        inputs = torch.cat([self.input, closing.view(-1, 1)], 1)
        begin = x.new_zeros(1, x.shape[1], cells)
        weights = (inputs, state, self.bias, torch.zeros_like(self.bias))
        out = torch.lstm(
            x, (begin, begin), weights, True, 1, 0.0, torch.is_grad_enabled(), False, False
        )[0]
        return out if self.project is None else F.linear(out, self.project)


class RecurrentModule(nn.Module):
    """A layer: of two directions, each reads its half of the input and gives its half."""

    def __init__(self, config: Recurrent, inputs: int) -> None:
        super().__init__()
        self.config = config
        count = config.directions
        self.directions = nn.ModuleList(LSTMCells(config, inputs // count) for _ in range(count))

    def forward(self, x: Float[Tensor, "B T I"], steps: Sequence[Steps]) -> Float[Tensor, "B T D"]:
        """
        Args:
            steps: what is read from left to right, and from right to left.
        """
        halves = zip(self.directions, steps, x.chunk(len(self.directions), -1), strict=False)
        states = [
            order.put(cells(order.take(half)))
            if order.count
            else half.new_zeros(*half.shape[:2], self.config.width)
            for cells, order, half in halves
        ]
        out = locked_dropout(torch.cat(states, -1), self.config.dropout, self.training)
        return x + out if self.config.residual else out


def locked_dropout(
    x: Float[Tensor, "B T D"], rate: float, training: bool
) -> Float[Tensor, "B T D"]:
    """Dropout of the same numbers at all positions of a row (Gal & Ghahramani 2016)."""
    return x * dropout(x.new_ones(len(x), 1, x.shape[2]), rate, training)
