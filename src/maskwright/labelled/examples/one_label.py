"""What stands in a cell as a label or as a number to learn; what is neither is refused with its
line.
"""

from __future__ import annotations

import math
from typing import Any

from maskwright.errors import DataError, shorten
from maskwright.labelled.columns.contents import CODE, NoList, is_empty
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.formats.whole_number import as_integer

Label = int | str


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
