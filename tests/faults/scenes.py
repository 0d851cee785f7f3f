"""What is done under fire: a second checkpoint is saved and the first removed; one is replaced."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.faults.fs import Unhurried, Watched

from maskwright.base.errors import CheckpointError, OutputError
from maskwright.base.storage.commit import (
    Staging,
    commit,
    commit_files,
    newest,
    remove_folder,
    require_new,
    sweep,
    verify,
)
from maskwright.base.storage.files import FileSystem

QUICK = Unhurried()


def fill(number: int) -> object:
    def write(stage: Staging) -> None:
        stage.write_bytes("model.safetensors", bytes([number]) * 5000)
        stage.write_json("training/state.json", {"step": number})

    return write


def save(folder: Path, number: int, files: FileSystem = QUICK, **options: bool) -> None:
    name = "best" if options else f"step-{number:04}"
    commit(folder / name, fill(number), about={"step": number}, files=files, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ keep the newest
def one_checkpoint(folder: Path) -> None:
    save(folder, 1)


def save_and_retire(folder: Path, files: FileSystem) -> None:
    """Save step 2, look at it again, remove step 1."""
    save(folder, 2, files)
    if isinstance(files, Watched):
        files.note("saved")
    verify(folder / "step-0002")
    remove_folder(folder / "step-0001", files)


def a_whole_checkpoint(folder: Path) -> None:
    """The newest is complete, whatever has a checkpoint's name is, and the work can go on."""
    newest(folder)
    for path in folder.glob("step-*"):
        verify(path)
    sweep(folder)
    if not (folder / "step-0002").exists():
        save(folder, 2)
    if (folder / "step-0001").exists():
        remove_folder(folder / "step-0001")
    assert [p.name for p in folder.iterdir()] == ["step-0002"]
    assert newest(folder)[1].about == {"step": 2}


# ------------------------------------------------------------------------------ replace
def a_best_model(folder: Path) -> None:
    save(folder, 1, replace=False)


def replace_it(folder: Path, files: FileSystem) -> None:
    save(folder, 2, files, replace=True)
    if isinstance(files, Watched):
        files.note("saved")


def old_or_new(folder: Path) -> None:
    sweep(folder)
    made = verify(folder / "best")
    assert made.about in ({"step": 1}, {"step": 2})
    save(folder, 3, replace=True)
    assert [p.name for p in folder.iterdir()] == ["best"]


# ------------------------------------------------------------------------------ several files
TEXTS = {"figures.json": b"{}\n" * 400, "page.html": b"<p>\n" * 400}


def a_file_of_the_user(folder: Path) -> None:
    (folder / "notes.txt").write_bytes(b"mine")


def write_both(folder: Path, files: FileSystem) -> None:
    commit_files(folder, TEXTS, files=files)
    if isinstance(files, Watched):
        files.note("saved")


def both_or_none(folder: Path) -> None:
    """Whoever asks next, to write the same or whether it is there, finds it so; and no remains."""
    targets = [folder / name for name in TEXTS]
    with contextlib.suppress(OutputError):
        require_new(*targets)
    there = [target.name for target in targets if target.exists()]
    assert there in ([], list(TEXTS))
    assert sorted(os.listdir(folder)) == sorted(["notes.txt", *there])
    if not there:
        commit_files(folder, TEXTS, files=QUICK)
    assert {target.name: target.read_bytes() for target in targets} == TEXTS


# ------------------------------------------------------------------------------ after a power cut
def newest_after_power_loss(folder: Path, notes: list[str]) -> None:
    made = newest(folder)[1]
    if "saved" in notes:
        assert made.about == {"step": 2}


def best_after_power_loss(folder: Path, notes: list[str]) -> None:
    sweep(folder)
    made = verify(folder / "best")
    if "saved" in notes and made.about != {"step": 2}:
        raise CheckpointError("the new folder was reported as saved and is gone")
