"""How many texts go through a network together. This is the only place that decides.

    portions   lengths 7 3 7 5 3 …  ->  numbers of rows, the longest first, and groups of a length
                                        [0 2 3 1 4]   Group(2, 7) Group(1, 5) Group(2, 3)
    alike      so many rows of one length, in slices
    growing    prompts that will be continued, in their order

Rows of a portion are alike in length, so that nothing or little is padding. A prepared network
reads them as one run of ids (`Prepared.ragged`): products are as long as the portion, attention
runs once for every length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Ids that go together, unless one text has more: of rows without padding, and of texts packed into
# rows of one width, which are next to each other in memory.
RAGGED, PACKED = 4_096, 16_384
# Where every layer's states, or its weights of attention, are kept.
WITH_STATES, WITH_WEIGHTS = 8_192, 2_048
# Positions of texts that are written, with keys and values in every layer.
GROWING = 16_384
# Share of a rectangle of rows that is padding, where an engine pads.
WASTE = 0.15


@dataclass(frozen=True)
class RowGroup:
    """`count` rows of `length` ids each, one after the other."""

    count: int
    length: int


@dataclass(frozen=True)
class Portion:
    """Numbers of rows that go together, in their order there, and the groups they form."""

    numbers: NDArray[np.int64]
    groups: tuple[RowGroup, ...]


def portions(lengths: NDArray[np.int64], at_once: int | None = None) -> Iterator[Portion]:
    """Portions of rows, the longest first, of at most `at_once` ids (`RAGGED`) or one row."""
    for numbers in _longest_first(lengths, RAGGED if at_once is None else at_once):
        row_lengths, counts = np.unique(-lengths[numbers], return_counts=True)
        pairs = zip(counts.tolist(), row_lengths.tolist(), strict=True)
        yield Portion(numbers, tuple(RowGroup(count, -length) for count, length in pairs))


def rectangles(groups: Sequence[RowGroup], waste: float = WASTE) -> Iterator[list[RowGroup]]:
    """Neighbouring groups to pad to one length, with at most the share `waste` of padding. For
    engines that read no ragged rows."""
    rectangle: list[RowGroup] = []
    rows = ids = 0
    for group in groups:
        rows, ids = rows + group.count, ids + group.count * group.length
        longest = max((member.length for member in rectangle), default=group.length)
        if rectangle and rows * max(longest, group.length) * (1 - waste) > ids:
            yield rectangle
            rectangle, rows, ids = [], group.count, group.count * group.length
        rectangle.append(group)
    if rectangle:
        yield rectangle


def by_length(
    lengths: NDArray[np.int64], stored: Literal["last", "states", "weights"] = "last"
) -> Iterator[NDArray[np.int64]]:
    """Numbers of rows, the longest first, in portions that the memory allows for what is `stored`:
    the last layer's states, all layers' states, or their attention weights."""
    budgets = {"last": PACKED, "states": WITH_STATES, "weights": WITH_WEIGHTS}
    return _longest_first(lengths, budgets[stored])


def read_by(lengths: NDArray[np.int64], networks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of rows that are read by so many different networks each, the longest first, in
    portions of at most `RAGGED` ids of all of these, one row at least."""
    order = np.argsort(-lengths, kind="stable")
    return (order[portion] for portion in _runs((lengths * networks)[order], RAGGED))


def _longest_first(lengths: NDArray[np.int64], at_once: int) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(-lengths, kind="stable")
    return (order[portion] for portion in _runs(lengths[order], at_once))


def alike(rows: int, length: int) -> Iterator[slice]:
    """Slices of so many rows of one `length`, of at most `RAGGED` ids, one row at least."""
    return _runs(np.full(rows, length, np.int64), RAGGED)


def growing(
    prompts: Sequence[Sequence[int]], count: int | Sequence[int], beams: int = 1
) -> Iterator[slice]:
    """Slices of prompts that grow by `count` tokens, or each by its own, `beams` times each, of at
    most `GROWING` positions, one prompt at least."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int64) + np.asarray(count)
    return _runs(lengths * beams, GROWING)


def _runs(lengths: NDArray[np.int64], at_once: int) -> Iterator[slice]:
    """Runs of neighbours with at most `at_once` in sum, one at least."""
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = ends[begin] - lengths[begin]
        stop = max(begin + 1, int(np.searchsorted(ends, before + at_once, side="right")))
        yield slice(begin, stop)
        begin = stop
