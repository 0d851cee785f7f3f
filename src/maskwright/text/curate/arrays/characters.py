"""The characters of many texts as one array, with a line end after each text: their classes, and
counts by text."""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.hashes import SpanHashes, starts_of, true_runs

LINE_END = 0x0A
# Bits of the class of a code point. MARK characters are ALPHABETIC too; UNSPACED are the letters
# and digits of scripts that write no spaces between words.
SPACE, ALPHABETIC, DIGIT, UPPER, LOWER, SYMBOL, MARK, UNSPACED = 1, 2, 4, 8, 16, 32, 64, 128
# Thai, Lao, Burmese, Khmer, Kana, Bopomofo, Han.
UNSPACED_BLOCKS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x312F), (0x31A0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)
EAST_ASIA = 0x2E80  # scripts without spaces from here on belong to East Asia
APOSTROPHES = (0x27, 0x2019)


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

    def tokens(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return begins and ends of the runs of characters without white space."""
        return true_runs((self.classes & SPACE) == 0)

    @functools.cached_property
    def hashes(self) -> SpanHashes:
        """Hashes of spans of `points`."""
        return SpanHashes(self.points)

    @functools.cached_property
    def letters_per_word(self) -> NDArray[np.int64]:
        """(B,) the letters per counted word: 1, but for scripts without spaces, where each letter
        is counted as a word (`words.py`), 2 in Chinese and Japanese, 4 in Thai and others."""
        unspaced = (self.classes & UNSPACED) != 0
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
    return Characters(points, starts_of(np.fromiter(map(len, texts), np.int64, len(texts)) + 1))


def classes_of(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the class bits of each code point."""
    return look_up(points, _tables()[0])


def case_fold(points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Map each code point to a number that is equal for both cases of a letter, and for both
    apostrophes."""
    above = np.flatnonzero(points > 0xFF)
    if 2 * len(above) > len(points):
        return _tables()[1][points]
    low = points.astype(np.uint8).tobytes().translate(_first_folded())
    folded = np.frombuffer(low, np.uint8).astype(np.uint64)
    folded += np.uint64(1)
    folded[above] = _tables()[1][points[above]]
    return folded


def look_up(points: NDArray[np.uint32], table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `table[points]`, ten times as fast if most code points are below 256."""
    above = np.flatnonzero(points > 0xFF)
    if 2 * len(above) > len(points):
        return table[points]
    low = points.astype(np.uint8).tobytes().translate(table[:256].tobytes())
    if not above.size:
        return np.frombuffer(low, np.uint8)
    values = np.frombuffer(bytearray(low), np.uint8)
    values[above] = table[points[above]]
    return values


def running_counts(flags: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return (N + 1,) the number of true flags before each position, in 32 bits for speed."""
    counts = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, dtype=np.int32, out=counts[1:])
    return counts


@functools.cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Return the class bits of every code point, and its number for `case_fold`."""
    size = sys.maxunicode + 1
    names = np.zeros(size, "U2")  # of the Unicode categories; "" after the last ideograph
    for block in (range(0x323B0), range(0xE0100, 0xF0000)):
        names[block.start : block.stop] = list(map(unicodedata.category, map(chr, block)))
    major = names.astype("U1")
    bits = np.full(size, SYMBOL, np.uint8)
    bits[(major == "L") | (major == "M")] = ALPHABETIC
    bits[major == "M"] |= MARK
    bits[major == "N"] = DIGIT
    is_letter = (major == "L") | (major == "N")
    for begin, end in UNSPACED_BLOCKS:
        bits[begin : end + 1] |= UNSPACED * is_letter[begin : end + 1].astype(np.uint8)
    bits[(names == "Lu") | (names == "Lt")] |= UPPER
    bits[names == "Ll"] |= LOWER
    bits[[point for point in range(0x10000) if chr(point).isspace()]] = SPACE
    letters = np.flatnonzero(is_letter)
    folded = np.arange(1, size + 1, dtype=np.uint64)
    # Only the dotted capital I of Turkish has two characters in lower case, the first an i.
    folded[letters] = [ord(chr(point).lower()[0]) + 1 for point in letters.tolist()]
    folded[list(APOSTROPHES)] = APOSTROPHES[0] + 1
    return bits, folded


@functools.cache
def _first_folded() -> bytes:
    """Return the number for `case_fold`, less 1, of the first 256 code points."""
    return (_tables()[1][:256] - np.uint64(1)).astype(np.uint8).tobytes()
