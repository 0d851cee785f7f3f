"""A folder is there completely or not at all, and a failure says what the user can do."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from tests.faults.fs import Failing, Stuttering, Watched
from tests.storage.committed import WEIGHTS, committed, fill

from maskwright.base.errors import (
    OutputError,
    ResourceError,
    StoppedError,
    StorageError,
    UsageError,
)
from maskwright.base.storage.commit import (
    Staging,
    commit,
    probe_writable,
    remove_folder,
    require_own,
    sweep,
    verify,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return committed(tmp_path)


# ------------------------------------------------------------------------------ writing
def test_what_is_written_verifies(tmp_path: Path, folder: Path) -> None:
    manifest = verify(folder)
    assert manifest.about == {"step": 7}
    assert list(manifest.files) == ["model.safetensors", "training/state.json"]
    assert manifest.files["model.safetensors"]["bytes"] == len(WEIGHTS)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert json.loads((folder / "training/state.json").read_text()) == {"step": 7, "name": "é"}
    assert os.listdir(tmp_path) == ["step-00000007"]
    other = commit(tmp_path / "other", fill, about={"step": 7})
    assert other == manifest and other.sha256 == manifest.sha256
    name = "MANIFEST.json"
    assert (tmp_path / "other" / name).read_bytes() == (folder / name).read_bytes()


def test_pieces_and_short_writes(tmp_path: Path) -> None:
    def write(stage: Staging) -> None:
        stage.write_bytes("pieces", (WEIGHTS[i : i + 1000] for i in range(0, len(WEIGHTS), 1000)))
        stage.write_bytes("empty", b"")
        with stage.create("slowly") as file:
            file.write(memoryview(WEIGHTS))
            file.write(bytearray(b"end"))
        stage.about["late"] = True

    manifest = commit(tmp_path / "out", write, files=Stuttering(), about={"early": True})
    assert verify(tmp_path / "out") == manifest
    assert manifest.about == {"early": True, "late": True}
    assert (tmp_path / "out/pieces").read_bytes() == WEIGHTS
    assert (tmp_path / "out/slowly").read_bytes() == WEIGHTS + b"end"
    assert manifest.files["empty"]["bytes"] == 0


def test_a_target_that_stands_gives_way_only_when_asked(folder: Path) -> None:
    with pytest.raises(OutputError, match="already exists"):
        commit(folder, fill)
    commit(folder, lambda stage: stage.write_bytes("new", b"new"), replace=True)
    assert list(verify(folder).files) == ["new"]
    assert os.listdir(folder.parent) == [folder.name]


def test_an_exception_of_the_writer_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    def write(stage: Staging) -> None:
        stage.write_bytes("half", b"half")
        stage.create("open")
        raise KeyError("mine")

    descriptors = Path("/proc/self/fd")
    before = len(os.listdir(descriptors)) if descriptors.is_dir() else 0
    for target in (tmp_path / "out", folder):
        with pytest.raises(KeyError, match="mine"):
            commit(target, write, replace=True)
    assert os.listdir(tmp_path) == [folder.name]
    assert verify(folder).about == {"step": 7}
    assert before == (len(os.listdir(descriptors)) if before else 0)


def test_a_file_left_open_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="still open"):
        commit(tmp_path / "out", lambda stage: stage.create("open").write(b"x"))  # type: ignore[arg-type, return-value]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "", "a//b", "./a", "a\\b", "a\0b", "MANIFEST.json"]
)
def test_names_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        commit(tmp_path / "out", lambda stage: stage.write_bytes(name, b"x"))
    assert os.listdir(tmp_path) == []


def test_parents_are_made_and_flushed(tmp_path: Path) -> None:
    files = Watched()
    commit(tmp_path / "a/b/out", fill, files=files)
    assert files.trace[:4] == [
        ("mkdir", tmp_path / "a"),
        ("fsync_folder", tmp_path),
        ("mkdir", tmp_path / "a/b"),
        ("fsync_folder", tmp_path / "a"),
    ]


# ------------------------------------------------------------------------------ refusals
def test_F07_free_space_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(StoppedError) as refusal:
        commit(tmp_path / "out", fill, expected_bytes=10**18)
    assert refusal.value.exit_code == 75
    assert refusal.value.wanted == "1,200,000,000,000,000,000 bytes"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind", "exit_code"),
    [
        (errno.EACCES, OutputError, 73),
        (errno.EMFILE, ResourceError, 69),
        (errno.EXDEV, StorageError, 74),
    ],
)
def test_errors_of_the_system_in_our_words(
    tmp_path: Path, number: int, kind: type, exit_code: int
) -> None:
    with pytest.raises(kind) as refusal:
        commit(tmp_path / "out", fill, files=Failing(number, *range(1, 100)))
    assert refusal.value.exit_code == exit_code and refusal.value.do
    assert not os.path.lexists(tmp_path / "out")


def test_F06_a_failed_flush_is_tried_once_in_a_new_folder(tmp_path: Path) -> None:
    files = Failing(errno.EIO, 4)
    commit(tmp_path / "out", fill, files=files)
    verify(tmp_path / "out")
    assert sum(step[0] == "mkdir" and step[1].name == ".tmp-out" for step in files.trace) == 2
    with pytest.raises(StorageError):
        commit(tmp_path / "again", fill, files=Failing(errno.EIO, *range(4, 200)))


@pytest.mark.parametrize("name", ["file/out", "n" * 260])
def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        commit(tmp_path / name, fill)


def test_F20_links_are_never_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "precious").write_text("here")
    doomed = tmp_path / "doomed"
    (doomed / "inner").mkdir(parents=True)
    (doomed / "inner/link").symlink_to(canary)
    (doomed / "file").symlink_to(canary / "precious")
    (tmp_path / "link").symlink_to(canary)
    remove_folder(doomed)
    remove_folder(tmp_path / "link")
    assert (canary / "precious").read_text() == "here"
    assert os.listdir(tmp_path) == ["canary"]


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    require_own(tmp_path / "none", "begun")
    for name in (".tmp-x", "run.lock", "rejects.jsonl"):
        (tmp_path / name).write_text("")
    require_own(tmp_path, "begun", beside=("rejects.jsonl",))
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(OutputError, match="holds something") as refused:
        require_own(tmp_path, "begun", beside=("rejects.jsonl",))
    assert refused.value.found == "mine.txt"
    (tmp_path / "begun").write_text("")
    require_own(tmp_path, "begun")


def test_F03_a_folder_loses_its_name_first(folder: Path) -> None:
    files = Watched()
    remove_folder(folder, files)
    assert files.trace[0] == ("rename", folder, folder.with_name(".del-step-00000007"))
    assert os.listdir(folder.parent) == []


def test_F13_leftovers_are_swept(tmp_path: Path, folder: Path) -> None:
    for name in (".tmp-step-9", ".del-step-3", ".old-step-00000007", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    os.rename(folder, tmp_path / ".old-step-00000001")  # cut off between its two renames
    os.rename(tmp_path / ".old-step-00000007", tmp_path / "step-00000007")
    (tmp_path / ".old-step-00000007").mkdir()
    swept = sweep(tmp_path)
    assert swept == [".del-step-3", ".old-step-00000001", ".old-step-00000007", ".tmp-step-9"]
    assert sorted(os.listdir(tmp_path)) == [".hidden", "step-00000001", "step-00000007"]
    verify(tmp_path / "step-00000001")
    assert sweep(tmp_path / "nowhere") == []


def test_only_a_probe_is_taken_for_one(tmp_path: Path) -> None:
    mine = [".del-probe-x", ".tmp-probe-1.csv.jsonl", "probe-1.csv", "notes-probe-2"]
    mine += [".tmp-probe-test.csv.lock"]
    for name in (*mine, ".tmp-probe-99999999", ".del-probe-99999999"):
        (tmp_path / name).write_text("")
    probe_writable(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(mine)
    (tmp_path / ".tmp-probe-1").write_text("")
    assert sweep(tmp_path) == [".del-probe-x", ".tmp-probe-1"]
    assert {"probe-1.csv", "notes-probe-2", ".tmp-probe-1.csv.jsonl"} <= {*os.listdir(tmp_path)}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_F08_the_probe_finds_every_failure(tmp_path: Path, number: int) -> None:
    probe = Watched()
    probe_writable(tmp_path / "run", probe)
    assert {step[0] for step in probe.trace} >= {"mkdir", "write", "fsync", "rename", "remove"}
    kind = {errno.ENOSPC: StoppedError, errno.EIO: StorageError}.get(number, OutputError)
    for when in range(1, probe.count):
        target = tmp_path / f"run-{when}"
        with pytest.raises(kind):
            probe_writable(target, Failing(number, when))
        assert not target.is_dir() or os.listdir(target) == []
