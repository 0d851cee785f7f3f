"""Rows of ids through a prepared network, those of like length together, none padded.

    for part in states(model, rows):        numbers of rows, and their states one after the other
    hidden(model, rows)                     the states of each row, in order
    at_place(model, rows, "first")          one state for each row, in order

It knows no text and no task. Answers do not depend on which rows go together (`batches.py`), beyond
rounding.

Letters: N ids of all rows of a portion, R rows, T ids of a row, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from maskwright.base.errors import DataError
from maskwright.model.inference.batches import RowGroup, portions
from maskwright.model.inference.prepared import Place, Prepared, cut

Rows = Sequence[Sequence[int]] | Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class PortionStates:
    """Rows that were read together.

    Attributes:
        numbers: (R,) of all rows.
        tokens: (N,) ids of these rows, one after the other.
        states: (N, D), or (R, D) of one place of each row.
        lengths: of each row.
    """

    numbers: NDArray[np.int64]
    tokens: Int[Tensor, " N"]
    states: Float[Tensor, "N D"]
    lengths: list[int]


@torch.inference_mode()
def states(
    model: Prepared,
    rows: Rows,
    segments: Rows | None = None,
    position: Place | None = None,
    start: int | None = None,
) -> Iterator[PortionStates]:
    """The states of all ids of the rows, or of one place of each.

    Args:
        start: the states are those of a decoder that reads the same row behind this id, the
            encoder's being its memory.

    Raises:
        DataError: a row without an id.
    """
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    if len(lengths) and int(lengths.min()) < 1:
        raise DataError("a row without an id", where=f"row {int(lengths.argmin())}")
    for portion in portions(lengths):
        numbers, groups = portion.numbers, portion.groups
        ids = _flat(rows, numbers).to(model.device)
        kinds = None if segments is None else _flat(segments, numbers).to(model.device)
        if start is None:
            hidden_states = model.ragged(ids, groups, kinds, position)
        else:
            hidden_states = _decoded(model, ids, groups, kinds, start)
        yield PortionStates(numbers, ids, hidden_states, lengths[numbers].tolist())


def hidden(model: Prepared, rows: Rows, segments: Rows | None = None) -> list[Tensor]:
    """(T, D) of each row."""
    row_states = [torch.empty(0)] * len(rows)
    for portion in states(model, rows, segments):
        for number, states_of_row in zip(
            portion.numbers, portion.states.split(portion.lengths), strict=True
        ):
            row_states[number] = states_of_row
    return row_states


def at_place(
    model: Prepared, rows: Rows, position: Place, segments: Rows | None = None
) -> Float[Tensor, "R D"]:
    """The states of one place of each row."""
    portions = list(states(model, rows, segments, position))
    order = np.argsort(np.concatenate([portion.numbers for portion in portions]))
    together = torch.cat([portion.states for portion in portions])
    return together[torch.from_numpy(order).to(together.device)]


def _decoded(
    model: Prepared, ids: Tensor, groups: Sequence[RowGroup], segments: Tensor | None, start: int
) -> Float[Tensor, "N D"]:
    outputs = []
    for tokens, kinds in zip(cut(ids, groups), cut(segments, groups), strict=True):
        memory = model.encode(tokens, segments=kinds)
        decoder_ids = torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], 1)
        outputs.append(model.decode(decoder_ids, memory=memory).flatten(0, 1))
    return torch.cat(outputs)


def _flat(rows: Rows, numbers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(rows[n], np.int64) for n in numbers]))
