"""Further columns stay with the text as notes, whatever the format; documents wait on the disk."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from corpus.files_at_hand import documents, refusal, write
from maskwright.base.errors import DataError, StoppedError
from maskwright.text.corpus import read
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
    plain, full = documents(path), documents(path, notes=("*",))
    assert [replace(document, notes={}) for document in full] == plain
    assert plain[1].id == f"{path}:2", "it says where it stands, not what the row says"


def test_tables(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", ',id,text,year\n0,"a\nb",one,1\n1,,"two\n2",0\n,z,three,2\n')
    first = {"column 1": "0", "id": "a\nb", "year": "1"}
    assert noted(path, "*") == [first, {"column 1": "1", "year": "0"}, {"id": "z", "year": "2"}]
    assert noted(path, "year") == [{"year": year} for year in "102"]
    assert [d.id for d in documents(path, notes=("id",))] == [f"{path}:{n}" for n in (2, 4, 6)]
    twice = write(tmp_path, "b.tsv", "text\tyear\tyear\na\t1\t2\n")
    with pytest.raises(DataError, match="same name"):
        noted(twice, "year")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_parquet_and_arrow(tmp_path: Path, suffix: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    columns = {
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
    path = arrow(tmp_path, pyarrow.table(columns), suffix)
    reader = Reader(path, ReadingOptions(notes=("*",)))
    first, second = (document.notes for document in reader)
    at = first.pop("at")
    assert at.startswith("1970-01-01") and at.endswith("1")
    assert first == {
        **{"year": "1999", "kind": "a", "id": "a/7", "good": "true", "share": "0.5"},
        **{"tags": '["x","y"]', "day": "2026-11-25", "price": "1.50"},
    }
    assert sorted(second) == ["at", "good", "tags", "year"], "null and NaN are no values"
    assert any("image" in found.line() for found in reader.counts.findings), "left out, and said"
    with pytest.raises(DataError, match="bytes"):
        noted(path, "image")
    assert noted(path, "id", "year") == [{"year": "1999", "id": "a/7"}, {"year": "-1"}]
    assert noted(path) == [{}, {}]
    assert [d.id for d in documents(path, notes=("id",))] == [f"{path}#1", f"{path}#2"]


def test_plain_text_has_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\n\ntwo")
    assert noted(path, "*") == [{}, {}]
    assert "no columns" in str(refusal(DataError, path, notes=("source",)))


def test_a_named_column_that_is_nowhere(tmp_path: Path) -> None:
    rows = [{"text": "one", "source": "web"}, {"text": "two"}]
    table = write(tmp_path, "a.csv", "text,source\none,web\n")
    for path, names in ((jsonl(tmp_path, rows), ("sorce",)), (table, ("*", "sorce"))):
        assert "'sorce'" in str(refusal(DataError, path, notes=names))
    # The controls: a row may lack it, and so may a file, if another has it.
    assert noted(jsonl(tmp_path, rows), "source") == [{"source": "web"}, {}]
    folder = tmp_path / "several"
    for name, row in (("a.jsonl", rows[1]), ("b.jsonl", rows[0])):
        jsonl(folder, [row], name)
    assert noted(folder, "source") == [{}, {"source": "web"}]
    # What was not read may have it.
    reader = Reader(folder, ReadingOptions(notes=("source",)), limit_bytes=1)
    assert len(list(reader)) == 1 and reader.cut


@pytest.mark.parametrize(("bad", "what"), [("\\u0000", "NUL"), ("\\ud800", "surrogate")])
def test_notes_are_as_clean_as_texts(tmp_path: Path, bad: str, what: str) -> None:
    path = write(tmp_path, "a.jsonl", f'{{"text": "good", "name": "{bad}"}}\n')
    error = refusal(DataError, path, notes=("name",))
    assert what in str(error) and "line 1, field 'name'" in str(error.where)
    assert noted(path) == [{}], "the control: the field is not read"
    skipped = refusal(DataError, path, notes=("name",), on_bad="skip", max_bad_fraction=1.0)
    assert "0 documents" in str(skipped)


def test_a_note_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra data")
    bad = pyarrow.array([b"\xff"]).view(pyarrow.string())
    path = arrow(tmp_path, pyarrow.table({"text": ["a"], "name": bad}), ".parquet")
    error = refusal(DataError, path, notes=("name",))
    assert error.what == "not utf-8" and "row 1, column 'name', byte 0" in str(error.where)
    assert noted(path) == [{}]
    assert noted(path, "*", on_undecodable="replace") == [{"name": "\ufffd"}]


def spooled(count: int) -> list[Document]:
    notes = ({}, {"a": "1", "☃": "x\ny"})
    return [
        Document(f"text {n} ☃\n\ttwo\r " + "x" * n, f"b\udcff{n % 3}.txt", f"a:{n}", notes[n % 2])
        for n in range(count)
    ]


@pytest.mark.parametrize("in_memory", [1 << 20, 100])
def test_they_come_back_in_order_as_often_as_asked(
    in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "IN_MEMORY", in_memory)
    spool, added = Spool(tmp_path / "not" / "there"), spooled(60)
    for document in added:
        spool.add(document)
    assert list(spool) == list(spool) == added
    assert list(zip(spool, spool, strict=True)) == list(zip(added, added, strict=True))
    spool.add(added[0])
    assert list(spool) == [*added, added[0]] and spool.complete
    assert not list(tmp_path.iterdir()), "a killed process leaves nothing"


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(spool._file, "write", full)
    with pytest.raises(StoppedError, match="full"):
        spool.add(spooled(1)[0])
