"""Clean texts by removing NUL and control characters and replacing CRLF by LF.

Offsets of spans and answers, including those predicted by a model, count the characters of the
original text, whatever is removed from it.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import Source
from maskwright.text.corpus.ledger import Ledger
from maskwright.text.corpus.lines import STRIPPED, strip_controls
from maskwright.text.tokenizer.tokenizer import Tokenizer

INTEGER = re.compile(r"\s*[-+]?\d{1,4000}\s*")  # Python converts no more digits


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


# Number of a class in the data -> its name, in ascending order.
Names = dict[int, str]
FILE = re.compile(
    r"(?:(.+?)[_-])?(labels?|id2label|label2id|label[_-]?map|label[_-]?names|class[_-]?names"
    r"|classes|dataset_infos?)\.json$",
    re.IGNORECASE,
)
# Files that hold more than class names, and possibly none.
ABOUT = re.compile(r"dataset_infos?\.json$", re.IGNORECASE)
LABEL = "label"
WRAPPED = ("id2label", "label2id", "names", "labels", "classes", "label_names", "class_names")
NUMBER_OF, NAME_OF = ("id", "label_id", "index", "value"), ("name", "label", "class")
WANTED = '["bad", "good"], {"0": "bad", "1": "good"} or {"bad": 0, "good": 1}'


def is_of_names(source: Source) -> bool:
    """Whether the name of a file is that of a file with class names."""
    return FILE.search(source.path.name) is not None


def read_names(source: Source) -> dict[str, Names] | None:
    """Read class names by column, `label` if the file names no column; None if it holds rows.

    Raises:
        DataError: not UTF-8, not JSON, or class names of an unknown form.
    """
    match = FILE.search(source.path.name)
    assert match is not None
    is_description = ABOUT.search(source.path.name) is not None
    column = f"{match[1]}_label" if match[1] else LABEL
    try:
        value = parse(source.path.read_text("utf-8-sig"), source.shown)
    except UnicodeDecodeError as error:
        raise DataError(
            "not UTF-8",
            where=source.shown,
            found=error.reason,
            wanted="a list of names, in UTF-8",
            do="save the file as UTF-8",
        ) from error
    except DataError:
        if match[1]:  # train_labels.json may be JSON Lines
            return None
        raise
    if is_description:
        return dict(_names_in_features(value, source.shown))
    if type(value) is dict and (names := dict(_names_in_features(value, source.shown))):
        return names
    while type(value) is dict and (keys := [key for key in WRAPPED if key in value]):
        if type(value[keys[0]]) not in (list, dict):
            break
        value = value[keys[0]]
    if type(value) is list and value and all(type(entry) is dict for entry in value):
        pairs = [_number_and_name(entry) for entry in value]
        if None in pairs and match[1]:
            return None
        return {column: _sort_names([p for p in pairs if p is not None], value, source.shown)}
    return {column: _parse_names(value, source.shown)}


def _parse_names(value: Any, file: str) -> Names:
    if type(value) is list and all(type(name) is str for name in value):
        return _sort_names(list(enumerate(value)), value, file)
    if type(value) is not dict:
        raise _names_error(value, file)
    keys, values = list(value), list(value.values())
    if all(type(v) is int for v in values):
        return _sort_names([(number, name) for name, number in value.items()], value, file)
    if all(type(v) is str for v in values) and all(as_integer(k) is not None for k in keys):
        if any(as_integer(v) is None for v in values):
            return _sort_names([(as_integer(k), name) for k, name in value.items()], value, file)
        raise _names_error(value, file, "numbers on both sides")
    if all(type(v) is str and as_integer(v) is not None for v in values):
        return _sort_names([(as_integer(v), name) for name, v in value.items()], value, file)
    raise _names_error(value, file)


def _number_and_name(entry: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return (number, name) of the class that an object describes, or None."""
    numbers = [n for key in NUMBER_OF if (n := as_integer(entry.get(key))) is not None]
    names = [entry[key] for key in NAME_OF if type(entry.get(key)) is str]
    is_row = "text" in entry or "sentence" in entry
    return (numbers[0], names[0]) if len(numbers) == len(names) == 1 and not is_row else None


def _sort_names(pairs: Iterable[tuple[int | None, str]], value: Any, file: str) -> Names:
    """Return the names in ascending order of their numbers.

    Raises:
        DataError: there are no names, or a name or a number occurs twice.
    """
    pairs_read = [(number, name) for number, name in pairs if number is not None]
    names = dict(sorted(pairs_read))
    if not pairs_read or (type(value) in (list, dict) and len(pairs_read) < len(value)):
        raise _names_error(value, file)
    repeated = len(names) < len(pairs_read) or len(set(names.values())) < len(names)
    if repeated or any(not name.strip() for name in names.values()):
        raise _names_error(value, file, "a name or a number twice" if repeated else "an empty name")
    return names


def _names_in_features(value: Any, file: str) -> Iterable[tuple[str, Names]]:
    """Yield (column, class names) from the feature descriptions of the datasets library."""
    if type(value) is not dict:
        return
    features = value.get("features", value)
    if (
        features is value
        and len(value)
        and all(type(v) is dict and "features" in v for v in value.values())
    ):
        features = next(iter(value.values()))["features"]  # one entry for each configuration
    if type(features) is not dict:
        return
    for column, feature in features.items():
        if type(feature) is dict:
            element_feature = feature.get("feature")
            feature = element_feature if type(element_feature) is dict else feature
            class_names = feature.get("names")
            if type(class_names) is list and class_names:
                yield column, _parse_names([str(name) for name in class_names], file)


def _names_error(value: Any, file: str, reason: str = "") -> DataError:
    return DataError(
        "the names of the classes cannot be read",
        where=file,
        found=(f"{reason}: " if reason else "") + repr(value)[:80],
        wanted=WANTED,
        do="write them so, or move the file out of the folder",
    )


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
