"""MinHash signatures of the shingles of many texts at once (Broder 1997), and their bands.

A shingle's hash is mixed to 32 bits x; permutation i is x * a_i modulo 2**32 with a fixed, random,
odd a_i. The x are uniform whatever the text, and over uniform x multiplication by random odd
numbers gives minima that are as good as independent: `tests/curate/test_near_duplicates.py` holds
the share of pairs found to the binomial curve. One multiplication and one minimum for each shingle
and permutation are all that the processor's vector units must do.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.words import BASE, Words, mix

# Shingles that are worked on at once: with their products they fit into the second cache.
BLOCK = 1 << 15
SEED = 0x6D696E68617368


def shingles_of(words: Words, size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of every `size` consecutive words; of a text with fewer words, of all its words.

    Returns:
        (S,) uint64, and (B + 1,) int64 where each text's begin; a text without words has none.
    """
    hashes, starts = words.shingles(size)
    short = np.flatnonzero((words.counts > 0) & (words.counts < size))
    if not short.size:
        return hashes, starts
    counts = np.diff(starts)
    counts[short] = 1
    found = np.empty(len(hashes) + len(short), np.uint64)
    begins = np.concatenate([[0], np.cumsum(counts)])
    whole = np.zeros(len(found), np.bool_)
    whole[begins[short]] = True
    found[~whole] = hashes
    values = np.zeros(len(short), np.uint64)
    with np.errstate(over="ignore"):
        for place in range(size - 1):
            here = place < words.counts[short]
            first = words.starts[short[here]] + place
            values[here] = values[here] * BASE + words.hashes[first]
        # The number of words keeps a short text apart from a shingle that begins with it.
        values += words.counts[short].astype(np.uint64)
    found[whole] = mix(values)
    return found, begins


def signatures(
    hashes: NDArray[np.uint64], starts: NDArray[np.int64], count: int, block: int = BLOCK
) -> NDArray[np.uint32]:
    """(count, B) the least value of every permutation over each text's shingles.

    Args:
        hashes, starts: as `shingles_of` gives them; every text must have a shingle.
    """
    factors = multipliers(count)
    points = (hashes >> np.uint64(32)).astype(np.uint32)
    texts = len(starts) - 1
    found = np.empty((count, texts), np.uint32)
    begin = 0
    while begin < texts:
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + block, "right")) - 1)
        here = points[starts[begin] : starts[end]]
        product = np.empty_like(here)
        cuts = starts[begin:end] - starts[begin]
        for place in range(count):
            np.multiply(here, factors[place], out=product)
            np.minimum.reduceat(product, cuts, out=found[place, begin:end])
        begin = end
    return found


@functools.cache
def multipliers(count: int) -> NDArray[np.uint32]:
    """(count,) odd numbers, always the same."""
    numbers = mix(np.arange(1, count + 1, dtype=np.uint64) + np.uint64(SEED))
    return (numbers >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def band_hashes(minima: NDArray[np.uint32], bands: int, rows: int) -> NDArray[np.uint64]:
    """(bands, B) one hash for the `rows` minima of each band.

    Args:
        minima: (bands * rows, B).
    """
    grouped = minima.reshape(bands, rows, minima.shape[1]).astype(np.uint64)
    combined = np.zeros((bands, minima.shape[1]), np.uint64)
    with np.errstate(over="ignore"):
        for row in range(rows):
            combined = combined * BASE + grouped[:, row]
    return mix(combined)


def set_hashes(hashes: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(B,) one hash for all shingles of a text with their numbers, whatever their order; texts for
    which it is equal have a Jaccard similarity of 1. Every text must have a shingle."""
    with np.errstate(over="ignore"):
        return mix(np.add.reduceat(mix(hashes), starts[:-1]))
