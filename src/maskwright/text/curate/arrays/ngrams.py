"""Repeated n-grams, as shares of the characters of the words of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.words import BASE, Words, group_equal, mix
from maskwright.text.curate.step import shares

Shares = Mapping[int, NDArray[np.float64]]


def repeated_ngrams(
    words: Words, top: Sequence[int], duplicated: Sequence[int]
) -> tuple[Shares, Shares]:
    """Return the shares of the characters of each text's words that are in repeated n-grams.

    An n-gram can only be repeated where the (n - 1)-gram at its position is. So each size considers
    only the positions that the size before left, and all cost little more than the first.

    Args:
        top, duplicated: sizes n of n-grams, at least 2.

    Returns:
        For each size of `top`, (B,) the share in the most frequent n-gram that occurs at least
        twice (at most 1, even if occurrences overlap). For each size of `duplicated`, (B,) the
        share in n-grams that also occur earlier in the text.
    """
    size = len(words.starts) - 1
    lengths = words.ends - words.begins
    sums = np.concatenate([[0], np.cumsum(lengths)])
    totals = sums[words.starts[1:]] - sums[words.starts[:-1]]
    text_ends = words.starts[words.texts + 1] if len(lengths) else lengths  # of each word's text
    empty = np.zeros(size)
    tops: dict[int, NDArray[np.float64]] = dict.fromkeys(top, empty)
    duplicates: dict[int, NDArray[np.float64]] = dict.fromkeys(duplicated, empty)

    positions = np.arange(len(lengths))
    # The index of the text is part of the value, as equal n-grams of two texts are distinct.
    with np.errstate(over="ignore"):
        values = words.hashes + mix(words.texts.astype(np.uint64)) * BASE
    for n in range(2, max(*top, *duplicated) + 1):
        inside = positions + n <= text_ends[positions]
        positions, values = positions[inside], values[inside]
        if not positions.size:
            break
        with np.errstate(over="ignore"):
            values = values * BASE + words.hashes[positions + n - 1]
        order, is_first = group_equal(values)
        begins = np.flatnonzero(is_first)
        counts = np.diff(np.append(begins, len(order)))
        first_occurrences = order[begins]  # of each n-gram
        multiple = counts > 1
        if n in tops:
            at = positions[first_occurrences[multiple]]
            tops[n] = _largest(words.texts[at], counts[multiple], sums[at + n] - sums[at], totals)
        in_group = np.repeat(multiple, counts)
        repeated = np.zeros(len(positions), np.bool_)
        repeated[order[in_group]] = True
        if n in duplicates:
            is_later = repeated.copy()
            is_later[first_occurrences] = False
            duplicates[n] = _covered(words, positions[is_later], n, lengths, totals)
        positions, values = positions[repeated], values[repeated]
    return tops, duplicates


def _largest(
    texts: NDArray[np.int64],
    counts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> NDArray[np.float64]:
    """(B,) count * length / total of the most frequent n-gram of each text, ties by length."""
    order = np.lexsort((lengths, counts, texts))
    is_last = np.concatenate([texts[order][1:] != texts[order][:-1], [True]])[: len(order)]
    chosen = order[is_last]
    covered = np.zeros(len(totals))
    covered[texts[chosen]] = counts[chosen] * lengths[chosen]
    return np.minimum(shares(covered, totals), 1.0)


def _covered(
    words: Words,
    begins: NDArray[np.int64],
    n: int,
    lengths: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> NDArray[np.float64]:
    """(B,) the share of the words' characters covered by the n-grams that begin at `begins`."""
    edges = np.zeros(len(lengths) + 1, np.int64)
    np.add.at(edges, begins, 1)
    np.add.at(edges, begins + n, -1)
    inside = np.cumsum(edges[:-1]) > 0
    return shares(np.bincount(words.texts[inside], lengths[inside], minlength=len(totals)), totals)
