"""The grammar of cells: what a missing value, number, flag, list, label and text look like.

It is closed: docs/cell-values.md lists all forms, and a value of another form is refused where its
row is read. `columns.py` says what the values of a whole column are.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from maskwright.base.errors import DataError, shorten
from maskwright.base.storage.strict_json import parse
from maskwright.text.tables.rows import FIX_ROW, Row, cell_error, has_column, value_of

# ------------------------------------------------------------------------------ missing values
# White space, soft hyphens, and characters of zero width: joiners, direction and byte order marks.
NO_WIDTH = r"\u00ad\u200b-\u200f\u2060\ufeff"
INVISIBLE = re.compile(rf"[\s{NO_WIDTH}]*")
NOT_A_NUMBER = re.compile(r"\s*[-+]?(nan|inf|infinity)\s*", re.IGNORECASE)
# Words by which programs write a missing value.
MISSING_WORDS = {*("na", "n/a", "#n/a", "<na>", "nan", "nat", "none", "null", "-", "--", "?")}
# Words by which people write that a row has no label.
UNLABELLED = {
    *("unlabeled", "unlabelled", "not labeled", "unknown", "missing", "undefined", "hidden", "tbd"),
}
# Numbers that stand for a missing value in surveys, sensors and benchmarks.
STAND_INS = re.compile(r"-(1|9+|10*)(\.0*)?|(9{2,}|8{2,}|7{2,})(\.0*)?|-?2147483648|2147483647")


def is_empty(value: Any) -> bool:
    """Whether a value is None or a text without visible characters; an empty list is a value."""
    return value is None or (type(value) is str and INVISIBLE.fullmatch(value) is not None)


def group_name(value: Any) -> str:
    """Return a value as the name of a group of rows; "" if it is empty, as NaN is in parquet."""
    return "" if is_empty(value) or value != value else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is a word that programs write for a missing one, such as n/a or ?, or nan."""
    if type(value) is float:
        return not math.isfinite(value)
    is_word = type(value) is str and value.strip().casefold() in MISSING_WORDS
    return is_word or (type(value) is str and NOT_A_NUMBER.fullmatch(value) is not None)


def means_nothing(value: str) -> bool:
    """Whether a text may stand for a missing label. `none` does not, as it may name a class."""
    text = value.strip()
    if text.casefold() == "none":
        return text == "None"
    is_word = is_missing(text) or text.casefold() in {"", *UNLABELLED}
    return is_word or STAND_INS.fullmatch(text) is not None


def is_no_label(no_label: Collection[str], value: object) -> bool:
    """Whether `value` equals an entry of `no_label` as a text or as an integer (`-1`, `-1.0`)."""
    if str(value).strip() in no_label:
        return True
    number = as_integer(value)
    return number is not None and any(as_integer(text) == number for text in no_label)


# ------------------------------------------------------------------------------ numbers
INTEGER = re.compile(r"\s*[-+]?\d{1,4000}\s*")  # Python converts no more digits
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
# A number with leading zeros, such as a postal code, is a name: 01067 is not 1067.
CODE = re.compile(r"\s*[-+]?0\d+\s*")


def as_integer(value: object) -> int | None:
    """Convert `value` to an integer, also from a text or a float; None if it is not an integer."""
    if isinstance(value, int):  # also true and false
        return int(value)
    try:
        if isinstance(value, str) and INTEGER.fullmatch(value):
            return int(value)  # a float cannot represent all digits
        number = float(value) if isinstance(value, str | float) else float("nan")
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None


def as_number(value: Any) -> float | None:
    """Return `value` as a finite number, or None if it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def spells_number(value: Any) -> bool:
    """Whether a value is a number or a text that spells one; a code such as 01067 does not."""
    if type(value) is str:
        return NUMBER.fullmatch(value) is not None and CODE.fullmatch(value) is None
    return type(value) in (int, float)


# ------------------------------------------------------------------------------ flags
FLAGS = {
    **dict.fromkeys(("0", "0.0", "0.", "false"), False),
    **dict.fromkeys(("1", "1.0", "1.", "true"), True),
}
# Yes and no in several languages, where the pair of words is unambiguous.
YES = ("yes", "y", "t", "ja", "j", "oui", "si", "sí", "sì", "sim", "tak", "да")
NO = ("no", "n", "f", "nein", "non", "não", "nao", "nee", "nej", "nei", "nie", "нет")
FLAG_WORDS = {**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}
# Flags only in columns that the user names as labels: a mark or nothing; 1 or -1.
MARKS = ("x", "✓", "✔")
SIGNS = {"-1": False, "1": True, "-1.0": False, "1.0": True}


def word_of(value: Any) -> str:
    return str(value).strip().casefold()


def flag(value: Any) -> bool | None:
    """Return the truth value of a flag; None if `value` is not a flag."""
    if type(value) is bool:
        return value
    if type(value) in (int, float):
        return bool(value) if value in (0, 1) else None
    if type(value) is not str:
        return None
    return FLAGS.get(word_of(value), FLAG_WORDS.get(word_of(value)))


def is_flag_mapping(value: Any) -> bool:
    """Whether a value is a mapping of classes to 0 or 1."""
    return (
        type(value) is dict
        and bool(value)
        and all(type(v) in (bool, int, float) and v in (0, 1) for v in value.values())
    )


def is_flag_set(
    value: Any, row: Row, name: str, *, marks: bool = False, signs: bool = False
) -> bool:
    """Return the flag in a cell of a column that is a label of its own; with `marks` an empty cell
    is False, with `signs` -1 is.

    Raises:
        DataError: the cell is no flag.
    """
    is_set = flag(value)
    if marks:
        is_set = False if is_empty(value) else True if word_of(value) in MARKS else is_set
    if signs:
        is_set = SIGNS.get(word_of(value), is_set)
    if is_set is not None:
        return is_set
    advice = f"{FIX_ROW}; where {value} means unknown: --read no_label={value}"
    raise cell_error(
        "the label is empty" if is_empty(value) else "the label is no flag",
        row,
        name,
        "0 or 1 (or yes or no) in every row of a column that is a label of its own",
        FIX_ROW if is_empty(value) else advice,
    )


def set_flags(cell: Any, row: Row, name: str, classes: Sequence[str] | int) -> list[Any]:
    """Return the classes whose flag is set: names, of a mapping of `classes` to flags; indices, of
    a list of as many flags as the number `classes`.

    Raises:
        DataError: a flag is missing, or the cell does not hold flags.
    """
    if isinstance(classes, int):
        values = [flag(value) for value in cell] if type(cell) is list else []
        if len(values) == classes and None not in values:
            return [index for index, is_set in enumerate(values) if is_set]
        expected = f"a list of {classes} flags, each 0 or 1, as in the other rows"
        raise cell_error("flags and classes differ in number", row, name, expected)
    missing_names = sorted(set(classes) - cell.keys()) if is_flag_mapping(cell) else []
    if is_flag_mapping(cell) and not missing_names:
        return [key for key, value in cell.items() if value]
    also = f"also {', '.join(missing_names)}"
    expected = also if missing_names else 'such as {"sport": 1, "sea": 0}'
    raise cell_error("the cell has no flag for some classes", row, name, expected)


# ------------------------------------------------------------------------------ lists
SEPARATORS = ("|", ";", ",")
BY_LETTER, BY_BLANK = "", " "
# Lists in Python syntax, not JSON, are parsed up to this length.
LONGEST_LITERAL = 100_000
BRACKETED = re.compile(r"\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*", re.DOTALL)
# The constructors that numpy and torch print around a list.
WRAPPED = re.compile(
    r"\s*(?:np\.|torch\.)?(?:array|tensor)\((\[.*\])(?:,\s*\w+=[\w.']+)*\)\s*", re.DOTALL
)
# Lists as numpy prints them, without commas. Numbers and booleans are still distinct.
ITEM = r"""(?:'[^']*'|"[^"]*"|[-+]?\.?\d[-+.\de]*|\.\.\.)"""
OF_NUMPY = re.compile(rf"\s*\[+\s*{ITEM}(?:\s+{ITEM})+\s*\]+\s*|\s*\{{.*\barray\(\[.*", re.DOTALL)
PRINTED_NUMBER = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|True|False)"
NUMBERS_OF_NUMPY = re.compile(rf"\s*\[\s*({PRINTED_NUMBER}(?:\s+{PRINTED_NUMBER})*)\s*\]\s*")
STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


class UnlistedCell(str):
    """A cell that is not a list in a column of lists; it does not count as a text either."""


class UnknownTag(str):
    """The tag of a word whose true tag is unknown: excluded from the loss and from the metrics."""


def looks_like_list(cell: Any) -> bool:
    return type(cell) is str and bool(BRACKETED.fullmatch(cell) or WRAPPED.fullmatch(cell))


def list_of(cell: Any) -> list[Any] | dict[str, Any] | None:
    """Parse a cell that spells a list or a mapping as JSON or Python, or numbers as numpy prints
    them; return None for any other cell."""
    if type(cell) is not str:
        return None
    if wrapped_match := WRAPPED.fullmatch(cell):
        cell = wrapped_match[1]
    if number_match := NUMBERS_OF_NUMPY.fullmatch(cell):
        cell = f"[{', '.join(number_match[1].split())}]"
    if not BRACKETED.fullmatch(cell) or OF_NUMPY.fullmatch(cell):
        return None
    try:
        parsed = parse(cell)
    except DataError:
        parsed = _parse_literal(cell)
    if type(parsed) is tuple:
        parsed = list(parsed)
    return parsed if type(parsed) in (list, dict) and _is_json_value(parsed) else None


def _parse_literal(cell: str) -> Any:
    """Parse a Python literal; return None if it is not one, or has two texts without a comma
    between them, as in ['a' 'b', 'c'], which Python joins."""
    if len(cell) > LONGEST_LITERAL or re.search(r"S\s*S", STRING.sub("S", cell.replace("S", "s"))):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _is_json_value(value: Any) -> bool:
    """Whether a value can be written as JSON."""
    if type(value) is list:
        return all(map(_is_json_value, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json_value(element) for key, element in value.items())
    return value is None or type(value) in (str, int, float, bool)


def row_with_lists(row: Row, names: Iterable[str]) -> Row:
    """Return `row` with the cells of the columns `names` parsed if they spell lists.

    Raises:
        DataError: a list without commas.
    """
    parsed = {name: list_of(row.values.get(name)) for name in names if row.in_table}
    for name, value in parsed.items():
        if value is None:
            refuse_list_of_numpy(row, name)
    lists = {name: value for name, value in parsed.items() if value is not None}
    return replace(row, values={**row.values, **lists}) if lists else row


def refuse_list_of_numpy(row: Row, name: str) -> None:
    """Raise DataError for ['a' 'b'] as numpy prints it: the borders of items cannot be recovered,
    and the middle of a long list is left out."""
    cell = row.values.get(name)
    if type(cell) is str and row.in_table and OF_NUMPY.fullmatch(cell) and list_of(cell) is None:
        raise cell_error(
            "a list without commas, as numpy prints it",
            row,
            name,
            'a list with commas, such as ["a", "b"]',
            f"write the column as lists, frame[{name!r}].map(lambda value: value.tolist()), or "
            "save it as parquet",
        )


def split_cell(cell: Any, separator: str | None) -> Any:
    """Split a cell of names or flags into a list; return values that are not texts unchanged."""
    if type(cell) is not str or separator is None:
        return cell
    if separator == BY_LETTER:
        return list(cell.strip())
    if separator == BY_BLANK:
        return cell.split()
    return [piece.strip() for piece in cell.split(separator) if piece.strip()]


# ------------------------------------------------------------------------------ labels and targets
Label = int | str
ALIKE = 0.75  # least difflib similarity of misspelt names: `body` and `bodi`, `answer`, `answers`


def label_of(value: Any, row: Row, column: str, numbers: bool, *, words: bool = False) -> Label:
    """Return a label as an integer, or as a name exactly as written.

    Args:
        value: the value of `column` in `row`.
        numbers: whether labels are integers; `words`: whether names may stand for them.

    Raises:
        DataError: the value is empty, a fraction, or of a type that cannot be a label.
    """
    is_name = type(value) is str and not is_empty(value)  # not a cell that is no list
    is_number = type(value) in (bool, int, float) or (is_name and not CODE.fullmatch(value))
    number = as_integer(value) if is_number and (numbers or type(value) is float) else None
    if numbers and number is not None:
        return number
    if is_name and (words or not numbers):
        return str(value)
    if not numbers and type(value) in (bool, int, float) and math.isfinite(value):
        return str(value).lower() if type(value) is bool or number is None else str(number)
    expected, do = "a whole number" if numbers else "a name or a whole number", FIX_ROW
    if is_empty(value):
        problem, expected = "the label is empty", "a label in every row"
    elif type(value) is UnlistedCell:
        problem, expected = "the cell is no list", 'a list such as ["a", "b"], as in the other rows'
    elif type(value) is str:
        problem, expected = "the label is no whole number", "a whole number, as in the other rows"
    else:
        problem, do = "no label", "correct the row, or choose the task regression for fractions"
        if type(value) in (list, dict):
            do = f"write the label as a plain value, such as {{{column!r}: 'name'}}"
    shown = "null" if value is None else repr(shorten(value) if type(value) is str else value)
    raise cell_error(problem, row, column, expected, do, shown=shown)


def number_of(value: Any, row: Row, column: str) -> float:
    """Return a regression target.

    Raises:
        DataError: the value is empty, not a number, or not finite.
    """
    number = as_number(value) if type(value) in (int, float, str) else None
    if number is None:
        problem = "the target is not a finite number"
        raise cell_error(problem, row, column, "a number, such as 3.5")
    return number


# ------------------------------------------------------------------------------ texts
def text_of(row: Row, name: str) -> str:
    """Return the text in a column of `row`; numbers are converted to text.

    Raises:
        DataError: the value is missing, of another type, or white space only.
    """
    value = value_of(row, name)
    if type(value) in (int, float):
        value = str(value)
    if type(value) is not str:
        raise missing(row, name, "text", "a text")
    if is_empty(value):
        raise cell_error("the text is empty", row, name, "a text")
    return value


def text_in(row: Row, names: Sequence[str]) -> str:
    """Return the texts of the columns `names` of `row`, joined; empty ones are left out.

    Raises:
        DataError: as `text_of`; all are empty.
    """
    filled = [name for name in names if not is_empty(value_of(row, name))]
    return " ".join(text_of(row, name) for name in filled or names[:1])


def joined_or_whole(values: Sequence[Any]) -> Any:
    """Join the texts and numbers in `values`, leaving empty ones out. If there are values of other
    types, return the first of these instead."""
    filled = [v for v in values if not is_empty(v) and not (type(v) is float and math.isnan(v))]
    unreadable = [value for value in filled if type(value) not in (str, int, float)]
    return unreadable[0] if unreadable else " ".join(map(str, filled))


def missing(row: Row, name: str, role: str, expected: str) -> DataError:
    """Return the error for a cell that is empty or holds a value of another type."""
    state = "missing" if value_of(row, name) is None else "of another type"
    return cell_error(f"the {role} is {state}", row, name, expected)


def require_field(row: Row, role: str, name: str, empty: str = "") -> None:
    """Check that a row has the field `name` with the given role; null is a value.

    Args:
        empty: how to write an empty value, for the message; "" if there is no such value.

    Raises:
        DataError: the field is missing; the error suggests a field with a similar name.
    """
    if has_column(name, row.values):
        return
    similar = get_close_matches(name, row.values, n=1, cutoff=ALIKE)
    fixes = [f"rename the field {similar[0]!r}"] if similar else []
    fixes += [f"write {empty}, where there is none"] if empty else [] if similar else ["write it"]
    raise DataError(
        "a field is missing",
        where=row.where,
        found=f"the fields {', '.join(row.values) or '(none)'}",
        wanted=f"{name!r}, which is used as {role}",
        do=f"{', or '.join(fixes)}; or take the row out (--read on_bad=skip drops and counts it)",
    )
