"""What is removed goes whole, what was cut off is swept up, and a bad place is found early."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.faults.fs import Failing, Watched
from tests.storage.committed import committed

from maskwright.base.errors import OutputError, StoppedError, StorageError
from maskwright.base.storage.commit import probe_writable, remove_folder, require_own, sweep, verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return committed(tmp_path)


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
