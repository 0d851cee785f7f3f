"""The lines of many texts as arrays: where they begin and end, which are equal.

A line is the text between two line feeds without outer white space. Blank lines are left out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.characters import LINE_END, SPACE, Characters, section_hashes


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
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """(B,) the number of lines of each text."""
        return np.diff(self.starts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(L,) the number of characters of each line."""
        return self.ends - self.begins

    @functools.cached_property
    def texts(self) -> NDArray[np.int64]:
        """(L,) the index of the text of each line."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    @functools.cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """(L,) a hash of each line, equal for lines with equal characters."""
        return section_hashes(self.characters.sums, self.begins, self.ends)

    def total(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        """(B,) the sum of `values`, (L,), over the lines of each text."""
        return np.bincount(
            self.texts, values.astype(np.float64), minlength=len(self.starts) - 1
        ).astype(np.int64)

    def ending_in(self, points: str) -> NDArray[np.bool_]:
        """(L,) whether a line's last character is one of these."""
        last_points = self.characters.points[self.ends - 1]
        return np.isin(last_points, np.fromiter(map(ord, points), np.uint32, len(points)))

    def count_positions(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
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
    begins, ends = _strip(characters, begins, ends)
    nonblank = ends > begins
    begins, ends = begins[nonblank], ends[nonblank]
    return Lines(characters, begins, ends, np.searchsorted(begins, offsets), numbers[nonblank])


def _strip(
    characters: Characters, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Move `begins` and `ends` past outer white space; a blank line becomes empty."""
    classes = characters.classes
    padded = (classes[begins] & SPACE) != 0
    padded |= (classes[ends - 1] & SPACE) != 0
    # Few lines have outer white space: search the next visible characters for these alone.
    candidates = np.flatnonzero(padded | (begins == ends))
    if not candidates.size:
        return begins, ends
    begins, ends = begins.copy(), ends.copy()
    visible = np.flatnonzero((classes & SPACE) == 0)
    begin = np.searchsorted(visible, begins[candidates])
    end = np.searchsorted(visible, ends[candidates])
    nonblank = end > begin
    ends[candidates[~nonblank]] = begins[candidates[~nonblank]]
    begin, end, candidates = begin[nonblank], end[nonblank], candidates[nonblank]
    begins[candidates], ends[candidates] = visible[begin], visible[end - 1] + 1
    return begins, ends


def find_repeats(hashes: NDArray[np.uint64], texts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether an equal hash occurs earlier in the same text.

    Args:
        hashes: (L,) a hash of each item.
        texts: (L,) the index of the text of each item, ascending.
    """
    if not hashes.size:
        return np.zeros(0, np.bool_)
    order = np.lexsort((hashes, texts))
    equal = (hashes[order][1:] == hashes[order][:-1]) & (texts[order][1:] == texts[order][:-1])
    repeated = np.zeros(len(hashes), np.bool_)
    repeated[order[1:][equal]] = True  # lexsort is stable: the first of equal ones stays false
    return repeated
