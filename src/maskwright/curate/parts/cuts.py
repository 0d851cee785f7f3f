"""Texts without some of their lines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.lines import Lines
from maskwright.curate.parts.outcome import Change

MOST_NAMED = 5


def without_lines(texts: Sequence[str], lines: Lines, cut: NDArray[np.bool_]) -> list[str]:
    """The texts without the lines where `cut`, (L,), is true; those that lose none are the same.

    Blank lines stay where they separate what is left, and go at both ends; those before and behind
    lines that were cut are not more than those before.
    """
    found = list(texts)
    for place in np.unique(lines.texts[cut]).tolist():
        mine = slice(lines.starts[place], lines.starts[place + 1])
        dropped = set(lines.numbers[mine][cut[mine]].tolist())
        rows = texts[place].split("\n")
        kept: list[str] = []
        blanks, behind_cut = 0, True  # since the last line that is left
        for number, row in enumerate(rows):
            if number in dropped:
                behind_cut = True
            elif row.strip():
                kept += [*[""] * blanks, row] if kept else [row]
                blanks, behind_cut = 0, False
            elif not (behind_cut and blanks):
                blanks += 1
        found[place] = "\n".join(kept)
    return found


def line_changes(lines: Lines, rule: str, cut: NDArray[np.bool_]) -> list[Change]:
    """For each text that loses lines, how many and which, numbered from 1."""
    changes = []
    places = np.flatnonzero(cut)
    texts = lines.texts[places]
    for begin, end in _runs(texts):
        numbers = (lines.numbers[places[begin:end]] + 1).tolist()
        named = ", ".join(str(n) for n in numbers[:MOST_NAMED])
        rest = len(numbers) - MOST_NAMED
        where = f"line {named}" if len(numbers) == 1 else f"lines {named}"
        where += f" and {rest} more" if rest > 0 else ""
        changes.append(Change(int(texts[begin]), rule, len(numbers), where))
    return changes


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Begin and end of each run of equal values."""
    if not values.size:
        return []
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(edges))
