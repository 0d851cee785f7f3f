"""What a column holds: texts, numbers, lists; how many different ones, how long.

Everything in a csv is a text, so texts that spell numbers count as numbers here. A column of
numbers with a few mistakes stays one: the mistakes are refused later, with their lines. Cells of a
csv may also spell lists.
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

# A number with zeros before it, such as a postal code, is a name: 01067 is not 1067.
CODE = re.compile(r"\s*[-+]?0\d+\s*")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
# Blanks, soft hyphens, and what has no width: joiners, marks of direction and of byte order.
NO_WIDTH = r"\u00ad\u200b-\u200f\u2060\ufeff"
INVISIBLE = re.compile(rf"[\s{NO_WIDTH}]*")
NOT_A_NUMBER = re.compile(r"\s*[-+]?(nan|inf|infinity)\s*", re.IGNORECASE)
# How programs write that there is no value.
MISSING_WORDS = {*("na", "n/a", "#n/a", "<na>", "nan", "nat", "none", "null", "-", "--", "?")}
# How people write that nobody gave a label.
UNLABELLED = {
    *("unlabeled", "unlabelled", "not labeled", "unknown", "missing", "undefined", "hidden", "tbd"),
}
# Numbers that stand for none in surveys, sensors and benchmarks.
STAND_INS = re.compile(r"-(1|9+|10*)(\.0*)?|(9{2,}|8{2,}|7{2,})(\.0*)?|-?2147483648|2147483647")
# With so many numbers among the values, what is none is a mistake in its row and no class.
MOSTLY = 0.95
# Texts of more words than this, most of them different, are texts and no names of classes.
LABEL_WORDS = 4.0
MANY_ROWS = 20
# Columns of so few different values list them.
FEW_VALUES = 30


class UnlistedCell(str):
    """A cell that is no list in a column of lists: no text to those who ask for one."""


class UnknownTag(str):
    """The tag of a word of which nothing is known: it is neither learned nor scored."""


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes:
        kind: `text`, `whole` (numbers), `number`, `boolean`, `texts`, `wholes`, `numbers`,
            `booleans` (lists), `parts` (lists of what is marked in a text), `flags` (mappings of
            classes to 0 or 1), `object`, `mixed`, or `empty`.
        rows: how many rows have a value; empty: how many have none, or blanks only.
        distinct: how many different values there are.
        words: words per text, on average; of other kinds 0.
        fractions: how many of its numbers are no whole ones.
        in_cells: whether cells of a csv spell the lists.
        values: how often each value comes, as a text without case; empty where there are many.
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
        """Whether all numbers are whole ones."""
        return self.fractions == 0

    @property
    def scalar(self) -> bool:
        return self.kind in ("text", "whole", "number", "boolean")

    @property
    def is_prose(self) -> bool:
        """Texts rather than names of classes."""
        mostly_distinct = self.distinct > self.rows / 2 and self.rows >= MANY_ROWS
        return self.kind == "text" and mostly_distinct and self.words > LABEL_WORDS

    @property
    def has_classes(self) -> bool:
        """Few values that come back."""
        few = 2 <= self.distinct <= max(2, min(1000, self.rows // 2))
        classes = self.kind in ("text", "whole", "boolean") or (
            self.kind == "number" and self.integral
        )
        return classes and few


def describe(rows: Sequence[Row], lists: Collection[str] = ()) -> dict[str, Column]:
    """Every column of `rows`, and the two sides of a column `translation`; cells of `lists` were
    read by `read_lists`."""
    cells: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.values.items():
            cells.setdefault(name, []).append(value)
    sides = [value for value in cells.get("translation", ()) if type(value) is dict]
    for side in sides[0] if sides else ():
        cells[f"translation.{side}"] = [value.get(side) for value in sides]
    described = {name: _described(name, values, len(rows)) for name, values in cells.items()}
    return described | {name: replace(described[name], in_cells=True) for name in lists}


def value_of(row: Row, name: str) -> Any:
    """What stands in a column, None where nothing does; `translation.en` looks inside."""
    value = row.values.get(name)
    if value is None and "." in name:
        outer, _, inner = name.partition(".")
        value = row.values.get(outer)
        value = value.get(inner) if type(value) is dict else None
    return value


def has_column(name: str, columns: Collection[str]) -> bool:
    """Whether there is such a column, or one in which `translation.en` looks."""
    return name in columns or name.partition(".")[0] in columns


def is_empty(value: Any) -> bool:
    """None, or nothing to be seen. An empty list is a value: no label of many."""
    return value is None or (type(value) is str and INVISIBLE.fullmatch(value) is not None)


def is_no_label(no_label: Collection[str], value: object) -> bool:
    """Whether `value` is one of `no_label`, also as a number written otherwise."""
    if str(value).strip() in no_label:
        return True
    number = as_integer(value)
    return number is not None and any(as_integer(text) == number for text in no_label)


# ------------------------------------------------------------------------------ one column
def _described(name: str, values: Sequence[Any], rows: int) -> Column:
    filled = [
        v for v in values if not is_empty(v) and type(v) not in (UnlistedCell, UnreadableValue)
    ]
    kinds = Counter(map(_kind, filled))
    kind, values_counted = _merged(kinds, len(filled)), filled
    if not filled and any(type(v) is UnreadableValue for v in values):
        kind = "mixed"  # of no use, and not empty
    # Words such as n/a among numbers are no values, however many there are.
    if kind in ("text", "whole", "number") and any(map(_is_nothing, filled)):
        remaining = [v for v in filled if not _is_nothing(v)]
        if (remaining_kind := _merged(Counter(map(_kind, remaining)), len(remaining))) in (
            "whole",
            "number",
        ):
            kind, values_counted = remaining_kind, remaining
    numbers = (
        [n for v in values_counted if (n := as_number(v)) is not None] if kind == "number" else []
    )
    fractions = sum(number != int(number) for number in numbers)
    # True and 1 are equal in Python, and two values in a file.
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


def _kind(value: Any) -> str:
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
        inner = {_kind(v) if type(v) is not str else "text" for v in value}
        for kind, compatible in (
            ("boolean", set()),
            ("whole", set()),
            ("number", {"whole"}),
            ("text", {"whole"}),
        ):
            if inner <= {kind, *compatible}:
                return kind + "s" if inner else "list"
        return "parts" if are_marked_spans(value) else "mixed"
    if type(value) is dict:
        return "flags" if is_named(value) else "object"
    return "mixed"


def _merged(kinds: Counter[str], rows: int) -> str:
    present = set(kinds)
    if kinds.get("parts", 0) >= MOSTLY * (rows - kinds.get("list", 0)) > 0:
        return "parts"
    if len(present) > 1:
        present.discard("list")  # empty lists go with any kind of list
    if not present:
        return "empty"
    if len(present) == 1:
        only = present.pop()
        return "texts" if only == "list" else only
    if present <= {"whole", "number", "text", "boolean"}:
        numbers = kinds.get("whole", 0) + kinds.get("number", 0)
        if numbers >= MOSTLY * rows:
            return "whole" if "number" not in present else "number"
        return "text"
    if present == {"flags", "object"}:
        return "flags" if kinds["flags"] >= MOSTLY * rows else "object"
    lists = {kind: kinds[kind] for kind in ("texts", "wholes", "numbers", "booleans")}
    if "mixed" in present and sum(lists.values()) >= MOSTLY * rows:
        return _merged(Counter({kind: n for kind, n in kinds.items() if kind in lists}), rows)
    if present <= {"texts", "wholes", "numbers"}:
        return "numbers" if "texts" not in present else "texts"
    return "mixed"


def is_missing(value: str) -> bool:
    """Whether a text is what programs write where there is no value, as n/a, ? and nan."""
    word = value.strip().casefold()
    return word in MISSING_WORDS or NOT_A_NUMBER.fullmatch(value) is not None


def as_number(value: Any) -> float | None:
    """`value` as a finite number; None where it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def means_nothing(value: str) -> bool:
    """Whether a text may stand for a label that is not known."""
    word = value.strip()
    return (
        word == "None"  # `none` may well be the name of a class
        or word.casefold() in {"", *UNLABELLED, *MISSING_WORDS} - {"none"}
        or NOT_A_NUMBER.fullmatch(word) is not None
        or STAND_INS.fullmatch(word) is not None
    )


def _is_nothing(value: Any) -> bool:
    if type(value) is float:
        return not math.isfinite(value)
    return type(value) is str and is_missing(value)


def is_named(value: Any) -> bool:
    """Whether a mapping says 0 or 1 of each class."""
    return (
        type(value) is dict
        and bool(value)
        and all(type(v) in (bool, int, float) and v in (0, 1) for v in value.values())
    )


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


def missing(row: Row, name: str, role: str, expected: str) -> DataError:
    """The error for a cell that holds nothing, or a value of another type."""
    value = value_of(row, name)
    return DataError(
        f"the {role} is missing" if value is None else f"the {role} is of another type",
        where=f"{row.where}, column {name!r}",
        found="nothing" if value is None else repr(value),
        wanted=expected,
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )


def label_of(value: Any, row: Row, column: str, numbers: bool, *, words: bool = False) -> Label:
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


# A cell of a table may be a list; one that is Python and no JSON has at most so many characters.
BRACKETED = re.compile(r"\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*", re.DOTALL)
LONGEST_LITERAL = 100_000
# Lists as numpy prints them, without commas.
ITEM = r"""(?:'[^']*'|"[^"]*"|[-+]?\.?\d[-+.\de]*|\.\.\.)"""
OF_NUMPY = re.compile(rf"\s*\[+\s*{ITEM}(?:\s+{ITEM})+\s*\]+\s*|\s*\{{.*\barray\(\[.*", re.DOTALL)
# Numbers and true or false, without commas, too, can be separated.
LISTED_NUMBER = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|True|False)"
NUMERIC = re.compile(rf"\s*\[\s*({LISTED_NUMBER}(?:\s+{LISTED_NUMBER})*)\s*\]\s*")
# What numpy and torch write around a list.
WRAPPED = re.compile(
    r"\s*(?:np\.|torch\.)?(?:array|tensor)\((\[.*\])(?:,\s*\w+=[\w.']+)*\)\s*", re.DOTALL
)
TOUCHING = re.compile(r"""['"]\s*['"]""")


def read_lists(table: Table, texts: Collection[str] = ()) -> frozenset[str]:
    """Put lists in place of the cells that spell them, in columns of csv and tsv files where
    nearly all cells do; what is none there becomes a `UnlistedCell`.

    Args:
        table: its rows are replaced.
        texts: columns that hold texts whatever they look like.

    Returns:
        The names of these columns.

    Raises:
        DataError: lists without commas.
    """
    rows = [row for row in table.first if _in_table(row)]
    columns = dict.fromkeys(name for row in rows for name in row.values)
    names = frozenset(name for name in columns if name not in texts and _are_lists(rows, name))
    if names:
        for split, rows in table.parts.items():
            table.parts[split] = [_with_lists(row, names) for row in rows]
    return names


def list_of(cell: Any) -> list[Any] | dict[str, Any] | None:
    """The list, or the mapping, that a cell spells as JSON or Python, or as numpy prints numbers;
    None where it is none."""
    if type(cell) is not str:
        return None
    if wrapped := WRAPPED.fullmatch(cell):
        cell = wrapped[1]
    if numbers := NUMERIC.fullmatch(cell):
        return [_number(word) for word in numbers[1].split()]
    if not BRACKETED.fullmatch(cell) or OF_NUMPY.fullmatch(cell):
        return None
    try:
        parsed = parse(cell)
    except DataError:
        parsed = _literal(cell)
    if type(parsed) is tuple:
        parsed = list(parsed)
    return parsed if type(parsed) in (list, dict) and _is_plain(parsed) else None


def _number(word: str) -> bool | int | float:
    if word in ("True", "False"):
        return word == "True"
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def row_with_lists(row: Row, names: Iterable[str]) -> Row:
    """`row` with lists in place of those cells of these columns that spell some; others stay.

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
    """Refuse ['a' 'b']: where one item ends and the next begins is lost, as is any long middle."""
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
    """Whether nearly all cells are lists that can be read."""
    filled = [row for row in rows if not is_empty(row.values.get(name))]
    cells = [row.values[name] for row in filled]
    bracketed = sum(
        type(cell) is str and bool(BRACKETED.fullmatch(cell) or WRAPPED.fullmatch(cell))
        for cell in cells
    )
    if not cells or bracketed < MOSTLY * len(cells):
        return False
    if sum(
        list_of(cell) is not None or bool(OF_NUMPY.fullmatch(cell)) for cell in cells
    ) < MOSTLY * len(cells):
        return False
    for row in filled:
        refuse_list_of_numpy(row, name)
    return True


def _with_lists(row: Row, names: Collection[str]) -> Row:
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


def _literal(cell: str) -> Any:
    """What Python would read, texts and numbers only; None for any other value."""
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


def _is_plain(value: Any) -> bool:
    """Whether JSON could write it."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    return value is None or type(value) in (str, int, float, bool)
