"""The words of many texts as arrays, without a Python loop over words.

A word is a run of letters, digits and combining marks, with an apostrophe between two of them; in
scripts without spaces (Han, Kana, Thai, Lao, Khmer, Burmese) every letter is one, with its marks.
Case is ignored. A word is represented by a 64-bit hash of its characters: a polynomial in the odd
number `BASE` modulo 2**64, mixed by the finaliser of SplitMix64.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE = 256
HALF = SIZE // 2
FAR = 1 << 62


def passages_of(texts: Sequence[str], most: int) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return at most `most` passages of each text, evenly spread, as UTF-8, and (P,) the index of
    the text of each. A passage has about `SIZE` bytes and ends at a line end or blank if it can."""
    encoded = [_plain(text).encode("utf-8", "replace") for text in texts]
    joined = b"".join(encoded)
    data = np.frombuffer(joined, np.uint8)
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(sizes)
    counts = np.maximum((sizes + HALF) // SIZE - 1, 0)  # of cuts
    owners = np.repeat(np.arange(len(texts)), counts)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    targets = ends[owners] - sizes[owners] + numbers * SIZE
    feeds = np.concatenate([[-FAR], np.flatnonzero(data == 10), [FAR]])
    right = np.searchsorted(feeds, targets)
    cuts = np.where(
        targets - feeds[right - 1] <= feeds[right] - targets, feeds[right - 1], feeds[right]
    )
    for candidates in (np.flatnonzero(data == 32), np.flatnonzero((data & 0xC0) != 0x80) - 1):
        is_far = np.abs(cuts - targets) >= HALF
        breaks = np.concatenate([candidates, [FAR]])
        cuts[is_far] = breaks[np.searchsorted(candidates, targets[is_far])]
    begins = np.concatenate([ends - sizes, cuts + 1])
    owners = np.concatenate([np.arange(len(texts)), owners])
    order = np.lexsort((begins, owners))
    begins, owners = begins[order], owners[order]
    stops = np.concatenate([begins[1:], ends[-1:]])
    chosen = _spread(counts + 1, most)
    begins, stops, owners = begins[chosen], stops[chosen], owners[chosen]
    pairs = zip(begins.tolist(), stops.tolist(), strict=True)
    return [joined[begin:stop] for begin, stop in pairs], owners


def _spread(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the indices of at most `most` of the `counts` passages of each text, ascending."""
    sample_sizes = np.minimum(counts, most)
    owners = np.repeat(np.arange(len(counts)), sample_sizes)
    numbers = np.arange(len(owners)) - np.repeat(
        np.cumsum(sample_sizes) - sample_sizes, sample_sizes
    )
    # From 0 to count - 1 in even steps, in whole numbers.
    positions = numbers * (counts[owners] - 1) // np.maximum(sample_sizes[owners] - 1, 1)
    return (np.cumsum(counts) - counts)[owners] + positions


def _plain(text: str) -> str:
    """Normalise to NFC, and convert text in capitals alone to lower case, for language models."""
    if text.isupper():
        text = text.lower()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def group_equal(values: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
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
    ordered = values[order]
    is_first = np.ones(size, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    packed >>= bits
    if (is_first[1:] & (packed[1:] == packed[:-1])).any():
        # Two hashes differ only in the lowest bits.
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        is_first[1:] = ordered[1:] != ordered[:-1]
    return order, is_first


BASE = np.uint64(0x9E3779B97F4A7C15)
MARKS = 4  # marks after a letter that are skipped one by one
BLOCK = 1 << 16  # characters that are hashed at once
OTHER, SPACE, LETTER, SINGLE, MARK, APOSTROPHE = range(6)
# Scripts that write no spaces between words: Thai, Lao, Burmese, Khmer, Kana, Bopomofo, Han.
UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x312F), (0x31A0, 0x31FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)


@dataclass(frozen=True)
class Words:
    """W words of B texts.

    Attributes:
        hashes: (W,) uint64, equal for equal words.
        begins, ends: (W,) int64, positions of characters within the text of the word.
        starts: (B + 1,) int64; the words of text b are `starts[b]:starts[b + 1]`.
    """

    hashes: NDArray[np.uint64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """(B,) the number of words of each text."""
        return np.diff(self.starts)

    @functools.cached_property
    def texts(self) -> NDArray[np.int64]:
        """(W,) the index of the text of each word."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def of(self, chosen: NDArray[np.bool_]) -> Words:
        """The words of the texts where `chosen`, (B,), is true."""
        counts = self.counts
        in_text = np.repeat(chosen, counts)
        starts = np.concatenate([[0], np.cumsum(counts[chosen])])
        return Words(self.hashes[in_text], self.begins[in_text], self.ends[in_text], starts)

    def shingles(self, size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hash every `size` consecutive words of each text: max(0, n - size + 1) for n words.

        Returns:
            (S,) uint64 hashes, and (B + 1,) the index of the first shingle of each text.
        """
        counts = np.maximum(self.counts - size + 1, 0)
        starts = np.concatenate([[0], np.cumsum(counts)])
        # The first word of each shingle.
        first_words = np.arange(starts[-1]) + np.repeat(self.starts[:-1] - starts[:-1], counts)
        combined = np.zeros(len(first_words), np.uint64)
        with np.errstate(over="ignore"):
            for offset in range(size):
                combined = combined * BASE + self.hashes[first_words + offset]
        return mix(combined), starts


def words_of(texts: Sequence[str]) -> Words:
    """Find the words of `texts`."""
    points, offsets = _points(texts), _offsets(texts)
    begins, ends = _edges(points)
    hashes = _hashes(points, begins, ends)
    starts = np.searchsorted(begins, offsets)
    origins = np.repeat(offsets[:-1], np.diff(starts))
    return Words(hashes, begins - origins, ends - origins, starts)


def count_words(texts: Sequence[str]) -> int:
    """Return the total number of words of `texts`."""
    return len(_edges(_points(texts))[0])


def word_counts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (B,) the number of words of each text."""
    return np.diff(np.searchsorted(_edges(_points(texts))[0], _offsets(texts)))


def _points(texts: Sequence[str]) -> NDArray[np.uint32]:
    """Return the code points of the texts, each followed by a blank, which separates words."""
    joined = " ".join(texts) + " "
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)


def _offsets(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (B + 1,) the position of each text in `_points`."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.concatenate([[0], np.cumsum(lengths + 1)])


def _edges(points: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (W,) begins and (W,) ends of the words in `points`, whose last element is a blank."""
    kinds = look_up(points, _tables()[0])
    in_word = kinds == LETTER
    single, marks = kinds == SINGLE, kinds == MARK
    in_word |= single
    in_word |= marks
    apostrophes = np.flatnonzero(kinds == APOSTROPHE)
    if apostrophes.size:
        apostrophes = apostrophes[(apostrophes > 0) & (apostrophes < len(kinds) - 1)]
        joins = in_word[apostrophes - 1] & in_word[apostrophes + 1]
        joins &= ~(single[apostrophes - 1] | single[apostrophes + 1])
        in_word[apostrophes[joins]] = True
    if single.any():
        return _edges_by_letter(in_word, single, marks)
    edges = np.flatnonzero(in_word[1:] != in_word[:-1]) + 1
    edges = np.concatenate([[0], edges]) if in_word[0] else edges
    return edges[::2].copy(), edges[1::2].copy()


def _edges_by_letter(
    inside: NDArray[np.bool_], single: NDArray[np.bool_], marks: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begins and ends as `_edges`, where letters are words; (N,) each: whether a character
    is inside a word, such a letter of a script without spaces, a combining mark."""
    opening = inside.copy()
    opening[1:] &= ~inside[:-1]
    # A new word begins after such a letter and its marks; the last character is a blank.
    letters = np.flatnonzero(single)
    after = letters + 1
    for _ in range(MARKS):
        after += marks[after]
    if marks[after].any():
        unmarked = np.flatnonzero(~marks)
        after = unmarked[np.searchsorted(unmarked, after)]
    opening[letters] = True
    opening[after] = inside[after]
    closing = inside.copy()
    closing[:-1] &= ~inside[1:] | opening[1:]
    return np.flatnonzero(opening), np.flatnonzero(closing) + 1


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of SplitMix64, variant 13: each input bit affects each output bit."""
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def in_unspaced_script(points: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return whether each code point is a letter of a script without spaces between words."""
    is_unspaced = points >= UNSPACED[0][0]
    is_unspaced[is_unspaced] = _tables()[0][points[is_unspaced]] == SINGLE
    return is_unspaced


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


def case_fold(points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Map each code point to a number that is equal for both cases of a letter."""
    above = np.flatnonzero(points > 0xFF)
    if 2 * len(above) > len(points):
        return _tables()[1][points]
    low = points.astype(np.uint8).tobytes().translate(_first_folded())
    folded = np.frombuffer(low, np.uint8).astype(np.uint64)
    folded += np.uint64(1)
    folded[above] = _tables()[1][points[above]]
    return folded


# ------------------------------------------------------------------------------ tables
@functools.cache
def categories() -> NDArray[np.str_]:
    """Return the Unicode category of every code point; "" for those after the last ideograph."""
    names = np.zeros(sys.maxunicode + 1, "U2")
    for block in (range(0x323B0), range(0xE0100, 0xF0000)):
        names[block.start : block.stop] = list(map(unicodedata.category, map(chr, block)))
    return names


@functools.cache
def spaces() -> NDArray[np.int64]:
    """Return the code points that are white space."""
    return np.array([point for point in range(0x10000) if chr(point).isspace()])


@functools.cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Return, for every code point, its kind (`LETTER`, ...) and its number for `case_fold`."""
    size = sys.maxunicode + 1
    classes, folded = np.zeros(size, np.uint8), np.arange(1, size + 1, dtype=np.uint64)
    classes[spaces()] = SPACE
    major = categories().astype("U1")
    letters = np.flatnonzero((major == "L") | (major == "N"))
    classes[letters] = LETTER
    classes[major == "M"] = MARK
    lower = [chr(point).lower() for point in letters.tolist()]
    # Only the dotted capital I of Turkish has two characters in lower case, the first an i.
    folded[letters] = [ord(low[0]) + 1 for low in lower]
    for point in (0x27, 0x2019):
        classes[point] = APOSTROPHE
        folded[point] = 0x28
    for block_begin, block_end in UNSPACED:
        block = classes[block_begin : block_end + 1]
        block[block == LETTER] = SINGLE
    return classes, folded


@functools.cache
def _first_folded() -> bytes:
    """Return the number for `case_fold`, less 1, of the first 256 code points."""
    return (_tables()[1][:256] - np.uint64(1)).astype(np.uint8).tobytes()


def _hashes(
    points: NDArray[np.uint32], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return (W,) the hash of each word: the sum of case_fold(character p) * `BASE` ** p, mixed.
    Computed from prefix sums, in blocks that fit the cache."""
    word_hashes = np.empty(len(begins), np.uint64)
    first_word = 0
    while first_word < len(begins):
        origin = int(begins[first_word])
        end_word = max(first_word + 1, int(np.searchsorted(ends, origin + BLOCK, "right")))
        size = int(ends[end_word - 1]) - origin
        powers, inverse = powers_of_base(max(BLOCK, 1 << (size - 1).bit_length()))
        sums = np.zeros(size + 1, np.uint64)
        with np.errstate(over="ignore"):
            numbers = case_fold(points[origin : origin + size])
            np.multiply(numbers, powers[:size], out=numbers)
            np.cumsum(numbers, out=sums[1:])
            words = slice(first_word, end_word)
            offsets = begins[words] - origin
            # BASE is odd, so it has an inverse, whose powers shift each sum to position 0.
            word_hashes[words] = (sums[ends[words] - origin] - sums[offsets]) * inverse[offsets]
        first_word = end_word
    return mix(word_hashes)


@functools.lru_cache(maxsize=2)
def powers_of_base(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first `count` powers of `BASE`, and of its inverse, modulo 2**64."""
    power_tables = []
    for base in (int(BASE), pow(int(BASE), -1, 1 << 64)):
        factors = np.full(count, base, np.uint64)
        factors[0] = 1
        with np.errstate(over="ignore"):
            power_tables.append(np.multiply.accumulate(factors))
    return power_tables[0], power_tables[1]
