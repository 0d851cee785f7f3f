"""Fault catalogue D, files: binary ones, endless lines, bombs, FIFOs, files that change."""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import time
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from corpus.files_at_hand import SKIP, documents, lines_of, refusal, texts, write
from maskwright.base.errors import DataError, StorageError, UsageError
from maskwright.text.corpus.files import STEP, find_all
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.sniff import MADE_OF, MAGIC


def rise(path: Path, **choices: object) -> tuple[str, float]:
    """(what was said, MiB of memory in use at the worst moment of reading `path`)."""
    what = "read"
    tracemalloc.start()
    try:
        for _ in Reader(path, ReadingOptions(**choices)):
            pass
    except DataError as error:
        what = error.what
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return what, peak / (1 << 20)


# ------------------------------------------------------------------------------ F57 endless lines
@pytest.mark.parametrize(
    ("name", "first"), [("a.txt", "x\n"), ("a.jsonl", '{"text": "x"}\n'), ("a.csv", "text\nx\n")]
)
def test_F57_an_endless_line_is_an_error_in_bounded_memory(
    tmp_path: Path, name: str, first: str
) -> None:
    path = write(tmp_path, name, first + "x" * (64 << 20))
    error = refusal(DataError, path)
    assert error.where == f"{path}, line {first.count(chr(10)) + 1}"
    size = int(error.found.split()[2].replace(",", ""))
    assert 16 << 20 < size <= (16 << 20) + STEP
    assert error.wanted == "at most 16,777,216 bytes (max_line_bytes)"
    what, mib = rise(path)
    assert what == "the line is too long" and mib <= 40
    what, mib = rise(path, on_bad="skip", max_bad_fraction=1)
    assert what in ("read", "the corpus has 0 documents") and mib <= 40


def test_F57_the_measurement_sees_a_reader_that_holds_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"x" * (64 << 20))
    what, mib = rise(path, max_line_bytes=1 << 30, max_document_characters=1 << 30)
    assert what == "read" and mib >= 64


def test_F57_skipped_lines_leave_the_numbers_exact(tmp_path: Path) -> None:
    random.seed(2)
    sizes = [random.choice([3, 5000, 3 * STEP]) if n % 3 else 2 for n in range(30)]
    path = write(tmp_path, "a.txt", b"\n".join(b"x" * size for size in sizes))
    rejects = tmp_path / "rejects.jsonl"
    reader = Reader(path, replace(SKIP, form="line", max_line_bytes=4096), rejects)
    short = [n for n, size in enumerate(sizes, 1) if size <= 4096]
    assert [d.id for d in reader] == [f"{path}:{n}" for n in short]
    listed = map(json.loads, rejects.read_text().splitlines())
    assert [(r["line"], int(r["found"].split()[0].replace(",", ""))) for r in listed] == [
        (n, size) for n, size in enumerate(sizes, 1) if size > 4096
    ]
    assert reader.counts.rows == 30


def test_F57_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"y\n" + b"x" * 4096 + b"\n" + b"x" * 4096)
    assert lines_of(path, form="line", max_line_bytes=4096) == [1, 2, 3]
    error = refusal(DataError, path, form="line", max_line_bytes=4095)
    assert error.where == f"{path}, line 2" and "4,096 bytes" in error.found


def test_F57_a_document_without_blank_lines_is_bounded_too(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "short\n\n" + "line\n" * 1000 + "\nlast\n")
    limit = {"max_document_characters": 1000}
    error = refusal(DataError, path, **limit)
    assert error.where == f"{path}, line 3" and "form='line'" in error.do
    assert texts(path, on_bad="skip", max_bad_fraction=1, **limit) == ["short", "last"]
    assert "form='line'" in refusal(DataError, path, form="file", **limit).do


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.txt", "", "word " * 400 + "\n\n"),
        ("a.csv", "text\n", '"' + "a,b " * 500 + '"\n'),
        ("a.jsonl", "", json.dumps({"text": "word " * 400}) + "\n"),
        ("a.jsonl.gz", "", json.dumps({"text": "word " * 400}) + "\n"),
    ],
)
def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, name: str, header: str, row: str
) -> None:
    data = (header + row * (16 * STEP // len(row))).encode()
    path = write(tmp_path, name, gzip.compress(data, 1) if name.endswith("gz") else data)
    what, mib = rise(path, max_expansion=10_000)
    assert what == "read" and mib <= 12


# ------------------------------------------------------------------------------ F60 binary files
RANDOM = random.Random(0).randbytes(6000)
KINDS = {
    **{name: b"\0" * place + magic + RANDOM for place, magic, name in MAGIC},
    "PDF": b"%PDF-1.4\nplain words only\n" * 30,
    "gzip": gzip.compress(b"hello " * 100),
    "zip": b"PK\x03\x04" + RANDOM,
    "WARC": b"WARC/1.1\r\nWARC-Type: warcinfo\r\n",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.txt.gz"])
def test_F60_a_binary_file_is_named(tmp_path: Path, kind: str, name: str) -> None:
    data = KINDS[kind]
    path = write(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    error = refusal(DataError, path)
    assert error.where == str(path)
    assert error.found.startswith(f"{kind} data (begins with {data[:8].hex(' ')}")
    assert error.do == MADE_OF.get(kind, "take the text out of it first, or leave it out")


ODD = [RANDOM, b"\x01\x02" + RANDOM, bytes(5000), bytes(range(256)) * 20]
ODD += [zlib.compress(RANDOM.hex().encode())[begin:] for begin in (0, 2)]  # zlib, raw deflate


@pytest.mark.parametrize("data", ODD, ids=range(len(ODD)))
def test_F60_binary_data_of_no_known_kind(tmp_path: Path, data: bytes) -> None:
    assert "binary data" in refusal(DataError, write(tmp_path, "a.txt", data)).found


@pytest.mark.parametrize(
    "text", ["MZ is a mark", "BZh", "GIF89a is a format", "PAR1\ntext", "RIFF raff", "ID3", "OggS"]
)
def test_F60_text_that_begins_like_a_format_is_text(tmp_path: Path, text: str) -> None:
    assert texts(write(tmp_path, "a.txt", text), form="file") == [text]


@pytest.mark.parametrize(
    ("encoding", "text", "byte"),
    [("cp1251", "Привет, мир. ", 0), ("cp1252", "déjà vu ", 1), ("gb18030", "中文", 0)],
)
def test_F60_a_text_in_another_encoding_is_not_called_binary(
    tmp_path: Path, encoding: str, text: str, byte: int
) -> None:
    error = refusal(DataError, write(tmp_path, "a.txt", (text * 50).encode(encoding)))
    assert error.what == "not utf-8" and error.where.endswith(f"line 1, byte {byte}")


# ------------------------------------------------------------------------------ F61 compressed
def packed(packing: str, data: bytes) -> bytes:
    if packing == "gz":
        return gzip.compress(data)
    zstandard = pytest.importorskip("zstandard", reason="the extra `data` is not installed")
    return zstandard.compress(data)


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_F61_a_bomb_is_stopped_early_in_bounded_memory(tmp_path: Path, packing: str) -> None:
    data = packed(packing, (b"x" * 1000 + b"\n") * 40_000)
    path = write(tmp_path, f"a.txt.{packing}", data)
    error = refusal(DataError, path)
    assert error.where == str(path)
    numbers = error.found.replace(",", "").split()
    # Looked at from 16 MiB on; at most one step more than allowed comes out.
    assert 16 << 20 < int(numbers[0]) <= max(16 << 20, 100 * len(data)) + (17 << 20)
    assert int(numbers[-1]) == len(data)
    if packing == "gz":
        what, mib = rise(path)
        assert what == error.what and mib <= 40
    assert len(texts(path, form="line", max_expansion=100_000)) == 40_000  # the remedy works
    error = refusal(DataError, path, max_expanded_bytes=1000)
    assert error.wanted == "at most 1,000 bytes (max_expanded_bytes)"


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_F61_a_file_cut_off_anywhere_is_noticed(tmp_path: Path, packing: str) -> None:
    data = "".join(f"{n} words and numbers {n * n}\n" for n in range(300)).encode()
    whole, name = packed(packing, data) * 2, f"a.txt.{packing}"
    half = len(whole) // 2
    assert len(texts(write(tmp_path, name, whole), form="line")) == 600
    for length in [*range(8, half - 1, 41), *range(half + 8, len(whole), 41), len(whole) - 1]:
        error = refusal(DataError, write(tmp_path, name, whole[:length]), form="line")
        assert error.where == f"{tmp_path / name}, member {1 if length < half else 2}"
        assert "again" in error.do


WHOLE = gzip.compress(b"some words\n" * 50)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.txt.gz", WHOLE[:-6] + bytes([WHOLE[-6] ^ 1]) + WHOLE[-5:], "a.txt.gz, member 1"),
        ("a.txt.gz", WHOLE + b"rubbish", "a.txt.gz, member 2"),
        ("a.txt.gz", b"plain words", "70 6c 61 69"),
        ("a.txt.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "a.txt.zst"),
        ("a.txt.zst", b"words", "a.txt.zst"),
    ],
    ids=["checksum", "rubbish behind", "plain", "zstd", "no zstd"],
)
def test_F61_damaged_compressed_files(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    if name.endswith("zst"):
        pytest.importorskip("zstandard", reason="the extra `data` is not installed")
    error = refusal(DataError, write(tmp_path, name, data))
    assert said in f"{error.where} {error.found}"


# ------------------------------------------------------------------------------ F62 special files
def test_F62_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.txt")
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
    start = time.monotonic()
    kinds = {"a.txt": "a FIFO (named pipe)", "b.txt": "a socket", "/dev/null": "a character device"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("b.txt")
        for name, kind in kinds.items():
            with pytest.raises(UsageError) as caught:
                Reader(name)
            assert (caught.value.where, caught.value.found) == (name, kind)
            assert caught.value.wanted == "a regular file" and caught.value.exit_code == 64
        with pytest.raises(UsageError, match="FIFO"):
            Reader(tmp_path)
    assert time.monotonic() - start < 1


def test_F62_a_fifo_that_takes_a_files_place_does_not_hang(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "x")
    reader = Reader(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="FIFO"):
        list(reader)


def test_F62_loops_and_dangling_links(tmp_path: Path) -> None:
    write(tmp_path, "a/b/c.txt", "x")
    link = tmp_path / "a" / "b" / "up"
    for target in (tmp_path / "a", link, tmp_path / "gone.txt"):
        link.symlink_to(target)
        with pytest.raises(UsageError) as caught:
            Reader(link if target.name == "gone.txt" else tmp_path)
        assert str(link) in str(caught.value)
        link.unlink()
    (tmp_path / "a" / "twice").symlink_to(tmp_path / "a" / "b")  # no loop: read by both names
    assert len(documents(tmp_path)) == 2


def test_a_file_beside_its_compressed_copy_does_not_count_twice(tmp_path: Path) -> None:
    write(tmp_path, "a/b.txt", "x")
    (tmp_path / "a" / "b.txt.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(UsageError) as caught:
        Reader(tmp_path)
    assert caught.value.where == str(tmp_path / "a") and "b.txt.gz" in str(caught.value.found)


# ------------------------------------------------------------------------------ F63 change
def appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("more\n")


def replaced(path: Path) -> None:
    data = path.read_bytes()
    path.rename(path.with_name("old"))
    path.write_bytes(data)


@pytest.mark.parametrize(
    "change", [appended, replaced, Path.unlink, lambda path: os.utime(path, (1, 1))]
)
def test_F63_a_file_that_changes_is_noticed(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = write(tmp_path, "a.txt", "line\n\n" * 1000)
    reader = iter(Reader(path))
    next(reader)
    change(path)
    with pytest.raises(DataError) as caught:
        list(reader)
    assert caught.value.where == str(path) and "copy" in caught.value.do
    if change is appended:
        assert caught.value.found == "6,000 bytes before, 6,005 bytes after"


def test_a_disk_that_fails_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(write(tmp_path, "a.txt", "words"))
    failing = Mock(side_effect=OSError(5, "Input/output error"))
    monkeypatch.setattr("maskwright.text.corpus.files.os.read", failing)
    with pytest.raises(StorageError) as caught:
        list(reader)
    assert caught.value.where == str(tmp_path / "a.txt") and caught.value.exit_code == 74


def test_names_with_control_characters_are_shown_escaped(tmp_path: Path) -> None:
    path = write(tmp_path, os.fsdecode(b"a\n\x1b[31m\xff.txt"), "words\n")
    assert documents(path)[0].source == str(tmp_path / "a") + "\\n\\x1b[31m\\udcff.txt"
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError) as caught:
        list(Reader(path, SKIP, rejects=tmp_path / "rejects.jsonl"))
    assert "\x1b" not in str(caught.value)


# ------------------------------------------------------------------------------ links that lead out
@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with texts beside the one that is read."""
    write(tmp_path, "outside/secret.txt", "secret")
    write(tmp_path, "inside/a.txt", "own")
    return tmp_path / "outside"


LINKS = {
    "a file": ("link.txt", "../outside/secret.txt"),
    "a folder": ("link", "../outside"),
    "by its whole path": ("link.txt", "{outside}/secret.txt"),
    "from below": ("deep/link.txt", "../../outside/secret.txt"),
    "through another link": ("link.txt", "other"),
    "the folder above": ("link", ".."),
    "of another kind": ("link", "../outside/secret.txt"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_out_of_the_folder_is_not_followed_and_said(
    tmp_path: Path, outside: Path, kind: str
) -> None:
    inside = tmp_path / "inside"
    name, target = LINKS[kind]
    (inside / "deep").mkdir()
    (inside / name).symlink_to(target.format(outside=outside))
    links = {str(inside / name)}
    if target == "other":
        (inside / "other").symlink_to(outside / "secret.txt")
        links.add(str(inside / "other"))
    reader = Reader(inside)
    assert [document.text for document in reader] == ["own"]
    assert set(reader.counts.ignored.links) == links
    (finding,) = (f for f in reader.counts.findings if f.name == "links-out-of-the-folder")
    assert finding.severity == "warning" and str(inside / name) in finding.evidence
    with pytest.raises(UsageError) as error:
        find_all(inside)
    assert error.value.where in links
    (inside / "a.txt").unlink()
    with pytest.raises(UsageError) as error:
        Reader(inside)
    assert name.split("/")[-1] in str(error.value.found), "a folder of links alone"


def test_other_links_are_followed(tmp_path: Path, outside: Path) -> None:
    """Within the folder; one that is named; the folder itself; the blobs of a download cache."""
    inside, snapshot = tmp_path / "inside", tmp_path / "cache/snapshots/abc/data"
    write(tmp_path, "cache/blobs/123", "cached")
    snapshot.mkdir(parents=True)
    (inside / "again.txt").symlink_to("a.txt")
    (tmp_path / "named.txt").symlink_to(outside / "secret.txt")
    (tmp_path / "named").symlink_to(inside)
    (snapshot / "a.txt").symlink_to("../../../blobs/123")
    assert texts(inside) == texts(tmp_path / "named") == ["own", "own"]
    assert texts(tmp_path / "named.txt") == ["secret"]
    assert texts(snapshot) == texts(snapshot.parent) == ["cached"]
