"""Any bytes at all become documents or one of our own errors: nothing else comes out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpus.files_at_hand import write
from maskwright.base.errors import MaskwrightError
from maskwright.text.corpus.lines import CONTROLS
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import Document, ReadingOptions
from maskwright.text.tables.files import load

NAMES = ["a.txt", "a.md", "a.jsonl", "a.json", "a.csv", "a.tsv"]
NAMES += ["a.txt.gz", "a.csv.gz", "a.txt.zst"]
# Pieces that mean something to one of the readers.
PIECES = [
    *(b"\n", b"\r\n", b"\r", b"\n\n", b'"', b'""', b",", b"\t", b";", b"text", b"text,id\n", b"\0"),
    *(b'{"text": "', b'"}\n', b"{", b"}", b"[", b"]", b":", b"\\", b"\\u", b"\\ud83d", b"\\u0000"),
    *(b"NaN", b"1e999", b"9" * 30, b"true", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff"),
    *(b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\x85", b"\x1b"),
    *(b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1", b"%PDF-", b"x" * 50, b"word "),
]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-16", "utf-32-be", "cp1252", "gb18030"]
READINGS = st.builds(
    ReadingOptions,
    form=st.sampled_from(["auto", "file", "line"]),
    encoding=st.sampled_from(ENCODINGS),
    on_bad=st.sampled_from(["strict", "skip"]),
    max_bad_fraction=st.sampled_from([0.01, 1.0]),
    on_undecodable=st.sampled_from(["bad", "replace"]),
    on_nul=st.sampled_from(["error", "strip"]),
    max_line_bytes=st.sampled_from([1, 10, 1 << 20]),
    max_document_characters=st.sampled_from([1, 20, 1 << 20]),
    separator=st.sampled_from([None, ";", "\t", "é"]),
    quoting=st.booleans(),
)
DATA = st.binary(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


@settings(max_examples=400)
@given(data=DATA, name=st.sampled_from(NAMES), reading=READINGS, packed=st.booleans())
@example(data=b'text\n"', name="a.csv", reading=ReadingOptions(), packed=False)
def test_any_bytes_are_documents_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    name: str,
    reading: ReadingOptions,
    packed: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    if packed and name.endswith(".gz"):
        data = gzip.compress(data)
    path = write(folder, name, data)
    reader = Reader(path, reading, rejects=folder / "rejects.jsonl")
    found = []
    try:
        found = list(reader)
    except MaskwrightError as error:
        assert error.exit_code in (64, 65)
        assert error.where and path.name in error.where and (error.wanted or error.do)
        assert (len(str(error)) < 4096 and str(error).isprintable()) or "\n" in str(error)
    for document in found:
        assert type(document) is Document and document.text.strip()
        assert not {"\0", *map(chr, CONTROLS)} & set(document.text)
        document.text.encode()
        assert document.source == str(path) and document.id.startswith(f"{path}:")
    counts = reader.counts
    assert counts.documents >= len(found)
    listed = folder / "rejects.jsonl"
    if reading.on_bad == "skip" and found:
        assert len(listed.read_text().splitlines()) <= counts.rejected
    if reading.on_bad == "strict":
        assert counts.rejected == 0


def assert_ours(path: Path) -> None:
    for read in (lambda: list(Reader(path)), lambda: load(path)):
        try:
            read()
        except MaskwrightError as error:
            assert error.exit_code == 65 and error.where


@settings(max_examples=60)
@given(data=st.binary(max_size=300), cut=st.integers(0, 600))
def test_any_bytes_of_columns_are_documents_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.getbasetemp()
    table = pyarrow.table({"text": ["words", "more"], "list": [["a"], []]})
    packed, stream = pyarrow.BufferOutputStream(), pyarrow.BufferOutputStream()
    parquet.write_table(table, packed)
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    whole = packed.getvalue().to_pybytes()
    for content in (b"PAR1" + data + b"PAR1", whole[:cut] + whole[cut + len(data) % 7 :]):
        assert_ours(write(folder, "a.parquet", content))
    whole = stream.getvalue().to_pybytes()
    some = data[:9]
    assert_ours(write(folder, "a.arrow", whole[: cut + 8] + some + whole[cut + 8 + len(some) :]))


def test_the_check_would_see_another_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with one guard taken away, a plain exception does come out."""
    path = write(tmp_path, "a.jsonl", '{"text": "a", "x": ' + "9" * 5000 + "}\n")
    with pytest.raises(MaskwrightError):
        list(Reader(path))
    monkeypatch.setattr("maskwright.text.corpus.jsonl.parse", __import__("json").loads)
    with pytest.raises(ValueError, match="digits"):
        list(Reader(path))
