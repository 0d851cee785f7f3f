"""Count the sentences of lines by punctuation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.characters import SPACE
from maskwright.text.curate.arrays.lines import Lines

# Ends of a sentence before white space, ends of one in scripts without spaces, what may follow.
STOPS = ".!?…։؟۔।॥"
WIDE_STOPS = "。！？｡"
CLOSERS = "\"'”’»›“‘)]}）」』*_"
# Last characters of a line of prose.
TERMINALS = STOPS + WIDE_STOPS + "\"'”’»"


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
    # A line whose last sentence has no final mark has one sentence more.
    last_stops = np.maximum(np.searchsorted(stops, lines.ends) - 1, 0)
    if not stops.size:
        return np.ones(len(lines.begins), np.int64)
    inside = (stops[last_stops] >= lines.begins) & (stops[last_stops] < lines.ends)
    return lines.count_positions(stops) + ~(inside & (after[last_stops] >= lines.ends))
