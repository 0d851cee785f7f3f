"""Cells of a csv that spell lists, as JSON or as Python writes them; they are read as the lists:

    ["a", "b"]   ['a', 'b']   {"text": ["a"], "answer_start": [3]}   [0 0 1]   tensor([0., 1.])

Where nearly all cells of a column spell some, all are to. Lists of texts as numpy prints them,
without commas, are refused: where one item ends and the next begins is lost.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from maskwright.errors import DataError
from maskwright.labelled.columns.contents import MOSTLY, NoList, is_empty
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.formats.table import TABLE_FILE, Table
from maskwright.storage.strict_json import parse

# A cell of a table may be a list; one that is Python and no JSON has at most so many characters.
BRACKETED = re.compile(r"\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*", re.DOTALL)
LONGEST_LITERAL = 100_000
# Lists as numpy prints them, without commas.
ITEM = r"""(?:'[^']*'|"[^"]*"|[-+]?\.?\d[-+.\de]*|\.\.\.)"""
OF_NUMPY = re.compile(rf"\s*\[+\s*{ITEM}(?:\s+{ITEM})+\s*\]+\s*|\s*\{{.*\barray\(\[.*", re.DOTALL)
# Numbers and true or false, without commas, too, can be separated.
NUMBER = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|True|False)"
NUMERIC = re.compile(rf"\s*\[\s*({NUMBER}(?:\s+{NUMBER})*)\s*\]\s*")
# What numpy and torch write around a list.
WRAPPED = re.compile(
    r"\s*(?:np\.|torch\.)?(?:array|tensor)\((\[.*\])(?:,\s*\w+=[\w.']+)*\)\s*", re.DOTALL
)
TOUCHING = re.compile(r"""['"]\s*['"]""")


def read_lists(table: Table, texts: Collection[str] = ()) -> frozenset[str]:
    """Put lists in place of the cells that spell them, in columns of csv and tsv files where
    nearly all cells do; what is none there becomes a `NoList`.

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
        for part, rows in table.parts.items():
            table.parts[part] = [_with_lists(row, names) for row in rows]
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
            values[name] = NoList(cell) if parsed is None else parsed
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
