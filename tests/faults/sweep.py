"""Stop an action at each of its operations in turn, and look at what is left.

`scene` prepares an empty folder; `act` does the work there through the file system it is given;
`check` looks at the folder afterwards and raises if a promise is broken.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.fs import OPERATIONS, Dying, Failing, Killed, Watched

from maskwright.base.errors import MaskwrightError
from maskwright.base.storage.files import FileSystem

Scene = Callable[[Path], None]
Act = Callable[[Path, FileSystem], Any]
Check = Callable[[Path], None]


def fresh(base: Path, scene: Scene) -> Path:
    folder = base / "scene"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    scene(folder)
    return folder


def count(base: Path, scene: Scene, act: Act) -> int:
    """How many operations the undisturbed action performs."""
    files = Watched()
    act(fresh(base, scene), files)
    return files.count


def kill_everywhere(base: Path, scene: Scene, act: Act, check: Check) -> int:
    """Kill the action at each operation; returns at how many."""
    points = count(base, scene, act)
    for point in range(1, points + 1):
        folder = fresh(base, scene)
        try:
            act(folder, Dying(point))
        except Killed:
            check(folder)
        else:
            raise AssertionError(f"the action outlived its death at operation {point}")
    return points


def fail_everywhere(
    base: Path, scene: Scene, act: Act, check: Check, number: int, *, lasting: bool
) -> Iterator[MaskwrightError]:
    """Let each operation fail, alone or with all that follow; yields what the user is told."""
    points = count(base, scene, act)
    for point in range(1, points + 1):
        folder = fresh(base, scene)
        last = point + 10_000 if lasting else point
        try:
            act(folder, Failing(number, *range(point, last + 1)))
        except MaskwrightError as told:
            check(folder)
            yield told
        else:
            check(folder)


def kill_on_disk(base: Path, scene: Scene, act: Scene, check: Check, last: int = 1 << 30) -> int:
    """The same of work that writes to the disk itself, at its `last` operations; at how many."""

    def run(files: Watched) -> Path:
        folder = fresh(base, scene)
        with pytest.MonkeyPatch.context() as patch:
            for name in OPERATIONS:
                patch.setattr(FileSystem, name, _through(files, name, getattr(FileSystem, name)))
            act(folder)
        return folder

    counted = Watched()
    run(counted)
    points = range(max(1, counted.count - last + 1), counted.count + 1)
    for point in points:
        with pytest.raises(Killed):
            run(Dying(point))
        check(base / "scene")
    return len(points)


def _through(files: Watched, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: FileSystem, *given: Any) -> Any:
        files.before("" if name == "write" else name, *given)
        return real(self, *given)

    return operation
