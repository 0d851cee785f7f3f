"""Fingerprints of texts that every two equal stretches of words have in common (winnowing,
Schleimer, Wilkerson and Aiken 2003), and hashes of any stretch in constant time.

Of every window of `length` words the k-gram with the smallest hash is its fingerprint, the leftmost
of equals. It depends on the words of the window alone, so equal windows have equal fingerprints,
at the same place. Neighbouring windows mostly share theirs: a text has one for about every
(length - k) / 2 words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.words import Words, mix, powers_of_base

# Bits of a sort key that hold a word's number in its batch.
PLACE_BITS = 28


@dataclass(frozen=True)
class Runs:
    """Neighbouring windows of a text that share a fingerprint, at one place.

    Attributes:
        prints: (R,) uint64, the fingerprints.
        firsts: (R,) int64, the first word of the first window, in the batch.
        counts: (R,) windows.
    """

    prints: NDArray[np.uint64]
    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]

    def take(self, chosen: NDArray[np.bool_]) -> Runs:
        return Runs(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


class Stretches:
    """Hashes of stretches of words of a batch."""

    def __init__(self, words: Words) -> None:
        powers, inverse = powers_of_base(1 << max(16, len(words.hashes).bit_length()))
        with np.errstate(over="ignore"):
            sums = np.cumsum(words.hashes * powers[: len(words.hashes)], dtype=np.uint64)
        self.sums = np.concatenate([np.zeros(1, np.uint64), sums])
        self.inverse = inverse

    def hashes(
        self, firsts: NDArray[np.int64], lengths: NDArray[np.int64] | int
    ) -> NDArray[np.uint64]:
        """(R,) of `lengths` words from `firsts` on; equal for equal words."""
        with np.errstate(over="ignore"):
            values = (self.sums[firsts + lengths] - self.sums[firsts]) * self.inverse[firsts]
            return mix(values + np.asarray(lengths, np.uint64))


def gram_of(length: int) -> int:
    """The words of a k-gram for windows of `length` words: short, for few fingerprints; long, so
    that few texts share one by chance."""
    return max(1, length // 3)


def runs_of(words: Words, stretches: Stretches, length: int) -> Runs:
    """All windows of `length` words, in runs of one fingerprint."""
    gram = gram_of(length)
    width = length - gram + 1
    windows = np.maximum(words.counts - length + 1, 0)
    total = int(windows.sum())
    if not total:
        none = np.zeros(0, np.int64)
        return Runs(np.zeros(0, np.uint64), none, none)
    if len(words.hashes) >> PLACE_BITS:
        raise ValueError("too many words in a batch")
    size = len(words.hashes) - gram + 1
    # One sort key for hash and place; grams and windows across texts are made, too, and not used.
    hashes = stretches.hashes(np.arange(size), gram)
    low = np.uint64(PLACE_BITS)
    least = (hashes >> low << low) | np.arange(size, dtype=np.uint64)
    reach = 1
    while reach < width:
        step = min(reach, width - reach)
        least = np.minimum(least[: len(least) - step], least[step:])
        reach += step
    starts = np.concatenate([[0], np.cumsum(windows)])
    firsts = np.arange(total) + np.repeat(words.starts[:-1] - starts[:-1], windows)
    at = (least[firsts] & np.uint64((1 << PLACE_BITS) - 1)).astype(np.int64)
    # Texts differ in places, too, so a change of place ends a run in any case.
    opening = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1]]))
    counts = np.diff(np.append(opening, total))
    return Runs(hashes[at[opening]], firsts[opening], counts)
