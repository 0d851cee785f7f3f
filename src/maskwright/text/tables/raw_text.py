"""Clean texts by removing NUL and control characters and replacing CRLF by LF.

Offsets of spans and answers, including those predicted by a model, count the characters of the
original text, whatever is removed from it.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.text.corpus.ledger import Ledger
from maskwright.text.corpus.lines import STRIPPED, strip_controls
from maskwright.text.tokenizer.tokenizer import Tokenizer

CONTROLS = "".join(map(chr, STRIPPED))
CONTROL = re.compile(f"[{re.escape(CONTROLS)}]")
LEFT_OUT = re.compile(f"[{re.escape(CONTROLS)}]|\r(?=\n)")


def as_read(text: str) -> str:
    """Return the text without the characters that are removed before a model reads it."""
    return LEFT_OUT.sub("", text) if LEFT_OUT.search(text) else text


def places_read(text: str) -> NDArray[np.int64]:
    """Return (len(as_read(text)) + 1,) offsets in `text` of each character of `as_read(text)` and
    of its end."""
    is_kept = np.ones(len(text) + 1, bool)
    is_kept[[match.start() for match in LEFT_OUT.finditer(text)]] = False
    return np.flatnonzero(is_kept)


def slice_of(raw_text: str, text: str, start: int) -> slice | None:
    """Return the slice of `raw_text` that contains `text` after cleaning, at `start` as an offset
    in `raw_text`, else in the cleaned text. None if at neither, or if cleaning changes nothing."""
    clean_text, clean_raw_text = as_read(text), as_read(raw_text)
    if len(clean_raw_text) == len(raw_text) or not clean_text or start < 0:
        return None
    raw_offsets = places_read(raw_text)
    for begin in (int(np.searchsorted(raw_offsets, start)), start):
        if clean_raw_text[begin : begin + len(clean_text)] == clean_text:
            return slice(int(raw_offsets[begin]), int(raw_offsets[begin + len(clean_text) - 1]) + 1)
    return None


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> list[tuple[Any, NDArray[np.integer]]]:
    """Tokenize the cleaned texts; return for each its token ids and (T, 2) offsets (begin, end) in
    the original text."""
    raw_texts = list(texts)
    encoded = tokenizer.encode_batch(map(as_read, raw_texts), offsets=True)
    for number, text in enumerate(raw_texts):
        if LEFT_OUT.search(text):
            ids, spans = encoded[number]
            raw_offsets = places_read(text)
            begin = raw_offsets[spans[:, 0]]
            # The end follows the last character read, not precedes the next one.
            end = np.where(
                spans[:, 1] > spans[:, 0], raw_offsets[np.maximum(spans[:, 1], 1) - 1] + 1, begin
            )
            encoded[number] = ids, np.stack([begin, end], axis=1)
    return encoded


def clean_row(
    values: dict[str, Any], ledger: Ledger, *, line_ends: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Clean the texts in a row; return (the cleaned row, the original values of changed columns).

    Args:
        values: the row.
        ledger: counts removed characters.
        line_ends: for tables: also replace CRLF by LF, and remove a byte order mark at the
            beginning of the first column.
    """
    texts = [value for value in values.values() if type(value) is str]
    if len(texts) == len(values):  # most rows of tables: nothing to do
        all_text = "".join([*values, *texts])
        if not LEFT_OUT.search(all_text) and "\ufeff" not in all_text:
            return values, {}
    cleaned = _clean_value(values, ledger, line_ends)
    first_column = next(iter(cleaned), "")
    if (
        line_ends
        and type(cleaned.get(first_column)) is str
        and cleaned[first_column].startswith("\ufeff")
    ):
        cleaned = {**cleaned, first_column: cleaned[first_column].removeprefix("\ufeff")}
        ledger.counts.byte_order_marks += 1
    if cleaned is values or len(cleaned) != len(values):
        return cleaned, {}
    original_values = {
        name: old
        for (name, new), old in zip(cleaned.items(), values.values(), strict=True)
        if new is not old
    }
    return cleaned, original_values


def _clean_value(value: Any, ledger: Ledger, line_ends: bool) -> Any:
    """Clean each text in a value; return the same object if nothing changes."""
    if type(value) is str:
        return text_as_read(value, ledger, line_ends)
    if isinstance(value, list):
        cleaned = [_clean_value(element, ledger, line_ends) for element in value]
        if all(map(operator.is_, cleaned, value)):
            return value
        cleaned_list = copy.copy(value)
        cleaned_list[:] = cleaned
        return cleaned_list
    if isinstance(value, dict):
        names = [text_as_read(name, ledger, line_ends) for name in value]
        cleaned = [_clean_value(element, ledger, line_ends) for element in value.values()]
        if all(map(operator.is_, names, value)) and all(map(operator.is_, cleaned, value.values())):
            return value
        row = copy.copy(value)
        row.clear()
        row.update(zip(names, cleaned, strict=True))
        return row
    return value


def text_as_read(text: str, ledger: Ledger, line_ends: bool) -> str:
    """Remove and count control characters; with `line_ends`, also replace CRLF by LF."""
    if CONTROL.search(text):
        text = strip_controls(text, ledger.counts)
    return text.replace("\r\n", "\n") if line_ends and "\r\n" in text else text
