"""Further columns stay with the text as notes, whatever the format; none is lost in silence."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from corpus.files_at_hand import documents, write
from maskwright.base.errors import ConfigError, DataError
from maskwright.text.corpus.read import Reader, Spool
from maskwright.text.corpus.reading import Document, ReadingOptions

ROWS: list[dict[str, Any]] = [
    {"text": "one", "id": "a/7", "year": 1999, "good": True, "share": 0.5, "tags": ["x", {"y": 1}]},
    {"text": "two", "id": None, "year": -1, "good": False, "share": 1e300, "tags": []},
]
NOTED = [
    {"id": "a/7", "year": "1999", "good": "true", "share": "0.5", "tags": '["x",{"y":1}]'},
    {"year": "-1", "good": "false", "share": "1e+300", "tags": "[]"},
]


def noted(path: Path, *names: str, **choices: object) -> list[dict[str, str]]:
    return [document.notes for document in documents(path, notes=names, **choices)]


def jsonl(folder: Path, rows: list[Any], name: str = "a.jsonl") -> Path:
    return write(folder, name, "".join(json.dumps(row) + "\n" for row in rows))


def arrow(folder: Path, table: Any, suffix: str) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra data")
    import pyarrow

    path = folder / f"a{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path, ROWS)
    assert noted(path, "*") == NOTED
    assert noted(path, "id", "year") == [{"id": "a/7", "year": "1999"}, {"year": "-1"}]
    assert noted(path) == [{}, {}], "the control: nobody asked"
    plain = [(d.text, d.source, d.id) for d in documents(path)]
    assert [(d.text, d.source, d.id) for d in documents(path, notes=("*",))] == plain
    assert plain[1][2] == f"{path}:2", "a document's id says where it stands, not what the row says"


def test_tables(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", ',id,text,year\n0,"a\nb",one,1\n1,,"two\n2",0\n,z,three,2\n')
    every = [
        {"column 1": "0", "id": "a\nb", "year": "1"},
        {"column 1": "1", "year": "0"},
        {"id": "z", "year": "2"},
    ]
    assert noted(path, "*") == every
    assert noted(path, "year") == [{"year": n["year"]} for n in every]
    assert [d.id for d in documents(path, notes=("id",))] == [f"{path}:{n}" for n in (2, 4, 6)]
    twice = write(tmp_path, "b.tsv", "text\tyear\tyear\na\t1\t2\n")
    with pytest.raises(DataError, match="same name"):
        noted(twice, "year")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_parquet_and_arrow(tmp_path: Path, suffix: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    table = pyarrow.table(
        {
            "year": [1999, -1],
            "kind": pyarrow.array(["a", None]).dictionary_encode(),
            "text": ["one", "two"],
            "id": ["a/7", None],
            "good": [True, False],
            "share": [0.5, float("nan")],
            "tags": [["x", "y"], []],
            "day": [datetime.date(2026, 11, 25), None],
            "at": pyarrow.array([1, 2], pyarrow.timestamp("ns")),
            "price": [Decimal("1.50"), None],
            "image": [b"\0\1", b""],
        }
    )
    path = arrow(tmp_path, table, suffix)
    reader = Reader(path, ReadingOptions(notes=("*",)))
    first, second = (document.notes for document in reader)
    assert {name: first[name] for name in ("year", "kind", "id", "good", "share", "tags")} == {
        **{"year": "1999", "kind": "a", "id": "a/7", "good": "true", "share": "0.5"},
        "tags": '["x","y"]',
    }
    assert first["day"] == "2026-11-25" and first["price"] == "1.50"
    assert first["at"].startswith("1970-01-01") and first["at"].endswith("1")
    assert sorted(second) == ["at", "good", "tags", "year"], "null and NaN are no values"
    assert any("image" in found.line() for found in reader.counts.findings), "left out, and said"
    with pytest.raises(DataError, match="bytes"):
        noted(path, "image")
    assert noted(path, "id", "year") == [{"year": "1999", "id": "a/7"}, {"year": "-1"}]
    assert noted(path) == [{}, {}]
    assert [d.id for d in documents(path, notes=("id",))] == [f"{path}#1", f"{path}#2"]


def test_a_column_of_a_table_twice(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"]), pyarrow.array(["c"])]
    path = arrow(tmp_path, pyarrow.table(columns, names=["text", "year", "year"]), ".parquet")
    for names in ("year", "*"):
        with pytest.raises(DataError, match="same name"):
            noted(path, names)
    assert noted(path) == [{}]


def test_plain_text_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\n\ntwo")
    assert noted(path, "*") == [{}, {}]
    with pytest.raises(DataError) as error:
        noted(path, "source")
    assert "no columns" in str(error.value)


def test_a_named_column_that_is_nowhere(tmp_path: Path) -> None:
    rows = [{"text": "one", "source": "web"}, {"text": "two"}]
    with pytest.raises(DataError, match="'sorce'") as error:
        noted(jsonl(tmp_path, rows), "sorce")
    assert error.value.where and "a.jsonl" in error.value.where
    table = write(tmp_path, "a.csv", "text,source\none,web\n")
    with pytest.raises(DataError, match="'sorce'"):
        noted(table, "*", "sorce")
    # The controls: a row may lack it, and so may a file, if another has it.
    assert noted(jsonl(tmp_path, rows), "source") == [{"source": "web"}, {}]
    folder = tmp_path / "several"
    jsonl(folder, rows[1:], "a.jsonl"), jsonl(folder, rows[:1], "b.jsonl")
    assert noted(folder, "source") == [{}, {"source": "web"}]
    # What was not read may have it.
    reader = Reader(folder, ReadingOptions(notes=("source",)), limit_bytes=1)
    assert len(list(reader)) == 1 and reader.cut


def test_notes_are_as_clean_as_texts(tmp_path: Path) -> None:
    for bad, what in (("\\u0000", "NUL"), ("\\ud800", "surrogate")):
        path = write(tmp_path, "a.jsonl", f'{{"text": "good", "name": "{bad}"}}\n')
        with pytest.raises(DataError, match=what) as error:
            noted(path, "name")
        assert "line 1, field 'name'" in str(error.value.where)
        assert noted(path) == [{}], "the control: the field is not read"
        skipped = Reader(path, ReadingOptions(notes=("name",), on_bad="skip", max_bad_fraction=1.0))
        with pytest.raises(DataError, match="0 documents"):
            list(skipped)
    path = write(tmp_path, "a.jsonl", '{"text": "a", "name": "b\\u0001c\\ud800"}\n')
    assert noted(path, "*", on_undecodable="replace") == [{"name": "bc\ufffd"}]


def test_a_note_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    bad = pyarrow.array([b"\xff"]).view(pyarrow.string())
    path = arrow(tmp_path, pyarrow.table({"text": ["a"], "name": bad}), ".parquet")
    with pytest.raises(DataError, match="not utf-8") as error:
        noted(path, "name")
    assert "row 1, column 'name', byte 0" in str(error.value.where)
    assert noted(path) == [{}]
    assert noted(path, "*", on_undecodable="replace") == [{"name": "\ufffd"}]


def test_settings_that_say_nothing() -> None:
    for notes in (("text",), ("a", "a")):
        with pytest.raises(ConfigError) as error:
            ReadingOptions(notes=notes)
        assert error.value.where == "notes"
    assert ReadingOptions(notes=("text",), column="body").notes == ("text",)


def test_a_spool_keeps_them(tmp_path: Path) -> None:
    kept, given = Spool(tmp_path), []
    for notes in ({}, {"a": "1", "☃": "x\ny"}, {}):
        given.append(Document("text", "a", "a:1", notes))
        kept.add(given[-1])
    assert [d.notes for d in kept] == [d.notes for d in given] and list(kept) == given
