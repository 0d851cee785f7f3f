"""Locks between processes.

`Lock` uses `flock` on a file that describes the holder: process, host, boot, and start time of the
process. The system releases the lock when the process dies, so there are no stale locks. On file
systems without `flock`, a second file that is created exclusively takes its place; a stale one is
recognised by boot id and start time, and taken over. On Windows a byte behind the description is
locked by `msvcrt.locking`: other processes cannot read what is locked there.

The package `filelock` does not report the holder, has no fallback for ENOLCK (NFS without a lock
daemon), and leaves its file beside every folder.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.base.errors import MaskwrightError, StoppedError
from maskwright.base.storage.files import make_folders, process_has_ended, refusal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.02  # seconds between two attempts
LOCKED_BYTE = 1 << 30  # its position in the file, on Windows
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Lock:
    """A lock: `with Lock(run / "run.lock"): …`. The folder is created if needed.

    Args:
        passing: remove the file when the lock is released. A process that had opened it notices
            that it is gone, and opens the next one.
        patience: seconds to wait for another process.

    Raises:
        StoppedError: another process holds it; the message names the process.
        OutputError: the folder cannot be written.
    """

    def __init__(self, path: Path, *, passing: bool = False, patience: float = 0.0) -> None:
        self.path = Path(path)
        self._passing, self._patience = passing, patience
        self._held = False
        self._descriptor: int | None = None
        self._claim = self.path.with_name(self.path.name + ".claim")
        self._claimed = False

    def __enter__(self) -> Lock:
        try:
            make_folders(self.path.parent)
            end = time.monotonic() + self._patience
            while True:
                try:
                    self._acquire()
                    break
                except StoppedError:
                    if time.monotonic() >= end:
                        raise
                    time.sleep(PAUSE)
        except OSError as error:
            self.release()
            raise refusal(error, self.path) from error
        return self

    def __exit__(self, *reason: object) -> None:
        self.release()

    def release(self) -> None:
        passes, self._held = self._held and self._passing, False
        if passes and fcntl is not None:
            self._remove()
        if self._claimed:
            self._claimed = False
            with contextlib.suppress(FileNotFoundError):  # the folder may be gone by now
                os.unlink(self._claim)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if passes and fcntl is None:  # Windows keeps files that are open, by other processes too
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone, or read-only, by now
            os.unlink(self.path)

    def _acquire(self) -> None:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            self._descriptor = descriptor
            try:
                _lock(descriptor)
            except BlockingIOError:
                holder = _describe(_load(self.path))
                self.release()
                raise self._refusal(holder) from None
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                self._claim_by_name()
            if self._still_named(descriptor):
                break
            self.release()  # the file was removed between opening and locking it
        self._held = True
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(_holder()).encode())

    def _still_named(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _claim_by_name(self) -> None:
        mine = self._claim.with_name(f"{self._claim.name}.{platform.node()}.{os.getpid()}")
        mine.write_text(json.dumps(_holder()))
        try:
            for _ in range(2):
                try:
                    os.link(mine, self._claim)  # atomic: no process reads an incomplete claim
                except FileExistsError:
                    holder = _load(self._claim)
                    if _alive(holder):
                        self.release()
                        raise self._refusal(_describe(holder)) from None
                    self._remove_claim(holder)
                else:
                    self._claimed = True
                    return
        finally:
            os.unlink(mine)
        self.release()
        raise self._refusal("a process that came first")

    def _remove_claim(self, dead: dict[str, Any]) -> None:
        """Remove the claim of a dead process, but not one that has replaced it."""
        away = self._claim.with_name(f"{self._claim.name}.dead.{os.getpid()}")
        try:
            os.rename(self._claim, away)
        except FileNotFoundError:
            return
        if _load(away) != dead and not os.path.lexists(self._claim):
            os.link(away, self._claim)
        os.unlink(away)

    def _refusal(self, holder: str) -> StoppedError:
        return StoppedError(
            "another process is writing this folder",
            where=self.path,
            found=holder,
            do="wait for it, or choose another folder",
        )


def _lock(descriptor: int) -> None:
    """Lock an open file.

    Raises:
        BlockingIOError: another process has locked it.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    msvcrt: Any = importlib.import_module("msvcrt")
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error


def _holder() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "boot": _boot(),
        "started": _started(os.getpid()),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _describe(holder: dict[str, Any]) -> str:
    if not holder:
        return "a process that does not say its name"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


def _alive(holder: dict[str, Any]) -> bool:
    """Return whether the holder may still run; True if that is not known."""
    if not holder or holder.get("host") != platform.node():
        return True
    if holder.get("boot") != _boot():
        return False
    pid = holder.get("pid")
    if not isinstance(pid, int):
        return True
    if process_has_ended(pid):
        return False
    return bool(_started(pid) == holder.get("started"))


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def _started(pid: int) -> int:
    """Return the start time of a process in ticks since boot; 0 if it is not reported."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def _load(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


@contextlib.contextmanager
def removing_if_empty(out: Path | None) -> Iterator[None]:
    """Context that removes the folder `out` on failure if it was created inside and is empty."""
    new = out is not None and not out.exists()
    try:
        yield
    except BaseException:
        if new and out is not None:
            with contextlib.suppress(OSError, MaskwrightError):
                _remove_empty(out)
        raise


def _remove_empty(folder: Path) -> None:
    """Remove a folder that contains only empty folders and free locks."""
    inside = sorted(folder.rglob("*"), reverse=True)
    files = [path for path in inside if path.is_symlink() or not path.is_dir()]
    if any(path.suffix != ".lock" or path.is_symlink() for path in files):
        return
    for path in files:
        with Lock(path):
            path.unlink()
    for path in (*(path for path in inside if path not in files), folder):
        path.rmdir()
