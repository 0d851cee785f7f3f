"""A `.json` or `.jsonl` file that is no lines of objects: an array of objects, objects over several
lines, columns as lists, an object with a list of rows, SQuAD, or what a program for annotation
exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maskwright.corpus import jsonl
from maskwright.corpus.ledger import Ledger
from maskwright.errors import DataError
from maskwright.findings import Finding
from maskwright.labelled.columns.spellings import NAMES, plain
from maskwright.labelled.formats import exports, squad_file
from maskwright.labelled.formats.parts import PARTS
from maskwright.storage.strict_json import parse

# What the rows are called in an object that holds them.
WRAPPERS = ("data", "rows", "records", "items", "examples")


def is_one_value(text: str, *, lines: bool) -> bool:
    """Whether a file that begins with `text` is no JSON Lines: its first line is no whole object,
    or is one that holds everything. With `lines`, a first line that is broken is a bad row."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(jsonl.with_escapes(first))
    except DataError:
        is_begun = first.rstrip()[-1:] in tuple("{[,:") and not _is_whole(rest)
        return not lines or is_begun or first.strip() in ("[", "{") or _is_whole(first)
    if rest.strip():  # a line of each pair of a text and its marks, or of each row
        return type(value) is not dict and not exports.is_line(value)
    return not _is_row(value) or exports.is_one(value)


def _is_whole(text: str) -> bool:
    """Whether the first line of a text is values in JSON, and no begin of one."""
    try:
        return bool(parse(jsonl.with_escapes(text.partition("\n")[0]), many=True))
    except DataError:
        return False


def _is_row(value: Any) -> bool:
    """Whether an object that is alone in its file is a row: it has a text or a number, or a list of
    words."""
    if type(value) is not dict or type(value.get("data")) is list:
        return False
    words = [v for name, v in value.items() if plain(name) in NAMES["tokens"] and type(v) is list]
    return (
        any(type(v) not in (list, dict) for v in value.values())
        or any(all(type(word) is str for word in v) for v in words)
        or (
            not any(
                key.isdecimal() for v in (value, *value.values()) if type(v) is dict for key in v
            )
            and all(type(v) is dict for v in value.values())
        )
    )


def _of_numbered(value: dict[str, Any]) -> list[Any] | None:
    """The rows of an object of objects, as pandas writes tables: with the numbers of the rows as
    keys, outside or inside; None of others."""
    inner = list(value.values())
    if all(map(str.isdecimal, value)):
        return inner
    keys = inner[0].keys()
    if keys and all(map(str.isdecimal, keys)) and all(each.keys() == keys for each in inner):
        return [{name: value[name][key] for name in value} for key in keys]
    return None


def _rows_in(value: Any, file: str, ledger: Ledger) -> list[Any]:
    """The rows that a value holds, each an object if it is right.

    Raises:
        DataError: it holds none.
    """
    rows = value if type(value) is list else None
    if type(value) is dict and value:
        names, data, values = value.get("columns"), value.get("data"), list(value.values())
        if type(names) is list and type(data) is list and set(map(_size, data)) == {len(names)}:
            rows = [dict(zip(map(str, names), cells, strict=True)) for cells in data]
        elif wrapped := [value[name] for name in WRAPPERS if type(value.get(name)) is list]:
            rows = wrapped[0]
        elif len(sizes := set(map(_size, values))) == 1 and sizes != {None}:
            rows = [dict(zip(value, cells, strict=True)) for cells in zip(*values, strict=True)]
        elif all(type(v) is dict for v in values):
            rows = _of_numbered(value)
        if rows is not None and rows is not data:
            what = f"{len(rows):,} rows made of the columns or rows of one object"
            ledger.counts.notes.append(Finding("rows-of-one-object", what, file))
    parts = type(value) is dict and bool({*PARTS, "dev"} & value.keys())
    if rows is None or parts or (rows and not any(type(item) is dict for item in rows)):
        raise DataError(
            "the .json file is no table",
            where=file,
            found=f"an object with {', '.join(list(value)[:5])}"
            if type(value) is dict
            else f"a list of {type(value[0]).__name__}",
            wanted='[{"text": "…", "label": "…"}, …], or JSON Lines',
            do="write each part into a file of its own in one folder: train.json, test.json"
            if parts
            else "write a list of objects, one for each row",
        )
    return rows


def _size(value: Any) -> int | None:
    return len(value) if type(value) is list else None


def items(text: str, file: str, ledger: Ledger) -> Iterator[tuple[dict[str, Any], int]]:
    """The rows of such a file, each with its number.

    Raises:
        DataError: not JSON, or no rows; a bad item, when the policy is strict.
    """
    try:
        values = parse(jsonl.with_escapes(text), file, many=True)
    except DataError as error:
        raise error.advising(
            "correct the file: it is one value, of which no row can be left out; JSON Lines, a row "
            "on each line, can be read with on_bad='skip'"
        ) from None
    value = values[0] if len(values) == 1 else values
    try:  # exports are read whole; of other values a bad item is one row
        checked = jsonl.checked(value, ledger)
    except DataError:
        checked = None
    lines = text.count("\n") + (not text.endswith("\n"))
    if checked is not None and (exported := exports.rows(checked, file, ledger)) is not None:
        ledger.counts.rows += len(exported) - lines
        for number, row in enumerate(exported, 1):
            yield row, getattr(row, "item", 0) or number
        return
    value = value if checked is None else checked
    items = _rows_in(value, file, ledger)
    # Bad rows are a share of the items: all may stand on one line.
    ledger.counts.rows -= lines
    if any("paragraphs" in item for item in items if type(item) is dict):
        given = squad_file.rows_and_faults({"data": items}, file)
    else:
        given = iter(items)
    for number, item in enumerate(given, 1):
        ledger.counts.rows += 1
        try:
            if isinstance(item, DataError):
                raise item
            if type(item) is not dict:
                raise DataError(
                    "the item is not an object",
                    found=repr(item)[:80],
                    wanted='an object such as {"text": "…", "label": "…"}',
                )
            yield jsonl.checked(item, ledger) if checked is None else item, number
        except DataError as error:
            place = "" if error.where else f"{file}, item {number}"
            ledger.reject(jsonl.completed(error, place), file=file, line=number)
