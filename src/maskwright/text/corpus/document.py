"""Document: the input and output of every step of the corpus.

A step is `Iterable[Document] -> Iterator[Document]`. A document never has empty text, never a NUL
and never a lone surrogate, so it can always be encoded as UTF-8.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from maskwright.base.errors import DataError, near

EVERY = "*"
LISTED = 20
ENCODER, STRICT = (
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=allow)
    for allow in (True, False)
)
MOST_COLUMNS = 1000  # names that are remembered for a message


class JsonText(str):
    """The JSON text of a value that was not a text."""


def as_text(value: Any) -> str | None:
    """Convert a value to the text of a note; None for null and NaN."""
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


def note_columns(names: Collection[str], columns: Iterable[str], column: str) -> list[str]:
    """Return those of `columns` to keep as notes, in their order and without the text column."""
    every = EVERY in names
    return [name for name in columns if name != column and (every or name in names)]


class MissingColumns:
    """The requested columns that have not occurred in any row so far."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names) - {EVERY}
        self._columns: dict[str, None] = {}

    def meet(self, columns: Collection[str]) -> None:
        """Record that a row, or a table, has these columns."""
        if self.names:
            self.names.difference_update(columns)
            if len(self._columns) < MOST_COLUMNS:
                self._columns.update(dict.fromkeys(columns))

    def refuse(self, where: str | None) -> None:
        """Check that all requested columns have occurred.

        Raises:
            DataError: a column has not; the error suggests near names.
        """
        if self.names:
            raise missing_column(
                sorted(self.names)[0], list(self._columns), where, "no row has the column"
            )


def missing_column(
    name: str, columns: Collection[str], where: str | None, message: str = "the column is missing"
) -> DataError:
    """Return the error for a missing column that was requested as a note."""
    listed = ", ".join(list(columns)[:LISTED])
    return DataError(
        message,
        where=where,
        found=f"the columns {listed}" if listed else "no columns",
        wanted=f"{name!r}, to be kept with the text",
        do=f"correct its name; {near(name, columns)}" if listed else "leave it out",
    )


def refuse_duplicates(names: Iterable[str], where: str) -> None:
    """Check that column names are unique.

    Raises:
        DataError: a name occurs twice.
    """
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            "two columns have the same name",
            where=where,
            found=repr(duplicates[0]),
            wanted="every name once",
            do="rename one of the columns",
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its origin.

    Attributes:
        text: the text; not blank.
        source: the file (as the user named it) or package it was read from.
        id: `path:line` for rows and paragraphs, `path#row` where a file has no lines.
        notes: the values of further columns, by name.
    """

    text: str
    source: str
    id: str
    notes: dict[str, str] = field(default_factory=dict, hash=False)
