"""Negative controls: with one safety of the commit switched off, the harness must see it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.faults import scenes
from tests.faults.fs import Unhurried, Watched
from tests.faults.powerloss import crash_states, materialise
from tests.faults.sweep import fail_everywhere, fresh, kill_everywhere

from maskwright.base.errors import MaskwrightError
from maskwright.base.storage import commit as protocol
from maskwright.base.storage import files as storage
from maskwright.base.storage.commit import Staging
from maskwright.base.storage.files import FileSystem, write_file
from maskwright.base.storage.manifest import MANIFEST, Manifest


def _trace(base: Path) -> tuple[Path, Path, list[tuple[Any, ...]]]:
    """The real trace of a save up to the point where it is reported as saved."""
    folder, files = fresh(base, scenes.one_checkpoint), Watched()
    before = shutil.copytree(folder, base / "before")
    scenes.save(folder, 2, files)
    files.note("saved")
    return before, folder, files.trace


def _violated(base: Path, before: Path, folder: Path, trace: list[tuple[Any, ...]]) -> bool:
    for notes, tree in crash_states(before, folder, trace):
        try:
            scenes.newest_after_power_loss(materialise(tree, base / "after"), notes)
        except (AssertionError, MaskwrightError):
            return True
    return False


def test_every_flush_is_missed(tmp_path: Path) -> None:
    """Leave out one flush of the trace at a time: each time a saved checkpoint can be lost."""
    before, folder, trace = _trace(tmp_path)
    flushes = [n for n, step in enumerate(trace) if step[0].startswith("fsync")]
    assert len(flushes) == 6
    assert not _violated(tmp_path, before, folder, trace)
    for left_out in flushes:
        kept = trace[:left_out] + trace[left_out + 1 :]
        assert _violated(tmp_path, before, folder, kept), trace[left_out]


def _in_place(folder: Path, files: FileSystem) -> None:
    """A save without the temporary folder: the manifest comes last, but the name is there first."""
    _save_by_hand(folder / "step-0002", folder / "step-0002", files)
    storage.remove_folder(folder / "step-0001", files)


def _rename_first(folder: Path, files: FileSystem) -> None:
    """A save that takes its name before its manifest is written."""
    _save_by_hand(folder / ".tmp-step-0002", folder / "step-0002", files)
    storage.remove_folder(folder / "step-0001", files)


def _save_by_hand(temporary: Path, target: Path, files: FileSystem) -> None:
    files.mkdir(temporary)
    stage = Staging(temporary, MANIFEST, {"step": 2}, files)
    stage.write_bytes("model.safetensors", b"\2" * 5000)
    if temporary != target:
        files.rename(temporary, target)
    made = Manifest(1, {"step": 2}, dict(stage._written))
    descriptor = files.open_write(target / MANIFEST)
    files.write(descriptor, memoryview(made.render()))
    files.close(descriptor)


@pytest.mark.parametrize("act", [_in_place, _rename_first])
def test_a_name_before_its_manifest_is_seen(tmp_path: Path, act: Any) -> None:
    act(fresh(tmp_path, scenes.one_checkpoint), Unhurried())
    scenes.newest_after_power_loss(tmp_path / "scene", ["saved"])  # undisturbed, it looks fine
    with pytest.raises(MaskwrightError, match="not complete"):
        kill_everywhere(tmp_path, scenes.one_checkpoint, act, scenes.a_whole_checkpoint)


def _remove_first(folder: Path, files: FileSystem) -> None:
    storage.remove_folder(folder / "step-0001", files)
    scenes.save(folder, 2, files)


def test_a_retention_that_comes_too_early_is_seen(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError, match="no complete checkpoint"):
        kill_everywhere(tmp_path, scenes.one_checkpoint, _remove_first, scenes.a_whole_checkpoint)


def test_a_deletion_that_keeps_the_name_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "discard", storage._delete)
    with pytest.raises(MaskwrightError):
        kill_everywhere(
            tmp_path, scenes.one_checkpoint, scenes.save_and_retire, scenes.a_whole_checkpoint
        )


def test_a_replacement_without_a_way_back_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "put_back", lambda target, files: None)
    with pytest.raises(MaskwrightError, match="no such folder"):
        kill_everywhere(tmp_path, scenes.a_best_model, scenes.replace_it, scenes.old_or_new)


def test_files_that_are_put_in_place_one_by_one_are_seen(tmp_path: Path) -> None:
    def one_by_one(folder: Path, files: FileSystem) -> None:
        for name, text in scenes.TEXTS.items():
            write_file(folder / name, text, files=files)

    with pytest.raises(AssertionError):
        kill_everywhere(tmp_path, scenes.a_file_of_the_user, one_by_one, scenes.both_or_none)


def test_a_swallowed_error_is_seen(tmp_path: Path) -> None:
    """A write whose error is ignored reports a folder as saved that is not."""

    def careless(folder: Path, files: FileSystem) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Staging, "finish", _finish_whatever_happens)
            scenes.save(folder, 2, files)

    def check(folder: Path) -> None:
        scenes.a_whole_checkpoint(folder)

    with pytest.raises(MaskwrightError):
        list(
            fail_everywhere(
                tmp_path, scenes.one_checkpoint, careless, check, errno.ENOSPC, lasting=False
            )
        )


def _finish_whatever_happens(self: Staging) -> Manifest:
    made = Manifest(1, self.about, dict(self._written))
    try:
        descriptor = self.files.open_write(self.path / MANIFEST)
        self.files.write(descriptor, memoryview(made.render()))
        self.files.close(descriptor)
    except OSError:
        return made
    return made
