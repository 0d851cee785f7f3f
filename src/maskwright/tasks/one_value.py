"""A `.json` file that is one value: an array of objects, an object with such a list, SQuAD, or
what a program for annotation exports."""

from __future__ import annotations

from typing import Any

from maskwright.corpus import jsonl
from maskwright.corpus.ledger import Ledger
from maskwright.errors import DataError
from maskwright.strict_json import parse
from maskwright.tasks import exports, squad_file


def is_one_value(text: str) -> bool:
    """Whether the file is not JSON Lines: its first line is no whole object, or is one that holds
    everything."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(first)
    except DataError:
        return True
    if rest.strip():  # a line of each pair of a text and its marks, or of each row
        return type(value) is not dict and not exports.is_line(value)
    return type(value) is not dict or type(value.get("data")) is list or exports.is_one(value)


def items(text: str, file: str, ledger: Ledger) -> list[dict[str, Any]]:
    """The rows of an array of objects, of `{"data": [...]}`, or of SQuAD.

    Raises:
        DataError: not JSON, or none of these.
    """
    value = jsonl.checked(parse(text, file), ledger)
    if (exported := exports.rows(value, file, ledger)) is not None:
        return exported
    found = value.get("data") if type(value) is dict else value
    if type(found) is not list or not all(type(item) is dict for item in found):
        raise DataError(
            "the .json file is no table",
            where=file,
            found="an object without a list 'data'"
            if type(value) is dict
            else type(value).__name__,
            wanted='[{"text": "…", "label": "…"}, …], or JSON Lines',
        )
    if any("paragraphs" in item for item in found):
        return list(squad_file.rows({"data": found}, file))
    return found
