"""The same sweep below Python: strace counts the system calls of a save and kills or refuses there.

The region between two marks (an `access` of a name that does not exist) belongs to the save; calls
before it, of the interpreter's start, are counted and skipped. No torch is imported, so that a
point costs one start of Python.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CALLS = ("openat", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir")
BEGIN, END = "/nonexistent/region-begin", "/nonexistent/region-end"
SAVE = f"""
import os, sys
from pathlib import Path
from maskwright.base.storage.commit import commit, remove_folder, verify
from maskwright.errors import MaskwrightError
def fill(stage):
    stage.write_bytes("model.safetensors", bytes([2]) * 5000)
    stage.write_json("training/state.json", {{"step": 2}})
folder = Path(sys.argv[1])
os.access({BEGIN!r}, os.F_OK)
try:
    commit(folder / "step-0002", fill, about={{"step": 2}})
    verify(folder / "step-0002")
    remove_folder(folder / "step-0001")
except MaskwrightError as error:
    print(error)
    raise SystemExit(error.exit_code)
os.access({END!r}, os.F_OK)
"""


@dataclass(frozen=True)
class Point:
    """The n-th use of a system call since the process began."""

    call: str
    number: int


def works() -> bool:
    """Whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def points(folder: Path, log: Path) -> list[Point]:
    """Every system call of the save, in order, from one undisturbed run."""
    traced = ",".join((*CALLS, "access"))
    _run(folder, ["-e", f"trace={traced}", "-o", str(log)]).check_returncode()
    counted: collections.Counter[str] = collections.Counter()
    found, inside = [], False
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(?:\d+\s+)?(\w+)\(", line)
        if match is None:
            continue
        if BEGIN in line or END in line:
            inside = BEGIN in line
            continue
        counted[match[1]] += 1
        if inside and match[1] in CALLS:
            found.append(Point(match[1], counted[match[1]]))
    return found


def inject(folder: Path, point: Point, what: str) -> subprocess.CompletedProcess[str]:
    """Run the save with `what` ("signal=SIGKILL", "error=EIO") done at `point`."""
    return _run(
        folder,
        ["-o", os.devnull, "-e", f"inject={point.call}:{what}:when={point.number}"],
    )


def _run(folder: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    command = ["strace", "-f", *options, sys.executable, "-S", "-c", SAVE, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
