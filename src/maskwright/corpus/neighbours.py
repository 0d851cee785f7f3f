"""Rows of a table next to a quoted field of several lines: are these lines rows, too?

A quote that is a plain sign opens a field, which the next such quote closes many rows later:

    "the house was cold said she,neg            one row of 15 lines, and a class of 14 rows is lost
    …
    the lake was deep he said",neg

The columns of the rows around it distinguish this from a text of several lines.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

from maskwright.errors import DataError

Parsed = tuple[list[str], int, int]
"""Fields of a row, numbers of its first and last line."""
BEFORE = AHEAD = 200  # rows
ENOUGH = 4  # rows, before what they hold is known
LONGEST_NAME = 40
NUMBER = re.compile(r"\s*([-+]?\d+([.,]\d+)?)?\s*")
# So many lines, all of the width of a row, where columns of texts tell no more than that.
MANY_NUMBERED, MANY = 3, 4


def lines_of(row: Sequence[str], separator: str) -> list[list[str]]:
    """The fields that each line of a row would have if quotes did not count."""
    lines: list[list[str]] = [[]]
    for field in row:
        first, *rest = field.split("\n")
        lines[-1] += first.split(separator) if rest else [field]
        lines += [part.split(separator) for part in rest]
    return lines


class Neighbours:
    """Iterates over rows; keeps those before the current one, and looks ahead on request."""

    def __init__(self, rows: Iterator[Parsed], width: int) -> None:
        self.rows, self.width = rows, width
        self.before: deque[list[str]] = deque(maxlen=BEFORE)
        self.ahead: deque[Parsed] = deque()
        self.failed: DataError | None = None

    def __iter__(self) -> Neighbours:
        return self

    def __next__(self) -> Parsed:
        if self.ahead:
            found = self.ahead.popleft()
        elif self.failed is not None:
            raise self.failed
        else:
            found = next(self.rows)
        if found[1] == found[2] and len(found[0]) == self.width:
            self.before.append(found[0])
        return found

    def rows_among(self, lines: Sequence[Sequence[str]]) -> int:
        """The number of lines that look like rows; 0 if that may be chance, or in a table of one
        column, in which each line looks like a row."""
        wide = [line for line in lines if len(line) == self.width]
        if self.width < 2 or len(wide) < 2:
            return 0
        self._look_ahead()
        others = [
            row for row, first, last in self.ahead if first == last and len(row) == self.width
        ]
        known: list[Sequence[str]] = [*self.before, *others]
        if len(known) < ENOUGH:
            known += wide
        columns = [[row[place] for row in known] for place in range(self.width)]
        names = {place: {*values, ""} for place, values in enumerate(columns) if _are_names(values)}
        numbers = [
            place
            for place, values in enumerate(columns)
            if place not in names and all(map(NUMBER.fullmatch, values))
        ]
        alike = sum(
            all(line[place] in values for place, values in names.items())
            and all(NUMBER.fullmatch(line[place]) for place in numbers)
            and (any(line[place].strip() for place in (*names, *numbers)) or not (names or numbers))
            for line in wide
        )
        if names:
            return alike if alike > 1 else 0
        least = MANY_NUMBERED if numbers else MANY
        return alike if alike == len(lines) >= least else 0

    def _look_ahead(self) -> None:
        while len(self.ahead) < AHEAD and self.failed is None:
            try:
                self.ahead.append(next(self.rows))
            except StopIteration:
                return
            except DataError as error:  # raised when its row is due
                self.failed = error


def _are_names(values: Sequence[str]) -> bool:
    """Whether a column has few values that repeat, as labels do."""
    distinct = set(values)
    few = len(distinct) <= max(2, len(values) // 4)
    return few and all(len(value) <= LONGEST_NAME for value in distinct)
