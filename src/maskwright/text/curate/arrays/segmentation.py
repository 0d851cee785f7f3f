"""Characters, words, lines and sentences of many texts at once, as arrays.

The characters of the texts are one array, with a line end after each text. There is no Python loop
over words.

A word is a run of letters, digits and combining marks, with an apostrophe between two of them; in
scripts without spaces (Han, Kana, Thai, Lao, Khmer, Burmese) every letter is one, with its marks.
Case is ignored. A word is represented by a 64-bit hash of its characters.

A line is the text between two line feeds without outer white space. Blank lines are left out.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.hashes import (
    BASE,
    SpanHashes,
    is_first,
    mix,
    ranges,
    starts_of,
    true_runs,
)
from maskwright.text.store import BoolArray, IntArray, UintArray
from maskwright.text.store.tokenize import SPACED_TERMINALS, WIDE_TERMINALS

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
    offsets: IntArray

    @functools.cached_property
    def classes(self) -> NDArray[np.uint8]:
        """(N,) the class bits of each character: `SPACE`, `ALPHABETIC`, ..."""
        return classes_of(self.points)

    def tokens(self) -> tuple[IntArray, IntArray]:
        """Return begins and ends of the runs of characters without white space."""
        return true_runs((self.classes & SPACE) == 0)

    @functools.cached_property
    def hashes(self) -> SpanHashes:
        """Hashes of spans of `points`."""
        return SpanHashes(self.points)

    @functools.cached_property
    def letters_per_word(self) -> IntArray:
        """(B,) the letters per counted word: 1, but for scripts without spaces, where each letter
        is counted as a word, 2 in Chinese and Japanese, 4 in Thai and others."""
        unspaced = (self.classes & UNSPACED) != 0
        lengths = np.diff(self.offsets) - 1
        if not unspaced.any():
            return np.ones(len(lengths), np.int64)
        letters = self.count(unspaced)
        eastern = self.count(unspaced & (self.points >= EAST_ASIA))
        return np.where(letters * 4 > lengths, np.where(eastern * 2 >= letters, 2, 4), 1)

    def count(self, chosen: BoolArray) -> IntArray:
        """(B,) the number of characters of each text where `chosen`, (N,), is true."""
        if len(self.offsets) == 1:
            return np.zeros(0, np.int64)
        return np.add.reduceat(chosen, self.offsets[:-1], dtype=np.int64)

    def text_of(self, positions: IntArray) -> IntArray:
        """Return the index of the text of each position in `points`."""
        return np.searchsorted(self.offsets, positions, "right") - 1


def characters_of(texts: Sequence[str]) -> Characters:
    """Concatenate `texts`."""
    joined = "\n".join(texts) + "\n" if texts else ""
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    return Characters(points, starts_of(np.fromiter(map(len, texts), np.int64, len(texts)) + 1))


def classes_of(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the class bits of each code point."""
    return np.take(_tables()[0], points, mode="clip")  # faster than indexing


def case_fold(points: NDArray[np.uint32]) -> UintArray:
    """Map each code point to a number that is equal for both cases of a letter, and for both
    apostrophes."""
    return np.take(_tables()[1], points, mode="clip")


@functools.cache
def _tables() -> tuple[NDArray[np.uint8], UintArray]:
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


# ------------------------------------------------------------------------------ words
@dataclass(frozen=True)
class Words:
    """W words of B texts.

    Attributes:
        hashes: (W,) uint64, equal for equal words.
        begins, ends: (W,) int64, positions of characters within the text of the word.
        starts: (B + 1,) int64; the words of text b are `starts[b]:starts[b + 1]`.
    """

    hashes: UintArray
    begins: IntArray
    ends: IntArray
    starts: IntArray

    @property
    def counts(self) -> IntArray:
        """(B,) the number of words of each text."""
        return np.diff(self.starts)

    @functools.cached_property
    def texts(self) -> IntArray:
        """(W,) the index of the text of each word."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    @functools.cached_property
    def spans(self) -> SpanHashes:
        """Hashes of spans of words."""
        return SpanHashes(self.hashes)

    def of(self, chosen: BoolArray) -> Words:
        """The words of the texts where `chosen`, (B,), is true."""
        in_text = np.repeat(chosen, self.counts)
        starts = starts_of(self.counts[chosen])
        return Words(self.hashes[in_text], self.begins[in_text], self.ends[in_text], starts)

    def shingles(self, size: int) -> tuple[UintArray, IntArray]:
        """Hash every `size` consecutive words of each text: max(0, n - size + 1) for n words.

        Returns:
            (S,) uint64 hashes, and (B + 1,) the index of the first shingle of each text.
        """
        counts = np.maximum(self.counts - size + 1, 0)
        first_words = ranges(self.starts[:-1], counts)
        combined = np.zeros(len(first_words), np.uint64)
        with np.errstate(over="ignore"):
            for offset in range(size):
                combined = combined * BASE + self.hashes[first_words + offset]
        return mix(combined), starts_of(counts)


def words_of(characters: Characters) -> Words:
    """Find the words of texts."""
    begins, ends = _edges(characters)
    hashes = SpanHashes(characters.points, case_fold).of(begins, ends)
    starts = np.searchsorted(begins, characters.offsets)
    origins = np.repeat(characters.offsets[:-1], np.diff(starts))
    return Words(hashes, begins - origins, ends - origins, starts)


def word_counts(texts: Sequence[str]) -> IntArray:
    """Return (B,) the number of words of each text."""
    characters = characters_of(texts)
    return np.diff(np.searchsorted(_edges(characters)[0], characters.offsets))


def _edges(characters: Characters) -> tuple[IntArray, IntArray]:
    """Return (W,) begins and (W,) ends of the words in `characters.points`."""
    points, classes = characters.points, characters.classes
    in_word = (classes & (ALPHABETIC | DIGIT)) != 0
    unspaced = (classes & UNSPACED) != 0
    apostrophes = np.flatnonzero((points == APOSTROPHES[0]) | (points == APOSTROPHES[1]))
    if apostrophes.size:
        # The last character is a line end.
        apostrophes = apostrophes[apostrophes > 0]
        joins = in_word[apostrophes - 1] & in_word[apostrophes + 1]
        joins &= ~(unspaced[apostrophes - 1] | unspaced[apostrophes + 1])
        in_word[apostrophes[joins]] = True
    if unspaced.any():
        return _edges_by_letter(in_word, unspaced, (classes & MARK) != 0)
    return true_runs(in_word)


def _edges_by_letter(
    inside: BoolArray, single: BoolArray, marks: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return begins and ends as `_edges`, where letters are words; (N,) flags of characters: inside
    a word, a letter of a script without spaces, a combining mark."""
    opening = inside.copy()
    opening[1:] &= ~inside[:-1]
    # A new word begins after such a letter and its marks; the last character is a line end.
    letters = np.flatnonzero(single)
    after = np.flatnonzero(~marks)[starts_of(~marks)[letters + 1]]
    opening[letters] = True
    opening[after] = inside[after]
    closing = inside.copy()
    closing[:-1] &= ~inside[1:] | opening[1:]
    return np.flatnonzero(opening), np.flatnonzero(closing) + 1


# ------------------------------------------------------------------------------ lines
CLOSERS = "\"'”’»›“‘)]}）」』*_"
# Last characters of a line of prose.
TERMINALS = SPACED_TERMINALS + WIDE_TERMINALS + "\"'”’»"
PASSAGE_BYTES = 256  # bytes of a passage
HALF_PASSAGE = PASSAGE_BYTES // 2
FAR = 1 << 62


@dataclass(frozen=True)
class Lines:
    """L lines of B texts.

    Attributes:
        characters: the characters of the texts.
        begins, ends: (L,) int64, positions in `characters.points`; `ends` is exclusive.
        starts: (B + 1,) int64; the lines of text b are `starts[b]:starts[b + 1]`.
        numbers: (L,) int64, the number of each line in its text with blank ones counted, from 0.
    """

    characters: Characters
    begins: IntArray
    ends: IntArray
    starts: IntArray
    numbers: IntArray

    @property
    def counts(self) -> IntArray:
        """(B,) the number of lines of each text."""
        return np.diff(self.starts)

    @property
    def lengths(self) -> IntArray:
        """(L,) the number of characters of each line."""
        return self.ends - self.begins

    @functools.cached_property
    def texts(self) -> IntArray:
        """(L,) the index of the text of each line."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    @functools.cached_property
    def hashes(self) -> UintArray:
        """(L,) a hash of each line, equal for lines with equal characters."""
        return self.characters.hashes.of(self.begins, self.ends)

    def total(self, values: NDArray[np.generic]) -> IntArray:
        """(B,) the sum of `values`, (L,), over the lines of each text."""
        return np.bincount(
            self.texts, values.astype(np.float64), minlength=len(self.starts) - 1
        ).astype(np.int64)

    def ending_in(self, points: str) -> BoolArray:
        """(L,) whether a line's last character is one of these."""
        last_points = self.characters.points[self.ends - 1]
        return np.isin(last_points, np.fromiter(map(ord, points), np.uint32, len(points)))

    def count_positions(self, positions: IntArray) -> IntArray:
        """(L,) the number of `positions` (ascending, in `characters.points`) in each line."""
        return np.searchsorted(positions, self.ends) - np.searchsorted(positions, self.begins)


def lines_of(characters: Characters) -> Lines:
    """Find the lines of the texts."""
    points, offsets = characters.points, characters.offsets
    ends = np.flatnonzero(points == LINE_END)
    begins = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    texts = characters.text_of(begins)
    # The index in the batch of the first line of each text.
    firsts = np.searchsorted(begins, offsets[:-1])
    numbers = np.arange(len(begins)) - (firsts[texts] if len(begins) else 0)
    visible = np.flatnonzero((characters.classes & SPACE) == 0)
    first_visible, stop = np.searchsorted(visible, begins), np.searchsorted(visible, ends)
    nonblank = stop > first_visible
    begins, ends = visible[first_visible[nonblank]], visible[stop[nonblank] - 1] + 1
    return Lines(characters, begins, ends, np.searchsorted(begins, offsets), numbers[nonblank])


def find_repeats(hashes: UintArray, texts: IntArray) -> BoolArray:
    """Return whether an equal hash occurs earlier in the same text.

    Args:
        hashes: (L,) a hash of each item.
        texts: (L,) the index of the text of each item, ascending.
    """
    order = np.lexsort((hashes, texts))
    repeated = np.zeros(len(hashes), np.bool_)
    # lexsort is stable: the first of equal ones stays false.
    repeated[order[~is_first(hashes[order], texts[order])]] = True
    return repeated


LAST_MARK = 1 + max(map(ord, TERMINALS))


@functools.cache
def _kinds_of_marks() -> NDArray[np.uint8]:
    """Return by code point: 1 ends a sentence before white space, 2 ends one in scripts without
    spaces, 3 may follow either; 0 others, and all from `LAST_MARK` on."""
    kinds = np.zeros(LAST_MARK + 1, np.uint8)
    for number, members in enumerate((SPACED_TERMINALS, WIDE_TERMINALS, CLOSERS), 1):
        kinds[[ord(c) for c in members]] = number
    return kinds


def sentences_of(lines: Lines) -> IntArray:
    """Return (L,) the number of sentences of each line. A sentence ends in `.`, `!`, `?` or the
    like, with following quotes and brackets, before white space, or at the end of the line."""
    points, classes = lines.characters.points, lines.characters.classes
    kinds = _kinds_of_marks()[np.minimum(points, LAST_MARK)]
    marks = np.flatnonzero((kinds == 1) | (kinds == 2))
    if not marks.size:
        return np.ones(len(lines.begins), np.int64)
    # The position after the closers of each mark, and whether another mark follows directly.
    other_points = np.flatnonzero(kinds != 3)
    after = other_points[np.searchsorted(other_points, marks, "right")]
    is_stop = (kinds[marks] == 2) | ((classes[after] & SPACE) != 0)
    is_stop &= (kinds[after] != 1) & (kinds[after] != 2)
    stops, after = marks[is_stop], after[is_stop]
    if not stops.size:
        return np.ones(len(lines.begins), np.int64)
    # A line whose last sentence has no final mark has one sentence more.
    last_stops = np.maximum(np.searchsorted(stops, lines.ends) - 1, 0)
    inside = (stops[last_stops] >= lines.begins) & (stops[last_stops] < lines.ends)
    return lines.count_positions(stops) + ~(inside & (after[last_stops] >= lines.ends))


def passages_of(texts: Sequence[str], most: int) -> tuple[list[bytes], IntArray]:
    """Return at most `most` passages of each text, evenly spread, as UTF-8, and (P,) the index of
    the text of each. A passage of about `PASSAGE_BYTES` ends at a line end or blank if it can."""
    encoded = [_plain(text).encode("utf-8", "replace") for text in texts]
    joined = b"".join(encoded)
    data = np.frombuffer(joined, np.uint8)
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    starts = starts_of(sizes)
    counts = np.maximum((sizes + HALF_PASSAGE) // PASSAGE_BYTES - 1, 0)  # of cuts
    owners = np.repeat(np.arange(len(texts)), counts)
    targets = starts[owners] + ranges(np.ones_like(counts), counts) * PASSAGE_BYTES
    feeds = np.concatenate([[-FAR], np.flatnonzero(data == 10), [FAR]])
    right = np.searchsorted(feeds, targets)
    cuts = np.where(
        targets - feeds[right - 1] <= feeds[right] - targets, feeds[right - 1], feeds[right]
    )
    for candidates in (np.flatnonzero(data == 32), np.flatnonzero((data & 0xC0) != 0x80) - 1):
        is_far = np.abs(cuts - targets) >= HALF_PASSAGE
        breaks = np.concatenate([candidates, [FAR]])
        cuts[is_far] = breaks[np.searchsorted(candidates, targets[is_far])]
    begins = np.concatenate([starts[:-1], cuts + 1])
    owners = np.concatenate([np.arange(len(texts)), owners])
    order = np.lexsort((begins, owners))
    begins, owners = begins[order], owners[order]
    stops = np.concatenate([begins[1:], starts[-1:]])
    # At most `most` of them, from the first to the last in even steps, in whole numbers.
    sample_sizes = np.minimum(counts + 1, most)
    steps = ranges(np.zeros_like(counts), sample_sizes) * np.repeat(counts, sample_sizes)
    steps //= np.repeat(np.maximum(sample_sizes - 1, 1), sample_sizes)
    chosen = steps + np.repeat(starts_of(counts + 1)[:-1], sample_sizes)
    pairs = zip(begins[chosen].tolist(), stops[chosen].tolist(), strict=True)
    return [joined[begin:stop] for begin, stop in pairs], owners[chosen]


def _plain(text: str) -> str:
    """Normalise to NFC, and convert text in capitals alone to lower case, for language models."""
    if text.isupper():
        text = text.lower()
    return text if text.isascii() else unicodedata.normalize("NFC", text)
