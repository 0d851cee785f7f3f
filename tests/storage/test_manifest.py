"""A folder says so when it is not true any more, and the newest true one is found."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.storage.committed import committed, fill

from maskwright.base.errors import CheckpointError, DataError
from maskwright.base.storage.commit import commit, newest, read_manifest, verify

FILES = ("model.safetensors", "training/state.json", "MANIFEST.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return committed(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_F21_truncated_files_are_found_by_size(folder: Path, name: str) -> None:
    draws, data = random.Random(21), (folder / name).read_bytes()
    borders = [n for n in (0, 1, 4096, 8192, len(data) - 1) if n < len(data)]
    for length in [*borders, *(draws.randrange(len(data)) for _ in range(30))]:
        (folder / name).write_bytes(data[:length])
        with pytest.raises(CheckpointError) as refusal:
            verify(folder, full=False)
        assert Path(name).name in str(refusal.value.where)
        if name != "MANIFEST.json":
            assert refusal.value.found == f"{length:,} bytes"
            assert refusal.value.wanted == f"{len(data):,} bytes"


def test_F22_every_flipped_bit_is_found(folder: Path) -> None:
    draws = random.Random(22)
    manifest = (folder / "MANIFEST.json").read_bytes()
    places = [("MANIFEST.json", n, n % 8) for n in range(0, len(manifest), 2)]
    for name in FILES[:2]:
        size = (folder / name).stat().st_size
        places += [(name, draws.randrange(size), draws.randrange(8)) for _ in range(100)]
    for name, place, bit in places:
        data = (folder / name).read_bytes()
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        (folder / name).write_bytes(flipped)
        with pytest.raises(CheckpointError):
            verify(folder)
        (folder / name).write_bytes(data)
    verify(folder)


@pytest.mark.parametrize("name", FILES)
def test_F23_missing_files_are_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match="not complete") as refusal:
        verify(folder, full=False)
    assert Path(name).name in str(refusal.value.where)


@pytest.mark.parametrize("kind", [CheckpointError, DataError])
def test_no_folder_is_an_error_of_the_callers_kind(tmp_path: Path, kind: type) -> None:
    with pytest.raises(kind):
        verify(tmp_path / "nowhere", error=kind)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"{}", b"null", b"\xff\xfe", b'{"format": true}'),
        b'{"format": 1, "about": {}, "files": []}',
        b'{"format": 1, "about": {}, "files": {"a": 1}}',
        b'{"format": 1, "about": {}, "files": {"../a": {"bytes": 1, "sha256": ""}}}',
        b'{"format": 1, "about": {}, "files": {"a": {"bytes": true, "sha256": ""}}}',
        b'{"format": 1, "about": {"x": NaN}, "files": {}}',
        b"[" * 100_000,
        b'{"format": ' + b"9" * 5000 + b"}",
    ],
    ids=range(13),
)
def test_hostile_manifests_are_refused(folder: Path, text: bytes) -> None:
    (folder / "MANIFEST.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"damaged|another format"):
        verify(folder)


def test_F26_a_newer_format_is_refused_with_both_versions(folder: Path) -> None:
    (folder / "MANIFEST.json").write_text('{"format": 2, "content": []}')
    with pytest.raises(CheckpointError, match="format 2") as refusal:
        read_manifest(folder)
    assert refusal.value.wanted == "format 1"


def test_F25_the_newest_is_a_matter_of_numbers(tmp_path: Path) -> None:
    for step in (9, 10, 200):
        commit(tmp_path / f"step-{step:04}", fill, about={"step": step})
    os.utime(tmp_path / "step-0009", (2**31, 2**31))  # a clock that ran ahead
    (tmp_path / "step-latest").mkdir()
    (tmp_path / ".tmp-step-0300").mkdir()
    folder, made, skipped = newest(tmp_path)
    assert (folder.name, made.about, skipped) == ("step-0200", {"step": 200}, [])


def test_F21_the_newest_that_verifies_wins_and_the_torn_are_told(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        commit(tmp_path / f"step-{step}", fill, about={"step": step})
    (tmp_path / "step-3/model.safetensors").write_bytes(b"torn")
    (tmp_path / "step-2/MANIFEST.json").unlink()
    folder, _, skipped = newest(tmp_path)
    assert folder.name == "step-1"
    assert "4 bytes" in str(skipped[0]) and "manifest is missing" in str(skipped[1])


def test_F24_none_is_valid(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        newest(tmp_path)
    for step in (1, 2):
        commit(tmp_path / f"step-{step}", fill)
        (tmp_path / f"step-{step}/MANIFEST.json").unlink()
    with pytest.raises(CheckpointError) as refusal:
        newest(tmp_path)
    assert "step-1" in str(refusal.value) and "step-2" in str(refusal.value)
    assert refusal.value.exit_code == 65


def test_further_files_are_allowed(folder: Path) -> None:
    (folder / "training/notes.txt").write_text("mine")
    verify(folder)
