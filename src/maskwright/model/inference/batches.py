"""Batch sizes: how many texts go through a network together.

    portions   lengths 7 3 7 5 3 …  ->  indices of rows, the longest first, grouped by length
                                        [0 2 3 1 4]   RowGroup(2, 7) RowGroup(1, 5) RowGroup(2, 3)
    alike      slices of rows of equal length
    growing    slices of prompts for generation, in order

Rows of a portion have similar lengths, so that there is little or no padding. A prepared network
gets them as concatenated ids (`Prepared.ragged`): matrix products run over the whole portion,
attention once for each length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Maximum number of ids in a batch (more only for a single longer text): of concatenated rows
# without padding, and of texts packed into rows of equal width.
RAGGED, PACKED = 4_096, 16_384
# The same where the states, or the attention weights, of all layers are kept.
WITH_STATES, WITH_WEIGHTS = 8_192, 2_048
# Maximum number of cached positions in generation.
GROWING = 16_384
# Maximum share of padding in a batch for an engine that needs padding.
WASTE = 0.15


@dataclass(frozen=True)
class RowGroup:
    """`count` consecutive rows of `length` ids each."""

    count: int
    length: int


@dataclass(frozen=True)
class Portion:
    """Indices of the rows of a batch, in order, and the groups of equal length they form."""

    numbers: NDArray[np.int64]
    groups: tuple[RowGroup, ...]


def portions(lengths: NDArray[np.int64]) -> Iterator[Portion]:
    """Yield portions of rows, the longest first, of at most `RAGGED` ids or a single row."""
    for numbers in _longest_first(lengths, RAGGED):
        yield Portion(numbers, tuple(groups_of(lengths[numbers])))


def groups_of(lengths: NDArray[np.int64]) -> list[RowGroup]:
    """Group consecutive rows of equal length."""
    if not len(lengths):
        return []
    ends = np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths))
    pairs = zip(np.diff(ends, prepend=0).tolist(), lengths[ends - 1].tolist(), strict=True)
    return [RowGroup(count, length) for count, length in pairs]


def rectangles(groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
    """Yield lists of adjacent groups to be padded to equal length, with at most the share `WASTE`
    of padding; for engines that need rectangular inputs."""
    rectangle: list[RowGroup] = []
    rows = ids = 0
    for group in groups:
        rows, ids = rows + group.count, ids + group.count * group.length
        longest = max((member.length for member in rectangle), default=group.length)
        if rectangle and rows * max(longest, group.length) * (1 - WASTE) > ids:
            yield rectangle
            rectangle, rows, ids = [], group.count, group.count * group.length
        rectangle.append(group)
    if rectangle:
        yield rectangle


def by_length(
    lengths: NDArray[np.int64], stored: Literal["last", "states", "weights"] = "last"
) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of rows, the longest first, in batches whose size depends on what is
    `stored`: states of the last layer, states of all layers, or attention weights."""
    budgets = {"last": PACKED, "states": WITH_STATES, "weights": WITH_WEIGHTS}
    return _longest_first(lengths, budgets[stored])


def read_by(lengths: NDArray[np.int64], networks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of rows, each computed by `networks` distinct networks, the longest first,
    in batches of at most `RAGGED` ids over all networks, or a single row."""
    return _longest_first(lengths, RAGGED, networks)


def _longest_first(
    lengths: NDArray[np.int64], at_once: int, times: NDArray[np.int64] | int = 1
) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(-lengths, kind="stable")
    return (order[portion] for portion in _runs((lengths * times)[order], at_once))


def alike(rows: int, length: int) -> Iterator[slice]:
    """Yield slices of `rows` rows of equal `length`, of at most `RAGGED` ids or a single row."""
    return _runs(np.full(rows, length, np.int64), RAGGED)


def growing(
    prompts: Sequence[Sequence[int]], count: int | Sequence[int], beams: int = 1
) -> Iterator[slice]:
    """Yield slices of prompts to be continued by `count` tokens (for all or for each) in `beams`
    rows each, of at most `GROWING` positions or a single prompt."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int64) + np.asarray(count)
    return _runs(lengths * beams, GROWING)


def _runs(lengths: NDArray[np.int64], at_once: int) -> Iterator[slice]:
    """Yield slices of adjacent items whose `lengths` sum to at most `at_once`, or of one item."""
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        offset = ends[begin] - lengths[begin]
        stop = max(begin + 1, int(np.searchsorted(ends, offset + at_once, side="right")))
        yield slice(begin, stop)
        begin = stop
