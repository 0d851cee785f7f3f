"""Cells of a row that have to be a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.errors import DataError
from maskwright.labelled.columns.contents import is_empty, value_of
from maskwright.labelled.formats.rows import Row


def text_of(row: Row, name: str) -> str:
    """The text in a column of `row`; numbers are texts as they are written.

    Raises:
        DataError: nothing, a value of another type, or blanks only.
    """
    value = value_of(row, name)
    if type(value) in (int, float):
        value = str(value)
    if type(value) is not str:
        raise missing(row, name, "text", "a text")
    if is_empty(value):
        raise DataError(
            "the text is empty",
            where=f"{row.where}, column {name!r}",
            found=repr(value),
            wanted="a text",
            do="write one, or take the row out (--read on_bad=skip drops and counts it)",
        )
    return value


def text_in(row: Row, names: Sequence[str]) -> str:
    """The text in one column of `row`, or in several, of which some may be empty.

    Raises:
        DataError: as `text_of`; all are empty.
    """
    filled = [name for name in names if not is_empty(value_of(row, name))]
    return joined(text_of(row, name) for name in filled or names[:1])


def joined(texts: Iterable[str]) -> str:
    """One text of several, one behind the other."""
    return " ".join(texts)


def joined_or_whole(values: Sequence[Any]) -> Any:
    """One text of texts and numbers, what is empty left out; or the first value that is
    neither."""
    filled = [v for v in values if not is_empty(v) and not (type(v) is float and math.isnan(v))]
    unreadable = [value for value in filled if type(value) not in (str, int, float)]
    return unreadable[0] if unreadable else joined(map(str, filled))


def missing(row: Row, name: str, role: str, wanted: str) -> DataError:
    """The error for a cell that holds nothing, or a value of another type."""
    value = value_of(row, name)
    return DataError(
        f"the {role} is missing" if value is None else f"the {role} is of another type",
        where=f"{row.where}, column {name!r}",
        found="nothing" if value is None else repr(value),
        wanted=wanted,
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )
