"""How many texts go together: rows of like length, so that nothing is padding.

    lengths 7 3 7 5 3 …  ->  numbers of rows, the longest first, and groups of one length
                             [0 2 3 1 4]   Group(2, 7) Group(1, 5) Group(2, 3)

A batch goes through the network as one run of ids (`Prepared.ragged`): products are as long as the
batch, attention runs once for every length. This is the only place that decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.inference.prepared import Group

# Ids of a batch, unless one text has more.
AT_ONCE = 4_096


@dataclass(frozen=True)
class Portion:
    """Numbers of rows that go together, in their order there, and the groups they form."""

    numbers: NDArray[np.int64]
    groups: tuple[Group, ...]


def portions(lengths: NDArray[np.int64], at_once: int = AT_ONCE) -> Iterator[Portion]:
    """Rows of these lengths in portions of at most `at_once` ids, one row at least."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    begin = 0
    while begin < len(order):
        before = ends[begin] - lengths[order[begin]]
        stop = max(begin + 1, int(np.searchsorted(ends, before + at_once, side="right")))
        numbers = order[begin:stop]
        found, counts = np.unique(-lengths[numbers], return_counts=True)
        pairs = zip(counts.tolist(), found.tolist(), strict=True)
        yield Portion(numbers, tuple(Group(count, -length) for count, length in pairs))
        begin = stop
