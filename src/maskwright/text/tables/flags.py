"""Multi-label data written as one flag for each class.

    a list in each cell     [1, 0, 0, 1]   [true, false]   "[0 1 0]"   "0|1|0"   "0 1 0"   "0110"
    a mapping in each cell  {"sport": 1, "sea": 0}
    a column per class      rude, loud     0 and 1, 0.0 and 1.0, true and false, yes and no

Lists of flags differ from lists of class numbers: all have the same length, contain only 0 and 1,
and repeat them, which a list of classes does not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.tables.column_contents import (
    MISSING_WORDS,
    MOSTLY,
    Column,
    is_empty,
    is_named,
    value_of,
)
from maskwright.text.tables.rows import Row

NUMBERS = {
    **dict.fromkeys(("0", "0.0", "0.", "false"), False),
    **dict.fromkeys(("1", "1.0", "1.", "true"), True),
}
# Yes and no in several languages, where the pair of words is unambiguous.
YES = ("yes", "y", "t", "ja", "j", "oui", "si", "sí", "sì", "sim", "tak", "да")
NO = ("no", "n", "f", "nein", "non", "não", "nao", "nee", "nej", "nei", "nie", "нет")
WORDS = {**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}
# Values of unknown flags.
UNKNOWN = {"-1", "-1.0", *MISSING_WORDS}
# Values that are flags only if the user names the columns as labels: a mark or empty; 1 or -1.
MARKS = ("x", "✓", "✔")
SIGNS = {"-1": False, "1": True, "-1.0": False, "1.0": True}
# Texts of the digits 0 and 1 only, such as 0110, and flags separated by white space.
CODE = re.compile(r"\s*[01]{2,}\s*")
SPACED = re.compile(r"\s*[01](\.0*)?(\s+[01](\.0*)?)+\s*")
BY_LETTER, BY_BLANK = "", " "


def flag(value: Any) -> bool | None:
    """Return the truth value of a flag; None if `value` is not a flag."""
    if type(value) is bool:
        return value
    if type(value) in (int, float):
        return bool(value) if value in (0, 1) else None
    if type(value) is not str:
        return None
    word = value.strip().casefold()
    return NUMBERS.get(word, WORDS.get(word))


# ------------------------------------------------------------------------------ lists in cells
def split_cell(cell: Any, separator: str | None) -> Any:
    """Split a cell of names or flags into a list; return values that are not texts unchanged."""
    if type(cell) is not str or separator is None:
        return cell
    if separator == BY_LETTER:
        return list(cell.strip())
    if separator == BY_BLANK:
        return cell.split()
    return [piece.strip() for piece in cell.split(separator) if piece.strip()]


def flags_in(rows: Sequence[Row], name: str, separator: str | None = None) -> int:
    """Return the number of flags in each list of a column; 0 if the lists are not flags.

    Raises:
        DataError: the lists are flags of different lengths.
    """
    cells = [(row, split_cell(value_of(row, name), separator)) for row in rows]
    lists = [(row, cell) for row, cell in cells if type(cell) is list and cell]
    flag_lists = [(row, cell) for row, cell in lists if all(flag(v) is not None for v in cell)]
    size_counts = Counter(len(cell) for _, cell in flag_lists)
    if not size_counts:
        return 0
    size = min(size_counts, key=lambda n: (-size_counts[n], n))
    if size >= 2 and nearly_all(size_counts[size], len(lists)):
        return size
    repeating = [(row, cell) for row, cell in flag_lists if len(set(map(flag, cell))) < len(cell)]
    if 2 * len(repeating) <= len(lists):
        return 0
    row, cell = next((row, cell) for row, cell in repeating if len(cell) != size)
    raise DataError(
        "lists of flags of different lengths",
        where=f"{row.where}, column {name!r}",
        found=f"{len(cell)} flags: {cell}",
        wanted=f"one flag for each class, as the {size} in other rows; or lists of the classes",
        do="write a flag for each class into every row, or the names of the classes that are right",
    )


def set_flags(cell: Any, row: Row, name: str, size: int) -> list[int]:
    """Return the indices of the flags in a cell that are set, out of `size`.

    Raises:
        DataError: the cell is not a list of `size` flags.
    """
    if type(cell) is list and len(cell) == size:
        values = [flag(value) for value in cell]
        if None not in values:
            return [index for index, is_set in enumerate(values) if is_set]
    raise DataError(
        "flags and classes differ in number",
        where=f"{row.where}, column {name!r}",
        found="nothing" if cell is None else repr(cell)[:80],
        wanted=f"a list of {size} flags, each 0 or 1, as in the other rows",
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )


def are_codes(rows: Sequence[Row], name: str) -> bool:
    """Whether all cells are texts of the digits 0 and 1 of equal length, which may be flags."""
    cells = [str(v).strip() for row in rows if not is_empty(v := value_of(row, name))]
    are_same_length = all(CODE.fullmatch(cell) for cell in cells) and len(set(map(len, cells))) == 1
    return are_same_length and any(cell[0] == "0" for cell in cells)


def are_spaced(rows: Sequence[Row], name: str) -> bool:
    """Whether nearly all cells are zeros and ones separated by white space."""
    cells = [v for row in rows if not is_empty(v := value_of(row, name))]
    spaced = sum(type(cell) is str and SPACED.fullmatch(cell) is not None for cell in cells)
    return spaced > 0 and nearly_all(spaced, len(cells))


# ------------------------------------------------------------------------------ a mapping in cells
def names_in(rows: Sequence[Row], name: str) -> tuple[str, ...]:
    """Return the class names in the mappings of a column, sorted ignoring case."""
    names = {key for row in rows if is_named(v := value_of(row, name)) for key in v}
    return tuple(sorted(names, key=lambda key: (key.casefold(), key)))


def flagged_names(cell: Any, row: Row, name: str, classes: Iterable[str]) -> list[str]:
    """Return the classes whose flag is set in a mapping.

    Raises:
        DataError: the cell is not a mapping to flags, or lacks a class.
    """
    missing = sorted(set(classes) - cell.keys()) if is_named(cell) else []
    if is_named(cell) and not missing:
        return [key for key, value in cell.items() if flag(value)]
    raise DataError(
        "the cell has no flag for some classes",
        where=f"{row.where}, column {name!r}",
        found="nothing" if cell is None else repr(cell)[:80],
        wanted=f"also {', '.join(missing)}" if missing else 'such as {"sport": 1, "sea": 0}',
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )


# ------------------------------------------------------------------------------ a column per class
def columns_of_flags(columns: Iterable[Column]) -> list[str]:
    """Return the columns of which nearly all cells are flags: those of 0 and 1, or those of yes and
    no if these are more."""
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    for column in columns:
        if not column.scalar:
            continue
        values = column.values
        for are_numbers, meanings in ((True, NUMBERS), (False, WORDS)):
            flags = {word: n for word, n in values.items() if word in meanings}
            # A few unknown values, or one mistake, do not change what the column is.
            other_counts = {word: n for word, n in values.items() if word not in meanings}
            nearly_all_fit = nearly_all(sum(flags.values()), sum(values.values())) and (
                sum(other_counts.values()) <= 1 or other_counts.keys() <= UNKNOWN
            )
            has_both_values = (
                are_numbers or len(flags) == 1 or len({meanings[word] for word in flags}) == 2
            )
            if flags and nearly_all_fit and has_both_values:
                by_kind[are_numbers].append(column.name)
                break
    return by_kind[True] if len(by_kind[True]) >= len(by_kind[False]) else by_kind[False]


def columns_of_marks(columns: Iterable[Column]) -> list[str]:
    """Return the columns that hold only a mark or nothing, or only 1 and -1, which are flags if the
    user names the columns as labels."""
    names = []
    for column in columns:
        words = set(column.values)
        marked = len(words) == 1 and words < set(MARKS) and column.empty > 0
        if marked or (words <= SIGNS.keys() and {SIGNS[word] for word in words} == {True, False}):
            names.append(column.name)
    return names


def flag_in_column(
    value: Any, row: Row, name: str, *, marks: bool = False, signs: bool = False
) -> bool:
    """Return the flag in a cell; with `marks` an empty cell is False, with `signs` -1 is.

    Raises:
        DataError: the cell is no flag.
    """
    is_set = flag(value)
    if marks:
        is_set = False if is_empty(value) else True if _word(value) in MARKS else is_set
    if signs:
        is_set = SIGNS.get(_word(value), is_set)
    if is_set is not None:
        return is_set
    is_blank = is_empty(value)
    raise DataError(
        "the label is empty" if is_blank else "the label is no flag",
        where=f"{row.where}, column {name!r}",
        found="nothing" if is_blank else repr(value),
        wanted="0 or 1 (or yes or no) in every row of a column that is a label of its own",
        do="correct the row, or take it out (--read on_bad=skip drops and counts it"
        + (")" if is_blank else f"; where {value} means unknown: --read no_label={value})"),
    )


def _word(value: Any) -> str:
    return str(value).strip().casefold()


def nearly_all(count: int, total: int) -> bool:
    """Whether `count` is at least the share `MOSTLY` of `total`, or all but one of more than 4."""
    return total > 0 and (count >= MOSTLY * total or (count == total - 1 and total > 4))
