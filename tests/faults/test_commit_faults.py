"""A commit may be killed, refused or cut off from power at any operation: nothing is lost.

The sweeps go through the file seam, so they are complete: every operation of the commit and of the
removal of what it makes obsolete.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults import scenes
from tests.faults.fs import Dying, Killed, Watched
from tests.faults.powerloss import crash_states, materialise
from tests.faults.sweep import fail_everywhere, fresh, kill_everywhere

from maskwright.base.errors import OutputError, StoppedError, StorageError
from maskwright.base.storage.files import FileSystem

CHECKPOINTS = (scenes.one_checkpoint, scenes.save_and_retire, scenes.a_whole_checkpoint)
REPLACEMENT = (scenes.a_best_model, scenes.replace_it, scenes.old_or_new)
FILES = (scenes.a_file_of_the_user, scenes.write_both, scenes.both_or_none)
TOLD = {
    errno.ENOSPC: StoppedError,
    errno.EDQUOT: StoppedError,
    errno.EIO: StorageError,
    errno.EROFS: OutputError,
    errno.EACCES: OutputError,
}


@pytest.mark.parametrize(
    ("scene", "operations"),
    [(CHECKPOINTS, 24), (REPLACEMENT, 25), (FILES, 19)],
    ids=["save and retention", "replacement", "several files"],
)
def test_F02_killed_at_every_operation(tmp_path: Path, scene: tuple, operations: int) -> None:
    assert kill_everywhere(tmp_path, *scene) == operations


def test_files_that_came_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    """Complete files of a killed process give way to those of the user."""
    folder = fresh(tmp_path, scenes.a_file_of_the_user)
    with pytest.raises(Killed):
        scenes.write_both(folder, Dying(16))  # before the second is moved
    (folder / "page.html").write_bytes(b"mine")
    with pytest.raises(OutputError):
        scenes.write_both(folder, scenes.QUICK)
    assert (folder / "figures.json").read_bytes() == scenes.TEXTS["figures.json"]
    assert (folder / "page.html").read_bytes() == b"mine"
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize("number", TOLD, ids=errno.errorcode.get)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize(
    "scene", [CHECKPOINTS, REPLACEMENT, FILES], ids=["save", "replace", "files"]
)
def test_F06_F07_F08_an_error_at_every_operation(
    tmp_path: Path, number: int, lasting: bool, scene: tuple
) -> None:
    told = list(fail_everywhere(tmp_path, *scene, number, lasting=lasting))
    assert {type(refusal) for refusal in told} <= {TOLD[number]}
    # An input/output error that passes is mended by the second attempt.
    assert told or (number == errno.EIO and not lasting)
    for refusal in told:
        assert errno.errorcode[number] in str(refusal.found)
        assert refusal.do


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_single_failure_leaves_no_litter(tmp_path: Path, number: int) -> None:
    def check(folder: Path) -> None:
        names = sorted(os.listdir(folder))
        assert names in (["step-0001"], ["step-0002"], ["step-0001", "step-0002"]), names

    def only_save(folder: Path, files: FileSystem) -> None:
        scenes.save(folder, 2, files)

    list(fail_everywhere(tmp_path, scenes.one_checkpoint, only_save, check, number, lasting=False))


@pytest.mark.parametrize(
    ("scene", "act", "check"),
    [
        (scenes.one_checkpoint, scenes.save_and_retire, scenes.newest_after_power_loss),
        (scenes.a_best_model, scenes.replace_it, scenes.best_after_power_loss),
    ],
    ids=["save", "replace"],
)
def test_F05_power_loss_at_every_operation(
    tmp_path: Path,
    scene: Callable[[Path], None],
    act: Callable[[Path, FileSystem], None],
    check: Callable[[Path, list[str]], None],
) -> None:
    folder, files = fresh(tmp_path, scene), Watched()
    before = shutil.copytree(folder, tmp_path / "before")
    act(folder, files)
    states = 0
    for notes, tree in crash_states(before, folder, files.trace):
        check(materialise(tree, tmp_path / "after"), notes)
        states += 1
    assert states > 60
