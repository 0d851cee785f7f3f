"""Real processes, really killed: twenty points every day, all of them in the long proof."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import scenes, syscalls
from tests.faults.sweep import fresh

SELF_KILL = """
import os, signal, sys
from pathlib import Path
from tests.faults import scenes
from tests.faults.fs import Watched
class Suicidal(Watched):
    def before(self, operation, *arguments):
        super().before(operation, *arguments)
        if self.count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
scenes.save_and_retire(Path(sys.argv[1]), Suicidal())
"""


def test_F02_twenty_real_kills(tmp_path: Path) -> None:
    """By strace at system calls where it is allowed to trace; else the process kills itself."""
    if syscalls.works():
        every = syscalls.points(fresh(tmp_path, scenes.one_checkpoint), tmp_path / "log")
        assert len(every) >= 40
        for point in every[:: max(1, len(every) // 20)][:20]:
            folder = fresh(tmp_path, scenes.one_checkpoint)
            assert syscalls.inject(folder, point, "signal=SIGKILL").returncode < 0, point
            scenes.a_whole_checkpoint(folder)
        return
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    for number in range(1, 21):
        folder = fresh(tmp_path, scenes.one_checkpoint)
        command = [sys.executable, "-c", SELF_KILL, str(folder), str(number)]
        done = subprocess.run(command, check=False, env=environment)
        assert done.returncode == -signal.SIGKILL
        scenes.a_whole_checkpoint(folder)


# 74 is the answer where the call reads: looking again at what was saved.
@pytest.mark.proof
@pytest.mark.parametrize(
    ("what", "codes"),
    [
        ("signal=SIGKILL", {-signal.SIGKILL}),
        ("error=ENOSPC", {0, 75, 74}),
        ("error=EDQUOT", {0, 75, 74}),
        ("error=EIO", {0, 74}),
        ("error=EROFS", {0, 73, 74}),
        ("error=EACCES", {0, 73, 74}),
        ("error=EMFILE", {0, 69, 74}),
    ],
)
def test_F02_F06_F07_every_system_call(tmp_path: Path, what: str, codes: set[int]) -> None:
    assert syscalls.works(), "this proof needs strace, and leave to trace"
    every = syscalls.points(fresh(tmp_path, scenes.one_checkpoint), tmp_path / "log")
    for point in every:
        folder = fresh(tmp_path, scenes.one_checkpoint)
        done = syscalls.inject(folder, point, what)
        assert done.returncode in codes, (point, done.stdout, done.stderr)
        scenes.a_whole_checkpoint(folder)
