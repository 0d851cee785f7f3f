"""Hidden states of rows of ids from a prepared network, batched by length without padding.

    for portion in states(model, rows):     indices of rows, and their concatenated states
    hidden(model, rows)                     the states of each row, in order
    at_place(model, rows, "first")          one state for each row, in order

Up to rounding, results do not depend on which rows share a batch (`batches.py`).

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
    """Hidden states of rows that were computed together.

    Attributes:
        numbers: (R,) indices of the rows.
        tokens: (N,) concatenated ids of these rows.
        states: (N, D), or (R, D) at one position of each row.
        lengths: length of each row.
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
    """Yield the hidden states of all rows, at all positions or at one `position` of each.

    Args:
        start: return the states of the decoder of an encoder-decoder model, whose input is the same
            row shifted behind this id.

    Raises:
        DataError: a row without an id.
    """
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    if len(lengths) and int(lengths.min()) < 1:
        raise DataError("a row without an id", where=f"row {int(lengths.argmin())}")
    for portion in portions(lengths):
        numbers, groups = portion.numbers, portion.groups
        ids = _flat(rows, numbers).to(model.device)
        segment_ids = None if segments is None else _flat(segments, numbers).to(model.device)
        if start is None:
            hidden_states = model.ragged(ids, groups, segment_ids, position)
        else:
            hidden_states = _decoded(model, ids, groups, segment_ids, start)
        yield PortionStates(numbers, ids, hidden_states, lengths[numbers].tolist())


def hidden(model: Prepared, rows: Rows, segments: Rows | None = None) -> list[Tensor]:
    """Return the hidden states (T, D) of each row, in order."""
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
    """Return the hidden state at one position of each row, in order."""
    portions = list(states(model, rows, segments, position))
    order = np.argsort(np.concatenate([portion.numbers for portion in portions]))
    all_states = torch.cat([portion.states for portion in portions])
    return all_states[torch.from_numpy(order).to(all_states.device)]


def _decoded(
    model: Prepared, ids: Tensor, groups: Sequence[RowGroup], segments: Tensor | None, start: int
) -> Float[Tensor, "N D"]:
    outputs = []
    for tokens, segment_ids in zip(cut(ids, groups), cut(segments, groups), strict=True):
        memory = model.encode(tokens, segments=segment_ids)
        decoder_ids = torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], 1)
        outputs.append(model.decode(decoder_ids, memory=memory).flatten(0, 1))
    return torch.cat(outputs)


def _flat(rows: Rows, numbers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(rows[n], np.int64) for n in numbers]))
