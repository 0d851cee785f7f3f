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
from pathlib import Path

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
        for _ in Reader(path, ReadingOptions(**choices)):  # type: ignore[arg-type]
            pass
    except DataError as error:
        what = error.what
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return what, peak / (1 << 20)


# ------------------------------------------------------------------------------ F57 endless lines
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_F57_an_endless_line_is_an_error_in_bounded_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    first = {"a.jsonl": b'{"text": "x"}\n', "a.csv": b"text\nx\n"}.get(name, b"x\n")
    with path.open("wb") as file:
        file.write(first)
        for _ in range(64):
            file.write(b"x" * STEP)
    error = refusal(DataError, path)
    assert error.where == f"{path}, line {first.count(10) + 1}"
    size = int(error.found.split()[2].replace(",", ""))
    assert 16 << 20 < size <= (16 << 20) + STEP
    assert error.wanted == "at most 16,777,216 bytes (max_line_bytes)"
    what, mib = rise(path)
    assert what == "the line is too long" and mib <= 40
    what, mib = rise(path, on_bad="skip", max_bad_fraction=1)
    assert what in ("read", "the corpus has 0 documents") and mib <= 40


def test_F57_the_measurement_sees_a_reader_that_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (64 << 20))
    what, mib = rise(path, max_line_bytes=1 << 30, max_document_characters=1 << 30)
    assert what == "read" and mib >= 64


def test_F57_skipped_lines_leave_the_numbers_exact(tmp_path: Path) -> None:
    random.seed(2)
    rows = [b"x" * random.choice([3, 5000, 3 * STEP]) if n % 3 else b"ok" for n in range(30)]
    path = write(tmp_path, "a.txt", b"\n".join(rows))
    rejects = tmp_path / "rejects.jsonl"
    reader = Reader(
        path,
        ReadingOptions(form="line", on_bad="skip", max_bad_fraction=1, max_line_bytes=4096),
        rejects,
    )
    short = [n for n, row in enumerate(rows, 1) if len(row) <= 4096]
    assert [int(d.id.rpartition(":")[2]) for d in reader] == short
    listed = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [r["line"] for r in listed] == [n for n in range(1, 31) if n not in short]
    sizes = [int(r["found"].split()[0].replace(",", "")) for r in listed]
    assert sizes == [len(row) for row in rows if len(row) > 4096]
    assert reader.counts.rows == 30


def test_F57_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"y\n" + b"x" * 4096 + b"\n" + b"x" * 4096)
    assert lines_of(path, form="line", max_line_bytes=4096) == [1, 2, 3]
    error = refusal(DataError, path, form="line", max_line_bytes=4095)
    assert error.where == f"{path}, line 2" and "4,096 bytes" in error.found


def test_F57_a_document_without_blank_lines_is_bounded_too(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "short\n\n" + "line\n" * 1000 + "\nlast\n")
    error = refusal(DataError, path, max_document_characters=1000)
    assert error.where == f"{path}, line 3"
    assert "form='line'" in error.do
    assert texts(path, max_document_characters=1000, on_bad="skip", max_bad_fraction=1) == [
        "short",
        "last",
    ]
    assert "form='line'" in refusal(DataError, path, form="file", max_document_characters=1000).do


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.jsonl.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    row = {".txt": "word " * 400 + "\n\n", ".csv": '"' + "a,b " * 500 + '"\n'}.get(
        Path(name).suffixes[0], json.dumps({"text": "word " * 400}) + "\n"
    )
    data = (("text\n" if ".csv" in name else "") + row * (16 * STEP // len(row))).encode()
    path = write(tmp_path, name, gzip.compress(data, 1) if name.endswith("gz") else data)
    what, mib = rise(path, max_expansion=10_000)
    assert what == "read" and mib <= 12


# ------------------------------------------------------------------------------ F60 binary files
RANDOM = random.Random(0).randbytes(6000)
KINDS = {
    **{name: b"\0" * place + magic + RANDOM for place, magic, name in MAGIC},
    "PDF": b"%PDF-1.4\nplain words only\n" * 30,
    "gzip": gzip.compress(b"hello " * 100),
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


def test_F60_binary_data_of_no_known_kind(tmp_path: Path) -> None:
    for data in (RANDOM, b"\x01\x02" + RANDOM, bytes(5000), bytes(range(256)) * 20):
        error = refusal(DataError, write(tmp_path, "a.txt", data))
        assert "binary data" in error.found
    for kind in ("zlib", "raw deflate"):
        packed = zlib.compress(RANDOM.hex().encode())[0 if kind == "zlib" else 2 :]
        refusal(DataError, write(tmp_path, "a.txt", packed))


@pytest.mark.parametrize(
    "text", ["MZ is a mark", "BZh", "GIF89a is a format", "PAR1\ntext", "RIFF raff", "ID3", "OggS"]
)
def test_F60_text_that_begins_like_a_format_is_text(tmp_path: Path, text: str) -> None:
    assert texts(write(tmp_path, "a.txt", text), form="file") == [text]


def test_F60_a_text_in_another_encoding_is_not_called_binary(tmp_path: Path) -> None:
    for encoding, text in (
        ("cp1251", "Привет, мир. "),
        ("cp1252", "déjà vu "),
        ("gb18030", "中文"),
    ):
        error = refusal(DataError, write(tmp_path, "a.txt", (text * 50).encode(encoding)))
        assert error.what == "not utf-8" and error.where.endswith(
            f"line 1, byte {1 if encoding == 'cp1252' else 0}"
        )


# ------------------------------------------------------------------------------ F61 compressed
def test_F61_a_bomb_is_stopped_early_in_bounded_memory(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the extra `data` is not installed")
    line = b"x" * 1000 + b"\n"
    bombs = {
        "a.txt.gz": gzip.compress(line * 40_000, 9),
        "a.txt.zst": zstandard.compress(line * 40_000),
    }
    for name, data in bombs.items():
        path = write(tmp_path, name, data)
        error = refusal(DataError, path)
        assert error.where == str(path)
        grown, packed = (
            int(n.replace(",", "")) for n in (error.found.split()[0], error.found.split()[-1])
        )
        # Looked at from 16 MiB on; at most one step more than allowed comes out.
        assert 16 << 20 < grown <= max(16 << 20, 100 * packed) + (17 << 20)
        assert packed == len(data)
        if name.endswith(".gz"):
            what, mib = rise(path)
            assert what == error.what and mib <= 40
        assert len(texts(path, form="line", max_expansion=100_000)) == 40_000  # the remedy works
        error = refusal(DataError, path, max_expanded_bytes=1000)
        assert error.wanted == "at most 1,000 bytes (max_expanded_bytes)"


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_F61_a_file_cut_off_anywhere_is_noticed(tmp_path: Path, packing: str) -> None:
    data = "".join(f"{n} words and numbers {n * n}\n" for n in range(300)).encode()
    if packing == "gzip":
        whole, name = gzip.compress(data) + gzip.compress(data), "a.txt.gz"
    else:
        zstandard = pytest.importorskip("zstandard", reason="the extra `data` is not installed")
        whole, name = zstandard.compress(data) + zstandard.compress(data), "a.txt.zst"
    half = len(whole) // 2
    assert len(texts(write(tmp_path, name, whole), form="line")) == 600
    for length in [*range(8, half - 1, 41), *range(half + 8, len(whole), 41), len(whole) - 1]:
        path = write(tmp_path, name, whole[:length])
        error = refusal(DataError, path, form="line")
        assert error.where == f"{path}, member {1 if length < half else 2}"
        assert "again" in error.do


def test_F61_damaged_compressed_files(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"some words\n" * 50))
    whole[-6] ^= 1  # the checksum
    error = refusal(DataError, write(tmp_path, "a.txt.gz", bytes(whole)))
    assert error.where.endswith("a.txt.gz, member 1")
    error = refusal(DataError, write(tmp_path, "b.txt.gz", gzip.compress(b"words\n") + b"rubbish"))
    assert error.where.endswith("member 2")
    error = refusal(DataError, write(tmp_path, "c.txt.gz", b"plain words"))
    assert "70 6c 61 69" in error.found
    pytest.importorskip("zstandard", reason="the extra `data` is not installed")
    error = refusal(DataError, write(tmp_path, "d.txt.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 50))
    refusal(DataError, write(tmp_path, "e.txt.zst", b"words"))


def test_F61_archives_inside_are_not_opened(tmp_path: Path) -> None:
    nested = gzip.compress(gzip.compress(b"words\n" * 100))
    assert "gzip data" in refusal(DataError, write(tmp_path, "a.txt.gz", nested)).found
    import io
    import zipfile

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("../escaped.txt", "words")
    assert (
        "zip data"
        in refusal(DataError, write(tmp_path, "b.txt.gz", gzip.compress(held.getvalue()))).found
    )
    assert not (tmp_path.parent / "escaped.txt").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt.gz", "b.txt.gz"]


# ------------------------------------------------------------------------------ F62 special files
def test_F62_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.txt")
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("b.txt")
    start = time.monotonic()
    for name, kind in (
        ("a.txt", "a FIFO (named pipe)"),
        ("b.txt", "a socket"),
        ("/dev/null", "a character device"),
    ):
        with pytest.raises(UsageError) as caught:
            Reader(name)
        error = caught.value
        assert (error.where, error.found) == (name, kind)
        assert error.wanted == "a regular file" and error.exit_code == 64
    with pytest.raises(UsageError, match="FIFO"):
        Reader(tmp_path)
    assert time.monotonic() - start < 1
    listener.close()


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
    link.symlink_to(tmp_path / "a")
    with pytest.raises(UsageError) as caught:
        Reader(tmp_path)
    assert caught.value.where == str(link)
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(UsageError):
        Reader(tmp_path)
    link.unlink()
    link.symlink_to(tmp_path / "gone.txt")
    with pytest.raises(UsageError):
        Reader(link)
    link.unlink()
    (tmp_path / "a" / "twice").symlink_to(tmp_path / "a" / "b")  # no loop: read by both names
    assert len(documents(tmp_path)) == 2


# ------------------------------------------------------------------------------ F63 change
@pytest.mark.parametrize("change", ["append", "touch", "replace", "delete"])
def test_F63_a_file_that_changes_is_noticed(tmp_path: Path, change: str) -> None:
    path = write(tmp_path, "a.txt", "line\n\n" * 1000)
    reader = iter(Reader(path))
    next(reader)
    if change == "append":
        with path.open("a") as file:
            file.write("more\n")
    elif change == "touch":
        os.utime(path, (1, 1))
    else:
        path.rename(tmp_path / "old")
        if change == "replace":
            write(tmp_path, "a.txt", "line\n\n" * 1000)
    with pytest.raises(DataError) as caught:
        list(reader)
    error = caught.value
    assert error.where == str(path)
    if change == "append":
        assert error.found == "6,000 bytes before, 6,005 bytes after"
    assert "copy" in error.do


def test_F63_the_hash_says_what_was_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt.gz", gzip.compress(b"words"))
    reader = Reader(path)
    list(reader)
    import hashlib

    assert reader.counts.hashes == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_disk_that_fails_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.txt", "words")

    def failing(number: int, count: int) -> bytes:
        raise OSError(5, "Input/output error")

    reader = Reader(path)
    monkeypatch.setattr("maskwright.text.corpus.files.os.read", failing)
    with pytest.raises(StorageError) as caught:
        list(reader)
    assert caught.value.where == str(path) and caught.value.exit_code == 74


def test_names_with_control_characters_are_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\n\x1b[31m\xff.txt")
    path.write_text("words\n")
    (found,) = documents(path)
    assert found.source == str(tmp_path / "a") + "\\n\\x1b[31m\\udcff.txt"
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
    link = inside / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target.format(outside=outside))
    links = {str(link)}
    if target == "other":
        (inside / "other").symlink_to(outside / "secret.txt")
        links.add(str(inside / "other"))
    reader = Reader(inside)
    assert [document.text for document in reader] == ["own"]
    assert set(reader.counts.ignored.links) == links
    (finding,) = (f for f in reader.counts.findings if f.name == "links-out-of-the-folder")
    assert finding.severity == "warning" and str(link) in finding.evidence
    with pytest.raises(UsageError) as error:
        find_all(inside)
    assert error.value.where in links


def test_a_folder_of_links_alone_is_refused(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "inside/a.txt").unlink()
    (tmp_path / "inside/link.txt").symlink_to(outside / "secret.txt")
    with pytest.raises(UsageError) as error:
        Reader(tmp_path / "inside")
    assert "link.txt" in str(error.value.found)


def test_other_links_are_followed(tmp_path: Path, outside: Path) -> None:
    """Within the folder; one that is named; the folder itself; the blobs of a download cache."""
    inside = tmp_path / "inside"
    (inside / "again.txt").symlink_to("a.txt")
    (tmp_path / "named.txt").symlink_to(outside / "secret.txt")
    (tmp_path / "named").symlink_to(inside)
    assert texts(inside) == texts(tmp_path / "named") == ["own", "own"]
    assert texts(tmp_path / "named.txt") == ["secret"]
    write(tmp_path, "cache/blobs/123", "cached")
    snapshot = tmp_path / "cache/snapshots/abc/data"
    snapshot.mkdir(parents=True)
    (snapshot / "a.txt").symlink_to("../../../blobs/123")
    assert texts(snapshot) == texts(snapshot.parent) == ["cached"]
