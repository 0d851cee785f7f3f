"""A `.json` file that is one value: an array of objects, an object with such a list, or SQuAD."""

from __future__ import annotations

from typing import Any

from maskwright.corpus import jsonl
from maskwright.corpus.ledger import Ledger
from maskwright.errors import DataError
from maskwright.strict_json import parse
from maskwright.tasks import squad_file


def is_one_value(text: str) -> bool:
    """Whether the file is not JSON Lines: its first line is no whole object, or is one that holds
    everything."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(first)
    except DataError:
        return True
    return type(value) is not dict or (type(value.get("data")) is list and not rest.strip())


def items(text: str, file: str, ledger: Ledger) -> list[dict[str, Any]]:
    """The rows of an array of objects, of `{"data": [...]}`, or of SQuAD.

    Raises:
        DataError: not JSON, or none of these.
    """
    value = jsonl.checked(parse(text, file), ledger)
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
