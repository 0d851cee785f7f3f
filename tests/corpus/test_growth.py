"""Costs of reading: doubling one dimension of the files at most doubles them, and some."""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.files_at_hand import write
from growth import LIMIT, growth
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions

SKIP = {"on_bad": "skip", "max_bad_fraction": 1.0}
EVERY = {"notes": ("*",)}
Input = tuple[str, bytes | dict[str, list[Any]], dict[str, Any]]


def text(count: int, paragraphs: int = 1) -> bytes:
    return b"\n\n".join([b"some words of a text " * count] * paragraphs)


def table(columns: int, rows: int) -> bytes:
    header = ",".join(["text", *(f"c{n}" for n in range(columns))])
    row = ",".join(["words", *["1"] * columns])
    return "\n".join([header, *[row] * rows]).encode()


def objects(columns: int, rows: int) -> bytes:
    notes = {f"c{n}": 1 for n in range(columns)}
    return "\n".join(json.dumps({"text": "words", **notes}) for _ in range(rows)).encode()


def own_keys(rows: int) -> bytes:
    return "\n".join(json.dumps({"text": "words", f"c{n}": 1}) for n in range(rows)).encode()


def arrow(columns: int, rows: int) -> dict[str, list[Any]]:
    return {"text": ["words"] * rows, **{f"c{n}": [1] * rows for n in range(columns)}}


# Of a count: the name of a file, its content, and how it is read.
INPUTS: dict[str, Callable[[int], Input]] = {
    "documents of a text": lambda n: ("a.txt", text(1, n), {}),
    "length of a document": lambda n: ("a.txt", text(50 * n), {}),
    "lines that end in CR": lambda n: ("a.txt", b"words\r" * 50 * n, {}),
    "CR alone": lambda n: ("a.txt", b"\r" * 4_000 * n + b"words", {}),
    "lines that are no text": lambda n: ("a.txt", b"words\n\n\xff\n\n" * n, SKIP),
    "lines of blanks": lambda n: ("a.txt", b"words\n" + b"   \n" * 50 * n + b"words", {}),
    "small members of gzip": lambda n: ("a.txt.gz", gzip.compress(b"words\n\n") * n, {}),
    "rows of a table": lambda n: ("a.csv", table(1, n), EVERY),
    "columns of a table": lambda n: ("a.csv", table(20 * n, 2), EVERY),
    "rows of a wrong width": lambda n: ("a.csv", table(1, 2) + b"\na,b,c" * n, SKIP),
    "objects": lambda n: ("a.jsonl", objects(1, n), EVERY),
    "fields of an object": lambda n: ("a.jsonl", objects(5 * n, 2), EVERY),
    "fields of their own": lambda n: ("a.jsonl", own_keys(n), EVERY),
    "objects without a text": lambda n: ("a.jsonl", objects(1, 2) + b'\n{"a": 1}' * n, SKIP),
    "rows of parquet": lambda n: ("a.parquet", arrow(1, n), EVERY),
    "columns of parquet": lambda n: ("a.parquet", arrow(n, 2), EVERY),
    "columns of arrow": lambda n: ("a.arrow", arrow(n, 2), EVERY),
}


@pytest.mark.parametrize("dimension", INPUTS)
def test_of_a_file(dimension: str, tmp_path: Path) -> None:
    def make(count: int) -> Callable[[], None]:
        name, content, choices = INPUTS[dimension](count)
        path = tmp_path / f"{count}-{name}"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith("parquet"):
            pq.write_table(pa.table(content), path)
        else:
            whole = pa.table(content)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as out:
                out.write_table(whole)
        return lambda: deque(Reader(path, ReadingOptions(**choices)), maxlen=0)

    assert growth(make, 60) <= LIMIT


@pytest.mark.parametrize("kind", ["texts", "empty", "other", "saved", "links"])
def test_of_the_files_of_a_folder(kind: str, tmp_path: Path) -> None:
    def make(count: int) -> Callable[[], None]:
        folder = tmp_path / str(count)
        if not folder.exists():
            write(folder, "a.txt", "words")
            for number in range(count):
                add(folder, number)

        def read() -> None:
            reader = Reader(folder)
            assert sum(1 for _ in reader) > 0 and reader.counts.findings is not None

        return read

    def add(folder: Path, number: int) -> None:
        if kind == "saved":
            listed = json.dumps({"_data_files": [{"filename": "a.txt"}]})
            write(folder, f"part-{number}/state.json", listed)
            write(folder, f"part-{number}/a.txt", "words")
        elif kind == "links":
            (folder / f"{number}.txt").symlink_to(tmp_path)
        else:
            ending = "dat" if kind == "other" else "txt"
            write(folder, f"{number}.{ending}", "words" if kind == "texts" else "")

    assert growth(make, 24) <= LIMIT


def test_the_measure_sees_a_square() -> None:
    def make(count: int) -> Callable[[], object]:
        names = [f"c{n}" for n in range(20 * count)]
        return lambda: [names.count(name) for name in names]

    assert growth(make, 30) > LIMIT
