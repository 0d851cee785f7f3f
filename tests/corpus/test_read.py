"""What good files become: documents with the right text, source and id, whatever their kind."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import random
from pathlib import Path

import pytest

from corpus.files_at_hand import SKIP, documents, lines_of, refusal, texts, write
from maskwright.base.errors import ConfigError, DataError, OutputError, UsageError
from maskwright.text.corpus.files import STEP
from maskwright.text.corpus.read import Reader, read
from maskwright.text.corpus.reading import Document, ReadingOptions


def test_blank_lines_separate_documents(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n\none\ntwo\n\n \t\n\nthree\n   four\n\n")
    assert documents(path) == [
        Document("one\ntwo", str(path), f"{path}:3"),
        Document("three\n   four", str(path), f"{path}:8"),
    ]


def test_lines_and_whole_files(tmp_path: Path) -> None:
    path = write(tmp_path, "a.md", "one\n\n  two\nthree")
    assert texts(path, form="line") == ["one", "  two", "three"]
    assert lines_of(path, form="line") == [1, 3, 4]
    assert texts(path, form="file") == ["one\n\n  two\nthree"]
    assert lines_of(path, form="file") == [1]


def test_documents_reach_over_blocks_with_exact_lines(tmp_path: Path) -> None:
    # Documents around the size of a reading step, gaps of every kind at its borders.
    random.seed(7)
    lines: list[str] = []
    wanted: list[tuple[int, str]] = []
    while len(wanted) < 40:
        lines += random.choice([[""], ["", " "], ["\t", "", ""]])
        size = 1 << random.choice([0, 4, 9, 13])
        body = [f"{len(wanted)} {'x' * random.randrange(200)}" for _ in range(size)]
        wanted.append((len(lines) + 1, "\n".join(body)))
        lines += body
    path = write(tmp_path, "a.txt", "\n".join(lines) + "\n")
    assert path.stat().st_size > 3 * STEP
    assert [(int(d.id.rpartition(":")[2]), d.text) for d in documents(path)] == wanted


@pytest.mark.parametrize("form", ["blank-line", "line", "file"])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random.seed(3)
    text = "".join(random.choice(["a", "bc", "é", "\n", "\n", "\n \n", " "]) for _ in range(3000))
    path = write(tmp_path, "a.txt", text)
    whole = documents(path, form=form)
    for size in (1, 2, 3, 7, 64, 1000):
        for module in ("files", "read"):
            monkeypatch.setattr(f"maskwright.text.corpus.{module}.STEP", size)
        assert documents(path, form=form) == whole


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"text": "one\ntwo", "n": 1}, {"n": [1, {"a": 2.5}], "text": 'é 😀 \\ "'}]
    data = json.dumps(rows[0]) + "\n\n" + json.dumps(rows[1])
    for name in ("a.jsonl", "a.ndjson", "a.json"):
        path = write(tmp_path, name, data)
        assert texts(path) == [row["text"] for row in rows]
        assert lines_of(path) == [1, 3]
    assert texts(write(tmp_path, "b.jsonl", '{"body": "x"}'), column="body") == ["x"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_tables(tmp_path: Path, name: str) -> None:
    held = io.StringIO()
    writer = csv.writer(held, delimiter="\t" if name == "a.tsv" else ",", lineterminator="\n")
    rows = ["one", 'two\nlines, "quoted"', "x" * 200_000, "last\tone"]
    writer.writerows([["id", "text"], *([i, row] for i, row in enumerate(rows))])
    path = write(tmp_path, name, held.getvalue())
    before = csv.field_size_limit()
    assert texts(path) == rows
    assert lines_of(path) == [2, 3, 5, 6]
    assert csv.field_size_limit() == before  # the process's own limit is left as it was


ROWS = ["one", "two\nlines", " ", *(f"row {i}" for i in range(1000))]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet(tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    index = (pyarrow.int32(), pyarrow.string()) if kind == "dictionary" else ()
    column = pyarrow.array(ROWS).cast(getattr(pyarrow, kind)(*index))
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": column, "n": range(len(ROWS))}), path)
    assert texts(path) == [row for row in ROWS if row.strip()]
    assert documents(path)[2].id == f"{path}#4"


@pytest.mark.parametrize("form", ["new_stream", "new_file"])
def test_arrow(form: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    table = pyarrow.table({"text": ROWS, "n": range(len(ROWS))})
    path, make = tmp_path / "a.arrow", getattr(pyarrow.ipc, form)
    with pyarrow.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    assert texts(path) == [row for row in ROWS if row.strip()]
    path.write_bytes(path.read_bytes()[:-9])  # a stream may end between two messages
    assert "cut off" in refusal(DataError, path).what
    path.write_bytes(b"text\n" * 9)
    refusal(DataError, path)


def test_compressed_files_read_like_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the extra `data` is not installed")
    random.seed(1)
    rows = [str(random.random()) for _ in range(20_000)]
    data = "".join(json.dumps({"text": row}) + "\n" for row in rows).encode()
    first, second = data[: len(data) // 2], data[len(data) // 2 :]
    packed = {
        "a.jsonl.gz": gzip.compress(data, 1),
        "two-members.JSONL.GZ": gzip.compress(first, 1) + gzip.compress(second, 1) + b"\0\0",
        "a.jsonl.zst": zstandard.compress(data),
        "two-frames.jsonl.zst": zstandard.compress(first) + zstandard.compress(second),
    }
    for step in ("files.STEP", "read.STEP"):
        monkeypatch.setattr(f"maskwright.text.corpus.{step}", 1 << 16)
    for name, content in packed.items():
        assert texts(write(tmp_path, name, content)) == rows, name


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "naïve café\n\nÜber"),
        ("cp1252", "“quoted” – dash\n\n€"),
        ("utf-16", "naïve 😀\n\nzwei"),
        ("utf-16-le", "naïve 😀\n\nzwei"),
        ("utf-32", "naïve 😀\n\nzwei"),
        ("shift_jis", "日本語\n\nテキスト"),
        ("gb18030", "中文\n\n文本"),
        ("koi8-r", "текст\n\nещё"),
    ],
)
def test_other_encodings(
    tmp_path: Path, encoding: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.txt", text.encode(encoding))
    assert texts(path, encoding=encoding) == text.split("\n\n")
    monkeypatch.setattr("maskwright.text.corpus.files.STEP", 1)  # characters cut anywhere
    assert texts(path, encoding=encoding) == text.split("\n\n")


def test_folders_are_read_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/B.txt", ".hidden.txt", ".git/x.txt", "notes.log"):
        write(tmp_path, name, name)
    write(tmp_path, "c.jsonl", '{"text": "c.jsonl"}')
    reader = Reader(tmp_path)
    assert [d.text for d in reader] == ["a/B.txt", "a/z.txt", "b.txt", "c.jsonl"]
    assert reader.counts.ignored.files == [str(tmp_path / "notes.log")]
    assert "another kind" in " ".join(map(str, reader.counts.findings))
    both = Reader([tmp_path / "b.txt", str(tmp_path / "a")])
    assert [d.text for d in both] == ["b.txt", "a/B.txt", "a/z.txt"]


def test_counts_and_hashes(tmp_path: Path) -> None:
    data = b'{"text": "x"}\n\n{"text": "  "}\n{"text": 3}\n'
    path = write(tmp_path, "a.jsonl.gz", gzip.compress(data))
    reader = Reader(path, SKIP)
    assert len(list(reader)) == len(list(reader)) == 1  # counted anew, not on top
    counts = reader.counts
    assert (counts.files, counts.rows, counts.documents) == (1, 4, 1)
    assert (counts.blank, counts.rejected, counts.bytes) == (2, 1, len(data))
    assert counts.hashes == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    summary = "1 document from 1 file, 4 rows, 2 blank, 1 rejected: the field is not a text"
    assert counts.summary() == summary


def test_rejects_that_cannot_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "x")
    with pytest.raises(OutputError):
        list(Reader(path, SKIP, rejects=path / "rejects.jsonl"))


def test_missing_path_is_refused_at_once_with_near_names(tmp_path: Path) -> None:
    for name in ("training.txt", "other.csv"):
        write(tmp_path, name, "x")
    for call in (Reader, read):
        with pytest.raises(UsageError) as caught:
            call(tmp_path / "trainig.txt")
        assert caught.value.exit_code == 64 and "trainig.txt" in caught.value.where
        assert "'training.txt'" in caught.value.wanted
    with pytest.raises(UsageError):
        Reader(tmp_path / "no" / "such" / "folder.txt")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("corpus.doc", r"\.txt"),
        ("corpus.page", r"\.txt"),
        ("Labels.XLSX", r"\.csv"),
        ("CC-MAIN.warc.wet.gz", "(?s)ending is unknown.*warcio"),
        ("a.WARC", "(?s)ending is unknown.*warcio"),
        ("b.pdf.gz", "(?s)ending is unknown.*save its text"),
        ("c.tar.gz", "(?s)ending is unknown.*unpack it"),
        ("d.sqlite", "(?s)ending is unknown.*export its table"),
        ("notes.gz", "(?s)ending is unknown.*plain text"),
    ],
)
def test_paths_that_say_no_kind(tmp_path: Path, name: str, advice: str) -> None:
    path = write(tmp_path, name, "x")
    with pytest.raises(UsageError, match=advice):
        Reader(path)
    with pytest.raises(UsageError):
        Reader(tmp_path)


def test_paths_that_are_none(tmp_path: Path) -> None:
    packed = write(tmp_path, "a.parquet.gz", gzip.compress(b"PAR1"))
    with pytest.raises(UsageError):
        list(Reader(packed))
    for path in ([], "a\0b.txt", ""):
        with pytest.raises(UsageError):
            Reader(path)


def test_other_formats_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Reader(write(tmp_path, "other/data", b"SQLite format 3\0"))
    warc = b"WARC/1.0\r\nWARC-Type: warcinfo\r\n\r\n"
    with pytest.raises(DataError, match=r"(?s)WARC data.*warcio"):
        list(Reader(write(tmp_path, "other/renamed.txt", warc)))
    assert len(list(Reader(write(tmp_path, "other/about.txt", "WARC/1.0 is a format")))) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("form", "lines"),
        ("on_bad", "ignore"),
        ("on_nul", "keep"),
        ("on_undecodable", "ignore"),
        ("max_bad_fraction", 1.5),
        ("max_line_bytes", 0),
        *(("separator", ";;"), ("separator", '"')),
        *(("encoding", "utf-61"), ("encoding", "idna"), ("encoding", "rot13")),
        *(("notes", ("text",)), ("notes", ("a", "a"))),
        *(("escapechar", "ab"), ("escapechar", ""), ("escapechar", '"'), ("escapechar", "\n")),
    ],
)
def test_choices_are_checked_when_made(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadingOptions(**{name: value})
    assert caught.value.where == name and caught.value.wanted


def test_files_may_call_their_text_differently(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path, "a.jsonl", '{"text": "one", "body": "of it"}\n{"body": "two", "n": 1}\n')
    write(tmp_path, "b.csv", 'body,"a,b"\nthree,x\n')
    parquet.write_table(pyarrow.table({"n": [1], "content": ["four"]}), tmp_path / "c.parquet")
    found = documents(tmp_path, column="text, content,body", notes=("*",))
    assert [d.text for d in found] == ["one", "two", "three", "four"]
    assert [d.notes for d in found] == [{"body": "of it"}, {"n": "1"}, {"a,b": "x"}, {"n": "1"}]
    assert texts(tmp_path / "b.csv", column="a,b") == ["x"]
    with pytest.raises(DataError, match="missing") as refusal:
        documents(tmp_path, column="text,content")
    assert "column=text,body" in str(refusal.value.do)
