"""Hashes of spans of numbers, groups of equal numbers, runs and ranges.

The hash of a span is a polynomial in the odd number `BASE` modulo 2**64 over its numbers, mixed by
the finaliser of SplitMix64. From prefix sums of the whole sequence it is computed in constant time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.text.store import BoolArray, IntArray, UintArray

BASE = np.uint64(0x9E3779B97F4A7C15)
BLOCK = 1 << 16  # numbers that are summed at once, so that they fit the cache


def mix(bits: UintArray) -> UintArray:
    """Apply the finaliser of SplitMix64, variant 13: each input bit affects each output bit."""
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class SpanHashes:
    """Hashes of spans of a sequence, equal for spans of equal numbers.

    Args:
        values: (N,) the sequence.
        number_of: the function from values to the numbers that are hashed; None: the identity.
    """

    def __init__(
        self,
        values: NDArray[np.unsignedinteger[Any]],
        number_of: Callable[[NDArray[Any]], UintArray] | None = None,
    ) -> None:
        powers, self._inverse = _powers(1 << max(10, len(values).bit_length()))
        self._sums = sums = np.empty(len(values) + 1, np.uint64)
        sums[0] = 0
        with np.errstate(over="ignore"):
            for begin in range(0, len(values), BLOCK):
                block = values[begin : begin + BLOCK]
                terms = block.astype(np.uint64) if number_of is None else number_of(block)
                terms *= powers[begin : begin + len(block)]
                terms[0] += sums[begin]
                np.cumsum(terms, out=sums[begin + 1 : begin + 1 + len(block)])

    def of(self, begins: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]]) -> UintArray:
        """Return the hashes of the spans `begins:ends`."""
        # BASE is odd, so it has an inverse, whose powers shift each span's sum to position 0.
        with np.errstate(over="ignore"):
            return mix((self._sums[ends] - self._sums[begins]) * self._inverse[begins])


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[UintArray, UintArray]:
    """Return the first `count` powers of `BASE`, and of its inverse, modulo 2**64."""
    power_tables = []
    for base in (int(BASE), pow(int(BASE), -1, 1 << 64)):
        factors = np.full(count, base, np.uint64)
        factors[0] = 1
        with np.errstate(over="ignore"):
            power_tables.append(np.multiply.accumulate(factors))
    return power_tables[0], power_tables[1]


class HashTable:
    """Values by hash. A sieve of the highest bits excludes most hashes that are not in the table.

    Args:
        hashes: (N,) distinct, ascending, at least one.
        values: (N,); None: the indices of `hashes`.
    """

    def __init__(self, hashes: UintArray, values: IntArray | None = None) -> None:
        self._hashes = hashes
        self._values = np.arange(len(hashes)) if values is None else values
        bits = min(26, max(12, len(hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(1 << bits, np.bool_)
        self._sieve[hashes >> self._shift] = True

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, sought: UintArray) -> tuple[IntArray, IntArray]:
        """Return (M,) the indices of `sought` that are in the table, and (M,) their values."""
        likely = np.flatnonzero(self._sieve[sought >> self._shift])
        entries = np.searchsorted(self._hashes, sought[likely]).clip(max=len(self) - 1)
        equal = self._hashes[entries] == sought[likely]
        return likely[equal], self._values[entries[equal]]


def starts_of(counts: NDArray[np.integer[Any] | np.bool_]) -> IntArray:
    """Return (N + 1,) the index of the first element of each of N groups, and their total size."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def ranges(begins: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]) -> IntArray:
    """Return the concatenated ranges of `counts` whole numbers from each of `begins`."""
    starts = starts_of(counts)
    return np.arange(starts[-1]) + np.repeat(begins - starts[:-1], counts)


def is_first(*columns: NDArray[Any]) -> BoolArray:
    """Return (N,) whether each row differs from the row before it in one of the columns."""
    firsts = np.zeros(len(columns[0]), np.bool_)
    firsts[:1] = True
    for column in columns:
        firsts[1:] |= column[1:] != column[:-1]
    return firsts


def true_runs(flags: BoolArray) -> tuple[IntArray, IntArray]:
    """Return begins and ends of the runs of true flags."""
    edges = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    if flags[:1].any():
        edges = np.concatenate([[0], edges])
    if len(edges) % 2:
        edges = np.append(edges, len(flags))
    return edges[::2].copy(), edges[1::2].copy()


def group_equal(values: UintArray) -> tuple[IntArray, BoolArray]:
    """Sort hashes. Equal hashes stay in their order.

    Returns:
        (N,) the indices in sorted order, and (N,) whether the value at each position of this order
        is the first of a group of equal values.
    """
    size = len(values)
    bits = np.uint64(max(1, (size - 1).bit_length()))
    # The index replaces the lowest bits of the hash: sorting is three times as fast as argsort.
    packed = values >> bits << bits | np.arange(size, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    firsts = is_first(values[order])
    packed >>= bits
    if (firsts[1:] & (packed[1:] == packed[:-1])).any():
        # Two hashes differ only in the lowest bits.
        order = np.argsort(values, kind="stable")
        firsts = is_first(values[order])
    return order, firsts
