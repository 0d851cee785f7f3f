"""Notes: the values of further columns that stay with a text, as texts.

A text is kept as it is; numbers, booleans, lists and objects as compact JSON, in a text that knows
that it is JSON (`JsonText`), so that `curate` writes the value again and not its text. Null is no
note, nor is an empty field of CSV, which has no other way to write that there is no value. Plain
text has no columns, so its documents have no notes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from typing import Any

from maskwright.errors import DataError, near

EVERY = "*"
LISTED = 20
ENCODER, STRICT = (
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=allow)
    for allow in (True, False)
)
MOST_COLUMNS = 1000  # names that are remembered for a message


class JsonText(str):
    """The text of a value that was no text."""


def as_text(value: Any) -> str | None:
    """A value as the text of a note; None for null and NaN."""
    if type(value) is str:
        return value
    if value is None or (type(value) is float and math.isnan(value)):
        return None
    if type(value) in (bool, int, float, list, dict):
        try:
            return JsonText(STRICT.encode(value))
        except ValueError:  # NaN or infinities
            return ENCODER.encode(value)
    return str(value)  # dates and times as ISO 8601, decimals in digits


def chosen(names: Collection[str], columns: Iterable[str], column: str) -> list[str]:
    """Which of the `columns` of a table are kept, in their order; never that of the text."""
    every = EVERY in names
    return [name for name in columns if name != column and (every or name in names)]


class Unmet:
    """The columns asked for that no row has had so far."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names) - {EVERY}
        self._columns: dict[str, None] = {}

    def meet(self, columns: Collection[str]) -> None:
        """Note that a row, or a table, has these columns."""
        if self.names:
            self.names.difference_update(columns)
            if len(self._columns) < MOST_COLUMNS:
                self._columns.update(dict.fromkeys(columns))

    def refuse(self, where: str | None) -> None:
        """Refuse columns that were not met.

        Raises:
            DataError: with near names.
        """
        if self.names:
            raise missing(
                sorted(self.names)[0], list(self._columns), where, "no row has the column"
            )


def missing(
    name: str, columns: Collection[str], where: str | None, what: str = "the column is missing"
) -> DataError:
    """The error for a column that is to be kept with the text and is not there."""
    listed = ", ".join(list(columns)[:LISTED])
    return DataError(
        what,
        where=where,
        found=f"the columns {listed}" if listed else "no columns",
        wanted=f"{name!r}, to be kept with the text",
        do=f"correct its name; {near(name, columns)}" if listed else "leave it out",
    )
