"""The names of classes in a file next to the data, in the forms in which people keep them.

    ["bad", "good"]                    {"0": "bad", "1": "good"}       {"bad": 0, "good": 1}
    {"id2label": {…}}                  {"names": […]}                  [{"id": 0, "name": "bad"}, …]
    {"features": {"label": {"names": […]}}}                            {"label": {"names": […]}}

The numbers are those in the data; those of a list count from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from maskwright.corpus.files import Source
from maskwright.errors import DataError
from maskwright.labelled.formats.whole_number import as_integer
from maskwright.storage.strict_json import parse

# The number in the data of each class -> its name, by number.
Names = dict[int, str]
FILE = re.compile(
    r"(?:(.+?)[_-])?(labels?|id2label|label2id|label[_-]?map|label[_-]?names|class[_-]?names"
    r"|classes|dataset_infos?)\.json$",
    re.IGNORECASE,
)
# Files that hold more than class names, and may have none.
ABOUT = re.compile(r"dataset_infos?\.json$", re.IGNORECASE)
LABEL = "label"
WRAPPED = ("id2label", "label2id", "names", "labels", "classes", "label_names", "class_names")
NUMBER_OF, NAME_OF = ("id", "label_id", "index", "value"), ("name", "label", "class")
WANTED = '["bad", "good"], {"0": "bad", "1": "good"} or {"bad": 0, "good": 1}'


def is_of_names(source: Source) -> bool:
    """Whether a file is called as one with the names of classes."""
    return FILE.search(source.path.name) is not None


def read_names(source: Source) -> dict[str, Names] | None:
    """The names by column, `label` where the file names no column; None where the file holds rows.

    Raises:
        DataError: not UTF-8, no JSON, or names that cannot be read.
    """
    match = FILE.search(source.path.name)
    assert match is not None
    about = ABOUT.search(source.path.name) is not None
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
    if about:
        return dict(_of_features(value, source.shown))
    if type(value) is dict and (names := dict(_of_features(value, source.shown))):
        return names
    while type(value) is dict and (inner := [key for key in WRAPPED if key in value]):
        if type(value[inner[0]]) not in (list, dict):
            break
        value = value[inner[0]]
    if type(value) is list and value and all(type(each) is dict for each in value):
        pairs = [_pair(each) for each in value]
        if None in pairs and match[1]:
            return None
        return {column: _numbered([p for p in pairs if p is not None], value, source.shown)}
    return {column: _of_value(value, source.shown)}


def _of_value(value: Any, file: str) -> Names:
    if type(value) is list and all(type(name) is str for name in value):
        return _numbered(list(enumerate(value)), value, file)
    if type(value) is not dict:
        raise _refusal(value, file)
    keys, values = list(value), list(value.values())
    if all(type(v) is int for v in values):
        return _numbered([(number, name) for name, number in value.items()], value, file)
    if all(type(v) is str for v in values) and all(as_integer(k) is not None for k in keys):
        if any(as_integer(v) is None for v in values):
            return _numbered([(as_integer(k), name) for k, name in value.items()], value, file)
        raise _refusal(value, file, "numbers on both sides")
    if all(type(v) is str and as_integer(v) is not None for v in values):
        return _numbered([(as_integer(v), name) for name, v in value.items()], value, file)
    raise _refusal(value, file)


def _pair(entry: Mapping[str, Any]) -> tuple[int, str] | None:
    """The number and the name of a class that an object describes."""
    numbers = [n for key in NUMBER_OF if (n := as_integer(entry.get(key))) is not None]
    names = [entry[key] for key in NAME_OF if type(entry.get(key)) is str]
    row = "text" in entry or "sentence" in entry
    return (numbers[0], names[0]) if len(numbers) == len(names) == 1 and not row else None


def _numbered(pairs: Iterable[tuple[int | None, str]], value: Any, file: str) -> Names:
    """The names by rising number.

    Raises:
        DataError: none, or a name or a number twice.
    """
    numbered = [(number, name) for number, name in pairs if number is not None]
    names = dict(sorted(numbered))
    if not numbered or (type(value) in (list, dict) and len(numbered) < len(value)):
        raise _refusal(value, file)
    twice = len(names) < len(numbered) or len(set(names.values())) < len(names)
    if twice or any(not name.strip() for name in names.values()):
        raise _refusal(value, file, "a name or a number twice" if twice else "an empty name")
    return names


def _of_features(value: Any, file: str) -> Iterable[tuple[str, Names]]:
    """The names of each column in the notes of the datasets library."""
    if type(value) is not dict:
        return
    inner = value.get("features", value)
    if (
        inner is value
        and len(value)
        and all(type(v) is dict and "features" in v for v in value.values())
    ):
        inner = next(iter(value.values()))["features"]  # one entry for each configuration
    if type(inner) is not dict:
        return
    for column, feature in inner.items():
        if type(feature) is dict:
            of_list = feature.get("feature")
            feature = of_list if type(of_list) is dict else feature
            listed = feature.get("names")
            if type(listed) is list and listed:
                yield column, _of_value([str(name) for name in listed], file)


def _refusal(value: Any, file: str, reason: str = "") -> DataError:
    return DataError(
        "the names of the classes cannot be read",
        where=file,
        found=(f"{reason}: " if reason else "") + repr(value)[:80],
        wanted=WANTED,
        do="write them so, or move the file out of the folder",
    )
