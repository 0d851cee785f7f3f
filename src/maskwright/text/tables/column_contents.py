"""Describe the contents of columns: the kind of values, how many are distinct, how long texts are.

Every cell of a csv file is a text, so texts that spell numbers count as numbers here. A column of
numbers with a few mistakes stays numeric: the mistakes are refused later, with their lines. Cells
of a csv file may also spell lists.
"""

from __future__ import annotations

import ast
import io
import itertools
import math
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maskwright.base.errors import DataError, shorten
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.parquet import UnreadableValue
from maskwright.text.tables.files import Table
from maskwright.text.tables.marked_text import are_marked_spans
from maskwright.text.tables.raw_text import INTEGER, as_integer
from maskwright.text.tables.rows import TABLE_FILE, Row

# A number with leading zeros, such as a postal code, is a name: 01067 is not 1067.
CODE = re.compile(r"\s*[-+]?0\d+\s*")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
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
# From this share of numbers on, a value that is not a number is an error in its row, not a class.
MOSTLY = 0.95
# Texts with more words than this on average, most of them distinct, are not names of classes.
LABEL_WORDS = 4.0
MANY_ROWS = 20
# Columns of at most this many distinct values list them.
FEW_VALUES = 30


class UnlistedCell(str):
    """A cell that is not a list in a column of lists; it does not count as a text either."""


class UnknownTag(str):
    """The tag of a word whose true tag is unknown: excluded from the loss and from the metrics."""


@dataclass(frozen=True)
class Column:
    """Statistics of one column.

    Attributes:
        kind: `text`, `whole` (integers), `number`, `boolean`; of lists `texts`, `wholes`,
            `numbers`, `booleans`; `parts` (lists of marked spans of a text), `flags` (mappings of
            classes to 0 or 1), `object`, `mixed`, or `empty`.
        rows: number of rows with a value; empty: number of rows with none, or white space only.
        distinct: number of distinct values.
        words: mean number of words per text; 0 for other kinds.
        fractions: how many of its numbers are not integers.
        in_cells: whether the lists are spelled in the cells of a csv file.
        values: count of each value, as lower-case text; empty above `FEW_VALUES` distinct values.
    """

    name: str
    kind: str
    rows: int
    empty: int
    distinct: int
    words: float
    fractions: int = 0
    in_cells: bool = False
    values: Mapping[str, int] = field(default_factory=dict)

    @property
    def integral(self) -> bool:
        """Whether all numbers are integers."""
        return self.fractions == 0

    @property
    def scalar(self) -> bool:
        return self.kind in ("text", "whole", "number", "boolean")

    @property
    def is_prose(self) -> bool:
        """Whether the values are running texts rather than names of classes."""
        mostly_distinct = self.distinct > self.rows / 2 and self.rows >= MANY_ROWS
        return self.kind == "text" and mostly_distinct and self.words > LABEL_WORDS

    @property
    def has_classes(self) -> bool:
        """Whether the column has few distinct values that repeat, as class labels do."""
        repeat_values = 2 <= self.distinct <= max(2, min(1000, self.rows // 2))
        classes = self.kind in ("text", "whole", "boolean") or (
            self.kind == "number" and self.integral
        )
        return classes and repeat_values


def describe(rows: Sequence[Row], lists: Collection[str] = ()) -> dict[str, Column]:
    """Return the statistics of every column of `rows` by name, and of each language of a column
    `translation` as `translation.LANGUAGE`; `lists` names the columns parsed by `read_lists`."""
    by_column: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.values.items():
            by_column.setdefault(name, []).append(value)
    translations = [value for value in by_column.get("translation", ()) if type(value) is dict]
    for language in translations[0] if translations else ():
        by_column[f"translation.{language}"] = [value.get(language) for value in translations]
    columns = {name: _described(name, values, len(rows)) for name, values in by_column.items()}
    return columns | {name: replace(columns[name], in_cells=True) for name in lists}


def value_of(row: Row, name: str) -> Any:
    """Return the value of a column, or None; a name such as `translation.en` looks in a mapping."""
    value = row.values.get(name)
    if value is None and "." in name:
        column, _, key = name.partition(".")
        value = row.values.get(column)
        value = value.get(key) if type(value) is dict else None
    return value


def has_column(name: str, columns: Collection[str]) -> bool:
    """Whether `columns` has `name`, or the outer column of a name such as `translation.en`."""
    return name in columns or name.partition(".")[0] in columns


def is_empty(value: Any) -> bool:
    """Whether a value is None or a text without visible characters; an empty list is a value."""
    return value is None or (type(value) is str and INVISIBLE.fullmatch(value) is not None)


def is_no_label(no_label: Collection[str], value: object) -> bool:
    """Whether `value` equals an entry of `no_label` as a text or as an integer (`-1`, `-1.0`)."""
    if str(value).strip() in no_label:
        return True
    number = as_integer(value)
    return number is not None and any(as_integer(text) == number for text in no_label)


# ------------------------------------------------------------------------------ one column
def _described(name: str, values: Sequence[Any], rows: int) -> Column:
    """Return the statistics of a column from its `values`; `rows` is the size of the table."""
    filled = [
        v for v in values if not is_empty(v) and type(v) not in (UnlistedCell, UnreadableValue)
    ]
    kind_counts = Counter(map(_kind_of_value, filled))
    kind, values_counted = _merged(kind_counts, len(filled)), filled
    if not filled and any(type(v) is UnreadableValue for v in values):
        kind = "mixed"  # unusable, but not empty
    # Words such as n/a among numbers are missing values, however many there are.
    if kind in ("text", "whole", "number") and any(map(_is_missing_value, filled)):
        remaining = [v for v in filled if not _is_missing_value(v)]
        if (remaining_kind := _merged(Counter(map(_kind_of_value, remaining)), len(remaining))) in (
            "whole",
            "number",
        ):
            kind, values_counted = remaining_kind, remaining
    numbers = (
        [n for v in values_counted if (n := as_number(v)) is not None] if kind == "number" else []
    )
    fractions = sum(number != int(number) for number in numbers)
    # True and 1 are equal in Python, but two distinct values in a file.
    distinct = len({v if type(v) in (str, int, float) else repr(v) for v in values_counted})
    return Column(
        name=name,
        kind=kind,
        rows=len(filled),
        empty=rows - sum(not is_empty(v) for v in values),
        distinct=distinct,
        words=sum(len(str(v).split()) for v in filled) / len(filled)
        if kind == "text" and filled
        else 0.0,
        fractions=fractions,
        values=Counter(str(v).strip().casefold() for v in filled) if distinct <= FEW_VALUES else {},
    )


def _kind_of_value(value: Any) -> str:
    """Return the kind of one value as `Column.kind` has it; `list` for an empty list."""
    if type(value) is bool:
        return "boolean"
    if type(value) is int:
        return "whole"
    if type(value) is float:
        return "number"
    if type(value) is str:
        if INTEGER.fullmatch(value):
            return "text" if CODE.fullmatch(value) else "whole"
        return "number" if NUMBER.fullmatch(value) else "text"
    if type(value) is list:
        element_kinds = {_kind_of_value(v) if type(v) is not str else "text" for v in value}
        for kind, compatible in (
            ("boolean", set()),
            ("whole", set()),
            ("number", {"whole"}),
            ("text", {"whole"}),
        ):
            if element_kinds <= {kind, *compatible}:
                return kind + "s" if element_kinds else "list"
        return "parts" if are_marked_spans(value) else "mixed"
    if type(value) is dict:
        return "flags" if is_named(value) else "object"
    return "mixed"


def _merged(kinds: Counter[str], rows: int) -> str:
    """Return the kind of a column from the counts of the kinds of its `rows` values."""
    kinds_met = set(kinds)
    if kinds.get("parts", 0) >= MOSTLY * (rows - kinds.get("list", 0)) > 0:
        return "parts"
    if len(kinds_met) > 1:
        kinds_met.discard("list")  # empty lists go with any kind of list
    if not kinds_met:
        return "empty"
    if len(kinds_met) == 1:
        kind_ = kinds_met.pop()
        return "texts" if kind_ == "list" else kind_
    if kinds_met <= {"whole", "number", "text", "boolean"}:
        numbers = kinds.get("whole", 0) + kinds.get("number", 0)
        if numbers >= MOSTLY * rows:
            return "whole" if "number" not in kinds_met else "number"
        return "text"
    if kinds_met == {"flags", "object"}:
        return "flags" if kinds["flags"] >= MOSTLY * rows else "object"
    lists = {kind: kinds[kind] for kind in ("texts", "wholes", "numbers", "booleans")}
    if "mixed" in kinds_met and sum(lists.values()) >= MOSTLY * rows:
        return _merged(Counter({kind: n for kind, n in kinds.items() if kind in lists}), rows)
    if kinds_met <= {"texts", "wholes", "numbers"}:
        return "numbers" if "texts" not in kinds_met else "texts"
    return "mixed"


def is_missing(value: str) -> bool:
    """Whether a text is a word that programs write for a missing value, such as n/a, ? or nan."""
    word = value.strip().casefold()
    return word in MISSING_WORDS or NOT_A_NUMBER.fullmatch(value) is not None


def as_number(value: Any) -> float | None:
    """Return `value` as a finite number, or None if it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def means_nothing(value: str) -> bool:
    """Whether a text may stand for a missing label."""
    text = value.strip()
    return (
        text == "None"  # whereas `none` may be the name of a class
        or text.casefold() in {"", *UNLABELLED, *MISSING_WORDS} - {"none"}
        or NOT_A_NUMBER.fullmatch(text) is not None
        or STAND_INS.fullmatch(text) is not None
    )


def _is_missing_value(value: Any) -> bool:
    if type(value) is float:
        return not math.isfinite(value)
    return type(value) is str and is_missing(value)


def is_named(value: Any) -> bool:
    """Whether a value is a mapping of classes to 0 or 1."""
    return (
        type(value) is dict
        and bool(value)
        and all(type(v) in (bool, int, float) and v in (0, 1) for v in value.values())
    )


Label = int | str


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
        raise DataError(
            "the text is empty",
            where=f"{row.where}, column {name!r}",
            found=repr(value),
            wanted="a text",
            do="write one, or take the row out (--read on_bad=skip drops and counts it)",
        )
    return value


def text_in(row: Row, names: Sequence[str]) -> str:
    """Return the texts of the columns `names` of `row`, joined; empty ones are left out.

    Raises:
        DataError: as `text_of`; all are empty.
    """
    filled = [name for name in names if not is_empty(value_of(row, name))]
    return joined(text_of(row, name) for name in filled or names[:1])


def joined(texts: Iterable[str]) -> str:
    """Join texts with spaces."""
    return " ".join(texts)


def joined_or_whole(values: Sequence[Any]) -> Any:
    """Join the texts and numbers in `values`, leaving empty ones out. If there are values of other
    types, return the first of these instead."""
    filled = [v for v in values if not is_empty(v) and not (type(v) is float and math.isnan(v))]
    unreadable = [value for value in filled if type(value) not in (str, int, float)]
    return unreadable[0] if unreadable else joined(map(str, filled))


def missing(row: Row, name: str, role: str, expected: str) -> DataError:
    """Return the error for a cell that is empty or holds a value of another type."""
    value = value_of(row, name)
    return DataError(
        f"the {role} is missing" if value is None else f"the {role} is of another type",
        where=f"{row.where}, column {name!r}",
        found="nothing" if value is None else repr(value),
        wanted=expected,
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )


def label_of(value: Any, row: Row, column: str, numbers: bool, *, words: bool = False) -> Label:
    """Return a label as an integer, or as a name exactly as written.

    Args:
        value: the value of `column` in `row`.
        numbers: whether labels are integers; `words`: whether names may stand for them.

    Raises:
        DataError: the value is empty, a fraction, or of a type that cannot be a label.
    """
    if is_empty(value):
        raise DataError(
            "the label is empty",
            where=f"{row.where}, column {column!r}",
            found="null" if value is None else repr(value),
            wanted="a label in every row",
            do="label the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if type(value) is UnlistedCell:
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


def number_of(value: Any, row: Row, column: str) -> float:
    """Return a regression target.

    Raises:
        DataError: the value is empty, not a number, or not finite.
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


# A cell of a table may be a list. Lists in Python syntax, not JSON, are parsed up to this length.
BRACKETED = re.compile(r"\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*", re.DOTALL)
LONGEST_LITERAL = 100_000
# Lists as numpy prints them, without commas.
ITEM = r"""(?:'[^']*'|"[^"]*"|[-+]?\.?\d[-+.\de]*|\.\.\.)"""
OF_NUMPY = re.compile(rf"\s*\[+\s*{ITEM}(?:\s+{ITEM})+\s*\]+\s*|\s*\{{.*\barray\(\[.*", re.DOTALL)
# Numbers and booleans can be told apart even without commas.
LISTED_NUMBER = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|True|False)"
NUMERIC = re.compile(rf"\s*\[\s*({LISTED_NUMBER}(?:\s+{LISTED_NUMBER})*)\s*\]\s*")
# The constructors that numpy and torch print around a list.
WRAPPED = re.compile(
    r"\s*(?:np\.|torch\.)?(?:array|tensor)\((\[.*\])(?:,\s*\w+=[\w.']+)*\)\s*", re.DOTALL
)
TOUCHING = re.compile(r"""['"]\s*['"]""")


def read_lists(table: Table, texts: Collection[str] = ()) -> frozenset[str]:
    """Parse the cells of those columns of csv and tsv files in which nearly all cells spell lists.
    Cells there that are not lists become `UnlistedCell`.

    Args:
        table: its rows are replaced in place.
        texts: columns that are always read as texts.

    Returns:
        The names of the parsed columns.

    Raises:
        DataError: a list without commas.
    """
    rows = [row for row in table.first if _in_table(row)]
    columns = dict.fromkeys(name for row in rows for name in row.values)
    names = frozenset(name for name in columns if name not in texts and _are_lists(rows, name))
    if names:
        for split, rows in table.parts.items():
            table.parts[split] = [_parse_lists(row, names) for row in rows]
    return names


def list_of(cell: Any) -> list[Any] | dict[str, Any] | None:
    """Parse a cell that spells a list or a mapping as JSON or Python, or numbers as numpy prints
    them; return None for any other cell."""
    if type(cell) is not str:
        return None
    if wrapped_match := WRAPPED.fullmatch(cell):
        cell = wrapped_match[1]
    if number_match := NUMERIC.fullmatch(cell):
        return [_number(word) for word in number_match[1].split()]
    if not BRACKETED.fullmatch(cell) or OF_NUMPY.fullmatch(cell):
        return None
    try:
        parsed = parse(cell)
    except DataError:
        parsed = _parse_literal(cell)
    if type(parsed) is tuple:
        parsed = list(parsed)
    return parsed if type(parsed) in (list, dict) and _is_json_value(parsed) else None


def _number(word: str) -> bool | int | float:
    if word in ("True", "False"):
        return word == "True"
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def row_with_lists(row: Row, names: Iterable[str]) -> Row:
    """Return `row` with the cells of the columns `names` parsed if they spell lists.

    Raises:
        DataError: a list without commas.
    """
    parsed = {name: list_of(row.values.get(name)) for name in names if _in_table(row)}
    for name, value in parsed.items():
        if value is None:
            refuse_list_of_numpy(row, name)
    lists = {name: value for name, value in parsed.items() if value is not None}
    return replace(row, values={**row.values, **lists}) if lists else row


def refuse_list_of_numpy(row: Row, name: str) -> None:
    """Raise DataError for ['a' 'b'] as numpy prints it: the borders of items cannot be recovered,
    and the middle of a long list is left out."""
    cell = row.values.get(name)
    if type(cell) is str and _in_table(row) and OF_NUMPY.fullmatch(cell) and list_of(cell) is None:
        raise DataError(
            "a list without commas, as numpy prints it",
            where=f"{row.where}, column {name!r}",
            found=repr(cell[:80]),
            wanted='a list with commas, such as ["a", "b"]',
            do="write the column as lists before it becomes a csv: "
            f"frame[{name!r}] = frame[{name!r}].map(lambda value: value.tolist()); or, also where "
            "lists lie within others, save the table as parquet",
        )


def _are_lists(rows: Sequence[Row], name: str) -> bool:
    """Whether nearly all non-empty cells of a column spell lists that can be parsed."""
    filled = [row for row in rows if not is_empty(row.values.get(name))]
    cells = [row.values[name] for row in filled]
    list_like = sum(
        type(cell) is str and bool(BRACKETED.fullmatch(cell) or WRAPPED.fullmatch(cell))
        for cell in cells
    )
    if not cells or list_like < MOSTLY * len(cells):
        return False
    if sum(
        list_of(cell) is not None or bool(OF_NUMPY.fullmatch(cell)) for cell in cells
    ) < MOSTLY * len(cells):
        return False
    for row in filled:
        refuse_list_of_numpy(row, name)
    return True


def _parse_lists(row: Row, names: Collection[str]) -> Row:
    if not _in_table(row):
        return row
    values = dict(row.values)
    for name in names & values.keys():
        if type(cell := values[name]) is str and not is_empty(cell):
            refuse_list_of_numpy(row, name)
            parsed = list_of(cell)
            values[name] = UnlistedCell(cell) if parsed is None else parsed
    return replace(row, values=values)


def _in_table(row: Row) -> bool:
    return TABLE_FILE.search(row.file) is not None


def _parse_literal(cell: str) -> Any:
    """Parse a Python literal; return None if it is not one, or joins adjacent strings."""
    if len(cell) > LONGEST_LITERAL:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = ast.literal_eval(cell.strip())
        # Python joins texts without a comma between them, as in ['a' 'b', 'c'].
        if TOUCHING.search(cell):
            token_types = [
                t.type
                for t in tokenize.generate_tokens(io.StringIO(cell).readline)
                if t.type not in (tokenize.NL, tokenize.NEWLINE)
            ]
            if (tokenize.STRING, tokenize.STRING) in itertools.pairwise(token_types):
                return None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    return parsed


def _is_json_value(value: Any) -> bool:
    """Whether a value can be written as JSON."""
    if type(value) is list:
        return all(map(_is_json_value, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json_value(element) for key, element in value.items())
    return value is None or type(value) in (str, int, float, bool)
