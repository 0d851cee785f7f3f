"""A `.json` file that is one value: an array of objects, an object with such a list, SQuAD, or
what a program for annotation exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maskwright.corpus import jsonl
from maskwright.corpus.ledger import Ledger
from maskwright.errors import DataError
from maskwright.labelled.formats import exports, squad_file
from maskwright.storage.strict_json import parse


def is_one_value(text: str) -> bool:
    """Whether the file is not JSON Lines: its first line is no whole object, or is one that holds
    everything."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(jsonl.with_escapes(first))
    except DataError:
        return True
    if rest.strip():  # a line of each pair of a text and its marks, or of each row
        return type(value) is not dict and not exports.is_line(value)
    return type(value) is not dict or type(value.get("data")) is list or exports.is_one(value)


def items(text: str, file: str, ledger: Ledger) -> Iterator[tuple[dict[str, Any], int]]:
    """The rows of an array of objects, of `{"data": [...]}`, or of SQuAD, each with its number.

    Raises:
        DataError: not JSON, or none of these; a bad item, when the policy is strict.
    """
    try:
        value = parse(jsonl.with_escapes(text), file)
    except DataError as error:
        raise error.advising(
            "correct the file: it is one value, of which no row can be left out; JSON Lines, a row "
            "on each line, can be read with on_bad='skip'"
        ) from None
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
    items = value.get("data") if type(value) is dict else value
    if type(items) is not list or (items and not any(type(item) is dict for item in items)):
        raise DataError(
            "the .json file is no table",
            where=file,
            found="an object without a list 'data'"
            if type(value) is dict
            else type(value).__name__,
            wanted='[{"text": "…", "label": "…"}, …], or JSON Lines',
            do="write a list of objects, one for each row",
        )
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
