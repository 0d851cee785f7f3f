"""Cells that have to be a text, a label, or a number; what is none is refused with its line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.errors import DataError, shorten
from maskwright.labelled.columns.contents import CODE, NoList, is_empty, value_of
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.formats.whole_number import as_integer

Label = int | str


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


def spelled(value: Any, row: Row, column: str, numbers: bool, *, words: bool = False) -> Label:
    """A label as one of two types: a whole number, or a name just as it stands there.

    Args:
        value: what stands in `column` of `row`.
        numbers: whether labels are whole numbers; `words`: whether names may stand for them.

    Raises:
        DataError: empty, a fraction, or nothing that can be a label.
    """
    if is_empty(value):
        raise DataError(
            "the label is empty",
            where=f"{row.where}, column {column!r}",
            found="null" if value is None else repr(value),
            wanted="a label in every row",
            do="label the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if type(value) is NoList:
        raise DataError(
            "the cell is no list",
            where=f"{row.where}, column {column!r}",
            found=repr(shorten(value)),
            wanted='a list such as ["a", "b"], as in the other rows',
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if numbers:
        number = as_integer(value)
        if number is not None and not (type(value) is str and CODE.fullmatch(value)):
            return number
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float and not numbers:
        return str(int(value)) if value == int(value) else repr(value)
    if type(value) is str and numbers and not words:
        raise DataError(
            "the label is no whole number",
            where=f"{row.where}, column {column!r}",
            found=repr(value),
            wanted="a whole number, as in the other rows",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if type(value) is not str:
        raise DataError(
            "no label",
            where=f"{row.where}, column {column!r}",
            found=repr(value),
            wanted="a whole number" if numbers else "a name or a whole number",
            do="correct the row; for numbers with fractions choose the task regression",
        )
    return value


def number(value: Any, row: Row, column: str) -> float:
    """A target of regression.

    Raises:
        DataError: empty, no number, or not finite.
    """
    number = math.nan
    if type(value) in (int, float, str) and not is_empty(value):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise DataError(
            "the target is not a finite number",
            where=f"{row.where}, column {column!r}",
            found="null" if value is None else repr(value),
            wanted="a number, such as 3.5",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    return number
