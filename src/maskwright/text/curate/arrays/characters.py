"""The characters of many texts as arrays: their classes, counts by text, hashes of sections.

The texts are concatenated with a line end after each. The hash of a section is a polynomial in the
odd number `BASE` modulo 2**64 over its characters, computed from prefix sums of all characters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.words import (
    categories,
    in_unspaced_script,
    look_up,
    mix,
    powers_of_base,
    spaces,
)

LINE_END = 0x0A
BLOCK = 1 << 16  # characters that are hashed at once
# Bits of the class of a code point.
SPACE, ALPHABETIC, DIGIT, UPPER, LOWER, SYMBOL, MARK = 1, 2, 4, 8, 16, 32, 64
# Code points of scripts without spaces from here on belong to East Asia.
EAST_ASIA = 0x2E80


@dataclass(frozen=True)
class Characters:
    """N characters of B texts, including the line end after each text.

    Attributes:
        points: (N,) uint32 code points.
        offsets: (B + 1,) int64; text b is `points[offsets[b] : offsets[b + 1] - 1]`.
    """

    points: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    @functools.cached_property
    def classes(self) -> NDArray[np.uint8]:
        """(N,) the class bits of each character: `SPACE`, `ALPHABETIC`, ..."""
        return classes_of(self.points)

    @functools.cached_property
    def sums(self) -> NDArray[np.uint64]:
        """(N + 1,) the prefix sums for `section_hashes`."""
        return prefix_sums(self.points)

    @functools.cached_property
    def letters_per_word(self) -> NDArray[np.int64]:
        """(B,) the letters per counted word: 1, but for scripts without spaces, where each letter
        is counted as a word (`words.py`), 2 in Chinese and Japanese, 4 in Thai and others."""
        unspaced = in_unspaced_script(self.points)
        lengths = np.diff(self.offsets) - 1
        if not unspaced.any():
            return np.ones(len(lengths), np.int64)
        letters = self.count(unspaced)
        eastern = self.count(unspaced & (self.points >= EAST_ASIA))
        return np.where(letters * 4 > lengths, np.where(eastern * 2 >= letters, 2, 4), 1)

    def count(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(B,) the number of characters of each text where `chosen`, (N,), is true."""
        if len(self.offsets) == 1:
            return np.zeros(0, np.int64)
        return np.add.reduceat(chosen, self.offsets[:-1], dtype=np.int64)

    def text_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the text of each position in `points`."""
        return np.searchsorted(self.offsets, positions, "right") - 1


def characters_of(texts: Sequence[str]) -> Characters:
    """Concatenate `texts`."""
    joined = "\n".join(texts) + "\n" if texts else ""
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return Characters(points, np.concatenate([[0], np.cumsum(lengths + 1)]).astype(np.int64))


def classes_of(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the class bits of each code point."""
    return look_up(points, _classes())


def running_counts(flags: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return (N + 1,) the number of true flags before each position, in 32 bits for speed."""
    counts = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, dtype=np.int32, out=counts[1:])
    return counts


def prefix_sums(
    points: NDArray[np.uint32],
    numbers: Callable[[NDArray[np.uint32]], NDArray[np.uint64]] | None = None,
) -> NDArray[np.uint64]:
    """Return (N + 1,) the prefix sums for `section_hashes`, computed in blocks that fit the cache.

    Args:
        numbers: a function from code points to the numbers that are hashed; None: the identity.
    """
    powers, _ = powers_of_base(1 << max(10, len(points).bit_length()))
    sums = np.zeros(len(points) + 1, np.uint64)
    with np.errstate(over="ignore"):
        for begin in range(0, len(points), BLOCK):
            block = points[begin : begin + BLOCK]
            terms = block.astype(np.uint64) if numbers is None else numbers(block)
            terms *= powers[begin : begin + len(block)]
            block_sums = sums[begin + 1 : begin + 1 + len(block)]
            np.cumsum(terms, out=block_sums)
            block_sums += sums[begin]
    return sums


def section_hashes(
    sums: NDArray[np.uint64], begins: NDArray[np.integer], ends: NDArray[np.integer]
) -> NDArray[np.uint64]:
    """Return hashes of the sections `begins:ends`, equal for equal sections.

    Args:
        sums: the result of `prefix_sums`.
    """
    _, inverse = powers_of_base(1 << max(10, (len(sums) - 1).bit_length()))
    # BASE is odd, so it has an inverse, whose powers shift each section's sum to position 0.
    with np.errstate(over="ignore"):
        return mix((sums[ends] - sums[begins]) * inverse[begins])


@functools.cache
def _classes() -> NDArray[np.uint8]:
    """Return the class bits of every code point."""
    names = categories()
    major = names.astype("U1")
    bits = np.full(len(names), SYMBOL, np.uint8)
    bits[(major == "L") | (major == "M")] = ALPHABETIC
    bits[major == "M"] |= MARK
    bits[major == "N"] = DIGIT
    bits[(names == "Lu") | (names == "Lt")] |= UPPER
    bits[names == "Ll"] |= LOWER
    bits[spaces()] = SPACE
    return bits
