"""A single file is there whole or not at all, whenever the process or the power ends."""

from __future__ import annotations

import ast
import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from tests.faults.fs import Failing, Stuttering, Watched
from tests.faults.powerloss import crash_states, materialise
from tests.faults.sweep import fresh, kill_everywhere

import maskwright
from maskwright.base.errors import MaskwrightError, StoppedError
from maskwright.base.storage.files import FileSystem, new_file, new_text, temporaries_of, write_file

OLD, NEW = b"old\n" * 50, b"new\n" * 90


def scene(folder: Path) -> None:
    (folder / "predictions.csv").write_bytes(OLD)


def act(folder: Path, files: FileSystem) -> None:
    write_file(folder / "predictions.csv", NEW, files=files)
    if isinstance(files, Watched):
        files.note("saved")


def old_or_new(folder: Path) -> None:
    assert (folder / "predictions.csv").read_bytes() in (OLD, NEW)


def test_a_file_of_short_writes_is_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "page.html", NEW, files=Stuttering())
    assert (tmp_path / "page.html").read_bytes() == NEW
    assert os.listdir(tmp_path) == ["page.html"]


def test_the_temporary_folder_of_another_name_is_none_of_a_file(tmp_path: Path) -> None:
    (tmp_path / ".tmp-page.html-1-2").write_text("half")
    (tmp_path / ".tmp-page.html-1-3").mkdir()  # of a folder that is called page.html-1-3
    assert temporaries_of(tmp_path / "page.html") == [tmp_path / ".tmp-page.html-1-2"]


def test_killed_at_every_operation(tmp_path: Path) -> None:
    assert kill_everywhere(tmp_path, scene, act, old_or_new) == 6


def _lost(tmp_path: Path, trace: list[tuple[object, ...]], folder: Path, before: Path) -> bool:
    for notes, tree in crash_states(before, folder, trace):
        file = materialise(tree, tmp_path / "after") / "predictions.csv"
        allowed = [NEW] if "saved" in notes else [OLD, NEW]
        if not file.is_file() or file.read_bytes() not in allowed:
            return True
    return False


def test_power_loss_at_every_operation_and_without_each_flush(tmp_path: Path) -> None:
    folder, files = fresh(tmp_path, scene), Watched()
    before = shutil.copytree(folder, tmp_path / "before")
    act(folder, files)
    assert not _lost(tmp_path, files.trace, folder, before)
    flushes = [n for n, step in enumerate(files.trace) if step[0].startswith("fsync")]
    assert len(flushes) == 2
    for left_out in flushes:  # the negative controls
        kept = files.trace[:left_out] + files.trace[left_out + 1 :]
        assert _lost(tmp_path, kept, folder, before)


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    scene(tmp_path)
    with pytest.raises(StoppedError, match="full"):
        write_file(tmp_path / "predictions.csv", NEW, files=Failing(errno.ENOSPC, 2))
    with pytest.raises(KeyError), new_text(tmp_path / "predictions.csv") as file:
        file.write("half")
        raise KeyError
    with pytest.raises(MaskwrightError), new_file(tmp_path / "nowhere/x") as binary:
        binary.write(NEW)
    assert os.listdir(tmp_path) == ["predictions.csv"]
    old_or_new(tmp_path)


# The lock, and a switch of the kernel's.
BESIDE = {"lock.py", "machine.py"}
# These write to temporary folders, of which nothing is kept.
TEMPORARY = {"onnx.py", "web.py"}
WRITES = re.compile(r"open\(|write_(text|bytes)\(")  # files without need no parsing


def test_nothing_is_written_beside_the_seam() -> None:
    """No file of ours is opened for writing, or renamed, but by the modules that flush it; what is
    appended to flushes by itself."""
    found = set()
    for path in Path(maskwright.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if WRITES.search(source) else ():
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            opens = name == "open" and any(
                isinstance(t, str) and set(t) & set("wx") and set(t) <= set("wxb+t") for t in texts
            )
            owner = getattr(getattr(node.func, "value", None), "id", "")
            staged = owner in ("stage", "staging", "self")  # a commit's own
            if opens or (name in ("write_text", "write_bytes") and not staged):
                found.add(path.name)
    assert found == BESIDE | TEMPORARY
