"""The one reader of JSON: what it refuses, where, as which kind of error; every door uses it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.base.errors import CheckpointError, DataError, MaskwrightError, TokenizerError
from maskwright.base.storage.strict_json import MAX_DEPTH, parse, parse_object
from maskwright.model.checkpoint import files, safe_read
from maskwright.text.corpus.read import read
from maskwright.text.tokenizer.file import check

# What stands in the file, what is said of it, and a part of what was found.
FAULTS = {
    "nothing": (b"", "not JSON", "the end"),
    "a list": (b"[]", "not a JSON object", "list"),
    "a number": (b"3", "not a JSON object", "int"),
    "cut short": (b"{", "not JSON", "the end"),
    "two documents": (b"{}{}", "not JSON", "extra data"),
    "a name twice": (b'{"a":1,"a":2}', "a name stands twice in one object", "'a'"),
    "infinite": (b'{"a":Infinity}', "a number that JSON does not have", "Infinity"),
    "minus infinite": (b'{"a":-Infinity}', "a number that JSON does not have", "-Infinity"),
    "not a number": (b'{"a":NaN}', "a number that JSON does not have", "NaN"),
    "no number either": (b'{"a":-NaN}', "not JSON", "expecting value"),
    "too large a number": (b'{"a":1e400}', "a number out of range", "1e400"),
    "many digits": (b'{"a":' + b"1" * 4400 + b"}", "a number out of range", "digits"),
    "UTF-16": (b"\xff\xfe{\x00}\x00", "not UTF-8", "xff"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not JSON", "expecting value"),
    "deep": (b'{"a":' * 5000 + b"1" + b"}" * 5000, "JSON nested too deeply", "64 levels"),
    "deep lists": (b"[" * 100_000, "JSON nested too deeply", "64 levels"),
}


def header(data: bytes, folder: Path) -> dict[str, Any]:
    path = folder / "model.safetensors"
    path.write_bytes(len(data).to_bytes(8, "little") + data)
    return {"": files.open_file(path)}


def config(data: bytes, folder: Path) -> dict[str, Any]:
    (folder / "config.json").write_bytes(data)
    return safe_read.read_json(folder, "config.json")


DOORS: dict[str, tuple[type[MaskwrightError], Callable[[bytes, Path], dict[str, Any]]]] = {
    "a config": (CheckpointError, config),
    "the header of a file of tensors": (CheckpointError, header),
    "a tokenizer": (TokenizerError, lambda data, _: check.read_json(data, "tokenizer.json")),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_door_refuses_alike(fault: str, door: str, tmp_path: Path) -> None:
    data, what, found = FAULTS[fault]
    kind, opened = DOORS[door]
    opened(b"{}", tmp_path)  # the control
    data = data.ljust(2)  # a header of one byte is refused for its length
    with pytest.raises(kind) as refused:
        opened(data, tmp_path)
    assert refused.value.what == what and found in refused.value.found
    assert ".json" in refused.value.where or ".safetensors: header" in refused.value.where
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b'{"a": ?}', "here, column 7"),
        (b'{\n "a": 1,\n "b": ?\n}', "here, line 3, column 7"),
        (b"{\n" + b"[" * 70, f"here, line 2, column {MAX_DEPTH}"),
        (b'{"a":"\xff"}', "here, byte 6"),
    ],
)
def test_the_place_of_a_fault_is_named(data: bytes, where: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse_object(data, "here", error=CheckpointError, largest=99)
    assert refused.value.where == where


def test_a_caller_may_add_a_remedy() -> None:
    with pytest.raises(DataError, match=r"do: +ask again"):
        parse("?", error=functools.partial(DataError, do="ask again"))


def test_as_many_bytes_as_allowed_and_no_more() -> None:
    assert parse_object(b'{"a":1}', "x", error=DataError, largest=7) == {"a": 1}
    with pytest.raises(DataError, match="7 bytes") as refused:
        parse_object(b'{"a":1}', "x", error=DataError, largest=6)
    assert refused.value.wanted == "at most 6"


def test_a_file_has_no_half_of_a_character() -> None:
    """A label of half a surrogate pair could be read, and never written into an answer."""
    whole, escaped = b'{"a":["\\ud83d\\ude00", "\\\\ud83d"]}', {"a": ["\U0001f600", "\\ud83d"]}
    assert parse_object(whole, "x", error=DataError, largest=99) == escaped
    for half in (b'{"a":["\\ud83d"]}', b'{"a":{"\\uDC00":1}}', b'{"a":"\\ude00\\ud83d"}'):
        with pytest.raises(DataError):
            parse_object(half, "x", error=DataError, largest=99)


def test_the_name_that_stands_twice_is_found_among_very_many() -> None:
    """In one pass: counting each name anew would take hours here."""
    names = [*(f"n{i}" for i in range(300_000)), "n299999"]
    with pytest.raises(DataError, match="'n299999'"):
        parse("{" + ",".join(f'"{name}":0' for name in names) + "}")


def test_rows_go_through_the_same_reader(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": "a", "text": "b"}\n')
    with pytest.raises(DataError):
        list(read(path))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=50,
    )
)
def test_F69_every_honest_value_is_read_as_it_was_written(value: object) -> None:
    assert parse(json.dumps(value), "here") == value


def test_F69_the_depth_check_is_linear_on_strings_that_never_close() -> None:
    for row in ('"\\"' * 300_000 + "[" * 70, "[" * 65 + '"' + '\\"' * 500_000, '{"a' * 300_000):
        with pytest.raises(DataError):
            parse(row, "here")
