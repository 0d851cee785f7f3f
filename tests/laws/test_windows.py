"""What Windows lacks is not needed: every module is imported, folders are locked and written, with
the POSIX modules and names hidden. No Windows machine is at hand; docs/windows.md says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import maskwright

SOURCE = Path(maskwright.__file__).parent
# The libraries are loaded first: they have their own ways on Windows. The stand-in for `msvcrt`
# locks a byte as Windows does: for one process, and where it is asked to.
HIDE = """
import fcntl, os, signal, socket, sys, types
import asyncio, jinja2, multiprocessing, numpy, rich.live, starlette, tempfile, torch, uvicorn
held, flock = set(), fcntl.flock
def locking(descriptor, mode, size):
    assert (mode, size) == (2, 1) and os.lseek(descriptor, 0, 1) > 1 << 20
    try: flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: raise PermissionError(13, "Permission denied")
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
of_os = "getuid geteuid getgid fork forkpty kill sysconf pread pwrite sched_getaffinity"
of_os += " posix_fadvise nice getloadavg killpg setsid uname mkfifo O_CLOEXEC O_DIRECTORY"
of_os += " O_NONBLOCK O_NOFOLLOW O_SYNC"
of_signal = "SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGALRM SIGCHLD SIGPIPE SIGQUIT alarm setitimer"
for module, names in ((os, of_os), (signal, of_signal), (socket, "AF_UNIX")):
    for name in names.split(): delattr(module, name)
"""
CONTROL = """
for hidden in ("import fcntl", "signal.SIGHUP", "os.O_CLOEXEC"):
    try: exec(hidden)
    except (ImportError, AttributeError): continue
    raise AssertionError(hidden)
"""
IMPORT_ALL = """
import importlib
for name in {names!r}:
    importlib.import_module(name)
"""
WRITE = """
import pathlib
from maskwright.base.storage import commit, lock
from maskwright.base.storage.files import write_file
from maskwright.errors import StoppedError
folder, sys.platform = pathlib.Path(sys.argv[1]), "win32"  # from here: libraries need the truth
with lock.Lock(folder / "run.lock"):
    try:
        with lock.Lock(folder / "run.lock"): pass
    except StoppedError as error: assert f"process {os.getpid()}" in error.found
    else: raise AssertionError("locked twice")
with lock.Lock(folder / "passing.lock", passing=True): pass
assert not (folder / "passing.lock").exists()
commit.commit_files(folder, {"b.txt": b"one\\n"})
for content in (b"one\\n", b"two\\n"): write_file(folder / "a.txt", content)
assert (folder / "a.txt").read_bytes() == b"two\\n"
"""


def test_no_module_needs_what_windows_lacks(tmp_path: Path) -> None:
    files = [file.relative_to(SOURCE.parent).with_suffix("") for file in SOURCE.rglob("*.py")]
    names = sorted(".".join(file.parts) for file in files if file.name != "__main__")
    code = HIDE + CONTROL + IMPORT_ALL.format(names=names) + WRITE
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
