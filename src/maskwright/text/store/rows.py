"""Rows of training data, the output of sources and the input of corruption.

    tokens       (B, T) int64   ids; padding where `documents` is 0
    positions    (B, T) int64   counted from 0 in each document, or in its part of the row
    documents    (B, T) int32   1, 2, … within the row; 0 is padding
    segments     (B, T) int64   0 for A, 1 for B; None where rows are no pairs
    special      (B, T) bool    framing and padding: never corrupted
    starts_word  (B, T) bool    the token begins a word
    ids          (B,)   int64   the row's number in its source: the counter of its random keys
    starts_sentence (B, T) bool the token begins a sentence; None where the store does not say
    pair_label   (B,)   int64   0: B follows A in its document, 1: it does not; None: no pairs

A source is a pure function: `rows(indices, epoch)` returns the same in every process, in any order
and for batches of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A batch of rows before corruption; the module's docstring describes the fields."""

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    documents: NDArray[np.int32]
    special: NDArray[np.bool_]
    starts_word: NDArray[np.bool_]
    ids: NDArray[np.int64]
    segments: NDArray[np.int64] | None = None
    starts_sentence: NDArray[np.bool_] | None = None
    pair_label: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int, stop: int | None) -> Rows:
        """Return the rows with the columns `start:stop` only."""
        return self._mapped(lambda value: value[:, start:stop] if value.ndim == 2 else value)

    def take(self, order: NDArray[np.integer]) -> Rows:
        """Return the rows at the indices `order`."""
        return self._mapped(lambda value: value[order])

    def _mapped(self, change: Any) -> Rows:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: change(v) for n, v in values.items() if v is not None})


class RowSource(Protocol):
    """Rows by number. `length` is the number of tokens of a row."""

    length: int
    fingerprint: str
    description: str

    def __len__(self) -> int: ...

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows: ...


@runtime_checkable
class OrderedSource(RowSource, Protocol):
    """A source with its own order, which the loader does not shuffle."""

    def take(self, begin: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row numbers and epochs, (count,) each, of `count` samples of a run from number
        `begin`; a pure function."""
        ...


def join(chunks: Sequence[Rows]) -> Rows:
    """Concatenate rows."""
    if len(chunks) == 1:
        return chunks[0]
    joined: dict[str, Any] = {}
    for field in fields(Rows):
        values = [getattr(chunk, field.name) for chunk in chunks]
        if any(value is None for value in values):
            if not all(value is None for value in values):
                raise UsageError(f"rows with and without `{field.name}` do not mix")
            continue
        joined[field.name] = np.concatenate(values)
    return Rows(**joined)


def spread(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return 0 … n-1 for each length n, concatenated: [2, 3] -> [0, 1, 0, 1, 2]."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)


def check_indices(indices: NDArray[np.integer], size: int, description: str) -> NDArray[np.int64]:
    """Return `indices` as int64.

    Raises:
        UsageError: an index outside range(size).
    """
    numbers = np.asarray(indices, dtype=np.int64)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
        raise UsageError(
            "no such row",
            where=description,
            wanted=f"0 to {size - 1}",
            found=f"{numbers.min()} to {numbers.max()}",
        )
    return numbers
