"""The words of many texts as arrays, without a Python loop over words.

A word is a run of letters, digits and combining marks, with an apostrophe between two of them; in
scripts without spaces (Han, Kana, Thai, Lao, Khmer, Burmese) every letter is one, with its marks.
Case is ignored. A word is represented by a 64-bit hash of its characters.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.characters import (
    ALPHABETIC,
    APOSTROPHES,
    DIGIT,
    MARK,
    UNSPACED,
    Characters,
    case_fold,
    characters_of,
)
from maskwright.text.curate.arrays.hashes import BASE, SpanHashes, mix, ranges, starts_of, true_runs

MARKS = 4  # marks after a letter that are skipped one by one


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

    @functools.cached_property
    def spans(self) -> SpanHashes:
        """Hashes of spans of words."""
        return SpanHashes(self.hashes)

    def of(self, chosen: NDArray[np.bool_]) -> Words:
        """The words of the texts where `chosen`, (B,), is true."""
        in_text = np.repeat(chosen, self.counts)
        starts = starts_of(self.counts[chosen])
        return Words(self.hashes[in_text], self.begins[in_text], self.ends[in_text], starts)

    def shingles(self, size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
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


def count_words(texts: Sequence[str]) -> int:
    """Return the total number of words of texts."""
    return int(word_counts(texts).sum())


def word_counts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (B,) the number of words of each text."""
    characters = characters_of(texts)
    return np.diff(np.searchsorted(_edges(characters)[0], characters.offsets))


def _edges(characters: Characters) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    inside: NDArray[np.bool_], single: NDArray[np.bool_], marks: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begins and ends as `_edges`, where letters are words; (N,) flags of characters: inside
    a word, a letter of a script without spaces, a combining mark."""
    opening = inside.copy()
    opening[1:] &= ~inside[:-1]
    # A new word begins after such a letter and its marks; the last character is a line end.
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
