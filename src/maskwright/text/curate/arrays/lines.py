"""The lines, sentences and passages of many texts as arrays.

A line is the text between two line feeds without outer white space. Blank lines are left out.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.characters import LINE_END, SPACE, Characters
from maskwright.text.curate.arrays.hashes import is_first, ranges, starts_of

# Ends of a sentence before white space, ends of one in scripts without spaces, what may follow.
STOPS = ".!?…։؟۔।॥"
WIDE_STOPS = "。！？｡"
CLOSERS = "\"'”’»›“‘)]}）」』*_"
# Last characters of a line of prose.
TERMINALS = STOPS + WIDE_STOPS + "\"'”’»"
SIZE = 256  # bytes of a passage
HALF = SIZE // 2
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
        return self.characters.hashes.of(self.begins, self.ends)

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
    order = np.lexsort((hashes, texts))
    repeated = np.zeros(len(hashes), np.bool_)
    # lexsort is stable: the first of equal ones stays false.
    repeated[order[~is_first(hashes[order], texts[order])]] = True
    return repeated


def sentences_of(lines: Lines) -> NDArray[np.int64]:
    """Return (L,) the number of sentences of each line. A sentence ends in `.`, `!`, `?` or the
    like, with following quotes and brackets, before white space, or at the end of the line."""
    points, classes = lines.characters.points, lines.characters.classes
    marks_of = np.zeros(0x10000, np.uint8)
    for number, members in enumerate((STOPS, WIDE_STOPS, CLOSERS), 1):
        marks_of[[ord(c) for c in members]] = number
    kinds = np.where(points < 0x10000, marks_of[np.minimum(points, 0xFFFF)], 0)
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


def passages_of(texts: Sequence[str], most: int) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return at most `most` passages of each text, evenly spread, as UTF-8, and (P,) the index of
    the text of each. A passage has about `SIZE` bytes and ends at a line end or blank if it can."""
    encoded = [_plain(text).encode("utf-8", "replace") for text in texts]
    joined = b"".join(encoded)
    data = np.frombuffer(joined, np.uint8)
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    starts = starts_of(sizes)
    counts = np.maximum((sizes + HALF) // SIZE - 1, 0)  # of cuts
    owners = np.repeat(np.arange(len(texts)), counts)
    targets = starts[owners] + ranges(np.ones_like(counts), counts) * SIZE
    feeds = np.concatenate([[-FAR], np.flatnonzero(data == 10), [FAR]])
    right = np.searchsorted(feeds, targets)
    cuts = np.where(
        targets - feeds[right - 1] <= feeds[right] - targets, feeds[right - 1], feeds[right]
    )
    for candidates in (np.flatnonzero(data == 32), np.flatnonzero((data & 0xC0) != 0x80) - 1):
        is_far = np.abs(cuts - targets) >= HALF
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
