"""Texts as they are given, and as they are read: without NUL and control characters, and with LF in
place of CRLF.

Places of spans and answers count the characters of the text as given, whatever is left out of it
afterwards; so do the places that a model answers with.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.ledger import Ledger
from maskwright.corpus.lines import STRIPPED, strip_controls
from maskwright.tokenizer.tokenizer import Tokenizer

CONTROLS = "".join(map(chr, STRIPPED))
CONTROL = re.compile(f"[{re.escape(CONTROLS)}]")
LEFT_OUT = re.compile(f"[{re.escape(CONTROLS)}]|\r(?=\n)")


def as_read(text: str) -> str:
    """The text as a model reads it."""
    return LEFT_OUT.sub("", text) if LEFT_OUT.search(text) else text


def places_read(text: str) -> NDArray[np.int64]:
    """(length of `as_read(text)` + 1,): the place in `text` of each character that is read, and of
    the end."""
    kept = np.ones(len(text) + 1, bool)
    kept[[match.start() for match in LEFT_OUT.finditer(text)]] = False
    return np.flatnonzero(kept)


def slice_of(given: str, text: str, start: int) -> slice | None:
    """Where `text` stands in `given`, of which something is left out when it is read: from `start`
    on as counted in `given`, else as counted in what is read. None where it is at neither."""
    wanted, read = as_read(text), as_read(given)
    if len(read) == len(given) or not wanted or start < 0:
        return None
    places = places_read(given)
    for begin in (int(np.searchsorted(places, start)), start):
        if read[begin : begin + len(wanted)] == wanted:
            return slice(int(places[begin]), int(places[begin + len(wanted) - 1]) + 1)
    return None


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> list[tuple[Any, NDArray[np.integer]]]:
    """For each text its tokens as it is read, and the (begin, end) of each (T, 2) in the text as
    given."""
    given = list(texts)
    encoded = tokenizer.encode_batch(map(as_read, given), offsets=True)
    for number, text in enumerate(given):
        if LEFT_OUT.search(text):
            ids, spans = encoded[number]
            places = places_read(text)
            begin = places[spans[:, 0]]
            # The end is that of the last character read, not the begin of the next one.
            end = np.where(
                spans[:, 1] > spans[:, 0], places[np.maximum(spans[:, 1], 1) - 1] + 1, begin
            )
            encoded[number] = ids, np.stack([begin, end], axis=1)
    return encoded


def cleaned(
    values: dict[str, Any], ledger: Ledger, *, line_ends: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the row as it is read, the values of those columns that this changed as they were given).

    Args:
        values: the row.
        ledger: counts what is left out.
        line_ends: of a table: CRLF in a text becomes LF, too, and a byte order mark at the begin
            of its line is left out.
    """
    texts = [value for value in values.values() if type(value) is str]
    if len(texts) == len(values):  # most rows of tables: nothing to do
        every = "".join([*values, *texts])
        if not LEFT_OUT.search(every) and "\ufeff" not in every:
            return values, {}
    read = _clean(values, ledger, line_ends)
    first = next(iter(read), "")
    if line_ends and type(read.get(first)) is str and read[first].startswith("\ufeff"):
        read = {**read, first: read[first].removeprefix("\ufeff")}
        ledger.counts.byte_order_marks += 1
    if read is values or len(read) != len(values):
        return read, {}
    given = {
        name: old
        for (name, new), old in zip(read.items(), values.values(), strict=True)
        if new is not old
    }
    return read, given


def _clean(value: Any, ledger: Ledger, line_ends: bool) -> Any:
    """The value with each text in it as it is read; the same object where nothing changes."""
    if type(value) is str:
        return text_as_read(value, ledger, line_ends)
    if isinstance(value, list):
        inner = [_clean(each, ledger, line_ends) for each in value]
        if all(map(operator.is_, inner, value)):
            return value
        made = copy.copy(value)
        made[:] = inner
        return made
    if isinstance(value, dict):
        names = [text_as_read(name, ledger, line_ends) for name in value]
        inner = [_clean(each, ledger, line_ends) for each in value.values()]
        if all(map(operator.is_, names, value)) and all(map(operator.is_, inner, value.values())):
            return value
        row = copy.copy(value)
        row.clear()
        row.update(zip(names, inner, strict=True))
        return row
    return value


def text_as_read(text: str, ledger: Ledger, line_ends: bool) -> str:
    """`text` without control characters, which are counted; `line_ends`: with LF for CRLF."""
    if CONTROL.search(text):
        text = strip_controls(text, ledger.counts)
    return text.replace("\r\n", "\n") if line_ends and "\r\n" in text else text
