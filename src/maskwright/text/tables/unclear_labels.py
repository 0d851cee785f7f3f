"""Refuse ambiguous labels, naming the option that decides how to read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.tables import flags
from maskwright.text.tables.column_contents import CODE, MOSTLY, NUMBER, is_empty, value_of
from maskwright.text.tables.layout import Columns
from maskwright.text.tables.raw_text import as_integer
from maskwright.text.tables.rows import Row
from maskwright.text.tables.spellings import plain

# The most distinct labels, and integers, that may be classes; the fewest rows to judge by.
FEW_LABELS, FEW_WHOLES, FEW_ROWS = 20, 10, 20
# Names of columns that hold numbers even if nearly all are integers.
SCORES = ("score", "similarity", "relatedness", "relevance", "grade", "points", "value", "rating")
DECIMAL = re.compile(r"\s*[-+]?\d+(,\d+)?\s*")
THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})*\s*")
UNIT = r"[%‰°$€£¥₹]"
MEASURED = re.compile(rf"\s*([-+]?{UNIT}\s*)?[-+]?\d+([.,]\d+)*(\s*{UNIT})?\s*")
BRACKETED = re.compile(r"\w*(\(\s*)?[\[({].*[,|;].*[\])}]|\[[^\]]+\]", re.DOTALL)
# (row, label) of each row that has a label.
Cells = Sequence[tuple[Row, Any]]


def refuse_unclear(rows: Sequence[Row], columns: Columns) -> None:
    """Refuse a column of labels that can be read in two ways.

    Raises:
        DataError: decimal commas, units, texts of 0 and 1, lists of fractions, a few fractions
            among few whole numbers, or numbers among words.
    """
    if len(columns.roles["label"]) > 1:
        return
    column = columns.column("label")
    cells = [(row, v) for row in rows if not is_empty(v := value_of(row, column.name))]
    _refuse_commas(column.name, cells)
    _refuse_units(column.name, cells)
    if flags.are_codes(rows, column.name):
        raise _ambiguity_error(
            "labels of the digits 0 and 1",
            column.name,
            cells[0],
            "names of classes, or one flag for each class",
            "where each digit is a flag: --task multi-label; where they are names of classes: "
            "--task classification",
        )
    if column.kind == "numbers":
        _refuse_lists_of_fractions(column.name, cells)
    if column.kind == "wholes" and not flags.flags_in(rows, column.name):
        _refuse_repeated(column.name, cells)
    if column.kind == "number" and column.fractions and "text" in columns.roles:
        _refuse_few_fractions(column.name, cells)
    if column.kind == "text":
        _refuse_unread_lists(column.name, cells)
        _refuse_numbers_and_words(column.name, cells)


def _ambiguity_error(
    message: str, name: str, example: tuple[Row, Any], expected: str, do: str
) -> DataError:
    return DataError(
        message,
        where=f"{example[0].where}, column {name!r}",
        found=repr(example[1])[:80],
        wanted=expected,
        do=do,
    )


def _refuse_commas(name: str, cells: Cells) -> None:
    """Refuse numbers such as 2,75: a decimal comma in many countries, but two labels here."""
    example = next((row_and_cell for row_and_cell in cells if "," in str(row_and_cell[1])), None)
    thousands = all(THOUSANDS.fullmatch(str(cell)) for _, cell in cells)
    if example is None or not (thousands or all(DECIMAL.fullmatch(str(cell)) for _, cell in cells)):
        return
    raise _ambiguity_error(
        "numbers with a comma, or two numbers",
        name,
        example,
        "numbers such as 2.75 and 1366, or a task given by --task",
        ("take the commas out where they part thousands, or " if thousands else "")
        + "write them with a point; where they are several labels: --task multi-label",
    )


def _refuse_units(name: str, cells: Cells) -> None:
    """Refuse many distinct values such as 45% and €12: they are numbers rather than classes."""
    example = next(
        (row_and_cell for row_and_cell in cells if re.search(UNIT, str(row_and_cell[1]))), None
    )
    values = {str(cell) for _, cell in cells}
    if example is None or len(values) <= FEW_LABELS or not all(map(MEASURED.fullmatch, values)):
        return
    raise _ambiguity_error(
        "numbers with a unit",
        name,
        example,
        "numbers alone, or a task given by --task",
        "take the unit out of the cells; where they are names: --task classification",
    )


def _refuse_lists_of_fractions(name: str, cells: Cells) -> None:
    """Refuse lists of fractions, such as shares of classes: neither classes nor flags."""
    example = next(
        (
            row_and_cell
            for row_and_cell in cells
            if type(row_and_cell[1]) is list and None in map(as_integer, row_and_cell[1])
        ),
        None,
    )
    if example is not None:
        raise _ambiguity_error(
            "lists of numbers with fractions",
            name,
            example,
            "a list of the classes, or one flag (0 or 1) for each class",
            "write 1 for each class that is right and 0 for the others",
        )


def _refuse_repeated(name: str, cells: Cells) -> None:
    """Refuse lists such as [2, 0, 1, 0] with repeated values, which cannot be a set of classes."""
    lists = [
        row_and_cell for row_and_cell in cells if type(row_and_cell[1]) is list and row_and_cell[1]
    ]
    repeated = [
        row_and_cell for row_and_cell in lists if len(set(row_and_cell[1])) < len(row_and_cell[1])
    ]
    if 2 * len(repeated) > len(lists):
        raise _ambiguity_error(
            "lists of numbers that come back within a row",
            name,
            repeated[0],
            "a list of different classes, or one flag (0 or 1) for each class",
            "where each place has a value of its own: write a column for each place, and learn one "
            "after the other (--column label=NAME)",
        )


def _refuse_few_fractions(name: str, cells: Cells) -> None:
    """Refuse a few fractions among integers: one 0.5 would turn the classes 0 and 1 to numbers."""
    integers = {number for _, cell in cells if (number := as_integer(cell)) is not None}
    fractions = [
        (row, cell) for row, cell in cells if _is_number(cell) and as_integer(cell) is None
    ]
    are_few = len(fractions) == 1 or len(fractions) <= (1 - MOSTLY) * len(cells)
    if plain(name) in SCORES or not are_few or len(integers) > FEW_WHOLES or len(cells) < FEW_ROWS:
        return
    raise _ambiguity_error(
        "a few fractions among whole numbers",
        name,
        fractions[0],
        "classes (whole numbers), or numbers to learn",
        "correct the row; or where they are classes: --task classification; where they are "
        "numbers to learn: --task regression",
    )


def _refuse_unread_lists(name: str, cells: Cells) -> None:
    """Refuse unquoted lists such as [sport, sea], which would be read as '[sport' and 'sea]'."""
    bracketed = [
        row_and_cell for row_and_cell in cells if BRACKETED.fullmatch(str(row_and_cell[1]).strip())
    ]
    if 2 * len(bracketed) > len(cells):
        raise _ambiguity_error(
            "cells that look like lists and are none",
            name,
            bracketed[0],
            'a list such as ["sport", "sea"], or names with | between them',
            "write each cell so",
        )


def _refuse_numbers_and_words(name: str, cells: Cells) -> None:
    """Refuse some words among regression targets, which would turn all numbers to classes."""
    numbers = [str(cell).strip() for _, cell in cells if _is_number(cell)]
    many = len(set(numbers)) > FEW_LABELS or any(as_integer(number) is None for number in numbers)
    if not many or 2 * len(numbers) < len(cells):
        return
    example = next((row, cell) for row, cell in cells if not _is_number(cell))
    word = str(example[1]).strip()
    point = f" (with a point: {word.replace(',', '.')})" if DECIMAL.fullmatch(word) else ""
    raise _ambiguity_error(
        "numbers and words in one column of labels",
        name,
        example,
        "numbers, or names of classes",
        f"write numbers{point}, or take out the rows whose label is not known (--read "
        f"no_label={shlex.quote(word)}); where all are names of classes: --task classification",
    )


def _is_number(value: Any) -> bool:
    if type(value) is str:
        return NUMBER.fullmatch(value) is not None and CODE.fullmatch(value) is None
    return type(value) in (int, float)
