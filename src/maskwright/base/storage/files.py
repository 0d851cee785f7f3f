"""File operations behind one object, errors of the operating system, and deletion of folders.

`FileSystem` has each operation of a commit or a deletion. The program uses `DISK`; tests pass
objects that record the operations, fail at the n-th one, or stop there like a power cut. `refusal`
converts errors of the operating system. A folder that is deleted is first renamed to `.del-…`, so
that an interrupted deletion leaves nothing that looks complete; symbolic links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from maskwright.base.errors import (
    MaskwrightError,
    OutputError,
    ResourceError,
    StoppedError,
    StorageError,
)

BINARY = getattr(os, "O_BINARY", 0)  # Windows would write \r\n for \n
TEMPORARY, DOOMED, ASIDE, LOCKED = ".tmp-", ".del-", ".old-", ".lock"
PROBE = re.compile(r"\.(?:tmp|del)-probe-([0-9]+)")  # of a process

FULL = {errno.ENOSPC, errno.EDQUOT}
FORBIDDEN = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EISDIR,
    errno.EEXIST,
}
TOO_MANY = {errno.EMFILE, errno.ENFILE}
REFUSED = FULL | FORBIDDEN | TOO_MANY | {errno.EIO, errno.ENOMEM}  # errors that `refusal` explains
FEW_NAMES = 5  # names of a folder in a message
LONGEST_NAME = 255  # bytes, on the usual file systems
LOCKS_OWN = 100  # bytes that a lock may add to a name, including the name of the machine


def file_state(path: Path | str) -> tuple[str, int, int, int, int]:
    """Return path, size, times of change and inode, which identify the content of a file without
    reading it.

    Raises:
        OSError: there is no such file.
    """
    status = os.stat(path)
    return str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class FileSystem:
    """The operations of a commit, one call each, on the real disk."""

    def open_write(self, path: Path) -> int:
        """Create a file, which must not exist, and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of the bytes and return their number."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def fsync_folder(self, path: Path) -> None:
        """Flush the entries of a folder; Windows has no such operation."""
        if hasattr(os, "O_DIRECTORY"):
            self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def fsync_path(self, path: Path) -> None:
        """Flush a file that was written elsewhere."""
        self._sync(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    @staticmethod
    def _sync(path: Path, flags: int) -> None:
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


DISK = FileSystem()


def refusal(error: OSError, where: Path | str, *, needed: int | None = None) -> MaskwrightError:
    """Convert an error of the operating system to one of Maskwright.

    Args:
        error: of a file operation.
        where: the path that is written.
        needed: its bytes, if known.
    """
    location = f"{where} ({error.filename})" if error.filename else str(where)
    reason = f"{error.strerror or error} [{errno.errorcode.get(error.errno or 0, error.errno)}]"
    expected: str | None = None
    kind: type[MaskwrightError] = ResourceError
    if error.errno in FULL:
        kind, message = StoppedError, "the disk or the quota is full"
        do = "free some space and start the same command again"
        expected = None if needed is None else f"{needed:,} bytes"
        if isinstance(where, Path):
            reason += f"; {DISK.free_bytes(existing_parent(where)):,} bytes free"
    elif error.errno in FORBIDDEN:
        kind, message = OutputError, "this place cannot be written"
        do = "choose another folder, or fix its permissions"
    elif error.errno == errno.ENOMEM:
        message, do = "out of memory", "end other programs, or use a machine with more memory"
    elif error.errno in TOO_MANY:
        message, do = "too many files are open", "raise the limit, for example: ulimit -n 4096"
    else:
        kind, message = StorageError, "reading or writing failed"
        do = "check the disk; what was complete before is still there"
    return kind(message, where=location, wanted=expected, found=reason, do=do)


def existing_parent(path: Path) -> Path:
    """Return the nearest existing folder among `path` and its parents."""
    path = Path(os.path.abspath(path))
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def require_space(path: Path, needed: float, files: FileSystem = DISK) -> None:
    """Refuse work whose result needs more than the free bytes at `path`.

    Raises:
        StoppedError: with the free bytes.
    """
    folder = existing_parent(path)
    try:
        free = files.free_bytes(folder)
    except OSError:  # not reported by the file system
        return
    if needed > free:
        raise StoppedError(
            "not enough free space",
            where=path,
            found=f"{free:,} bytes free",
            wanted=f"{int(needed):,} bytes",
            do="free some space and start the same command again",
        )


def make_folders(path: Path, files: FileSystem = DISK) -> None:
    """Create `path` and missing parents, and flush the parent of each."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for folder in reversed(missing):
        try:
            files.mkdir(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise
        files.fsync_folder(folder.parent)


def remove_folder(path: Path, files: FileSystem = DISK) -> None:
    """Delete a folder with its content, or a symbolic link.

    The folder is renamed first, so that after an interrupted deletion no part of it has the name;
    `sweep` removes the rest.

    Raises:
        OutputError, StorageError: the deletion failed; what is left no longer has the name.
    """
    with os_errors_refused(path):
        discard(path, files)


def discard(path: Path, files: FileSystem) -> None:
    """Delete like `remove_folder`, but raise OSError."""
    if path.is_symlink() or not path.is_dir():
        files.remove(path)
        return
    if not path.name.startswith((DOOMED, TEMPORARY)):
        doomed = path.with_name(DOOMED + path.name)
        if os.path.lexists(doomed):
            discard(doomed, files)
        files.rename(path, doomed)
        path = doomed
    _delete(path, files)


def put_back(target: Path, files: FileSystem = DISK) -> None:
    """Finish an interrupted replacement of `target`: restore the old folder or delete it."""
    aside = target.with_name(ASIDE + target.name)
    if not os.path.lexists(aside):
        return
    if os.path.lexists(target):
        discard(aside, files)
    else:
        files.rename(aside, target)
        files.fsync_folder(target.parent)


def lock_beside(target: Path) -> Path:
    """Return the path of the lock of a folder or file."""
    return target.with_name(TEMPORARY + shortened(target.name, LOCKS_OWN) + LOCKED)


def shortened(name: str, more: int) -> str:
    """Return `name`, or its hash if a temporary name with `more` bytes would be too long."""
    if len(os.fsencode(TEMPORARY + name)) + more <= LONGEST_NAME:
        return name
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def probe_writable(folder: Path, files: FileSystem = DISK) -> None:
    """Check that `folder`, created if needed, can be written, with a small file.

    Raises:
        OutputError: the folder cannot be written.
        StoppedError: the disk is full.
        StorageError: the disk fails.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError("the output folder is a file", where=folder, do="choose another --out")
    probe = folder / f"{TEMPORARY}probe-{os.getpid()}"
    renamed = folder / f"{DOOMED}probe-{os.getpid()}"
    try:
        with os_errors_refused(folder):
            make_folders(folder, files)
            descriptor = files.open_write(probe)
            try:
                files.write(descriptor, memoryview(b"probe"))
                files.fsync(descriptor)
            finally:
                files.close(descriptor)
            files.rename(probe, renamed)
            files.remove(renamed)
            for leftover in filter(_is_of_no_process, folder.glob(".*-probe-*")):
                with contextlib.suppress(OSError):  # not needed
                    files.remove(leftover)
    except MaskwrightError:
        for leftover in (probe, renamed):
            with contextlib.suppress(OSError):  # the first error is reported
                files.remove(leftover)
        raise


def _is_of_no_process(probe: Path) -> bool:
    """Return whether the process that wrote a probe has ended, as far as this machine knows."""
    match = PROBE.fullmatch(probe.name)
    return match is not None and process_has_ended(int(match[1]))


def process_has_ended(pid: int) -> bool:
    """Return whether this machine has no process `pid`; False where that is not known. Windows is
    not asked: `os.kill` ends processes there, with the signal 0 too."""
    if sys.platform == "win32":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def require_own(folder: Path, *started_by: str, beside: Collection[str] = ()) -> None:
    """Refuse a folder with files that are not from an earlier start of the same work.

    Args:
        started_by: names of files of which an earlier start has left at least one.
        beside: names that are allowed before the first start.

    Raises:
        OutputError: with some of the names.
    """
    if not folder.is_dir() or any((folder / name).exists() for name in started_by):
        return
    names = sorted(
        name
        for name in os.listdir(folder)
        if not name.startswith((TEMPORARY, DOOMED)) and ".lock" not in name and name not in beside
    )
    if names:
        raise OutputError(
            "the output folder holds something already",
            where=folder,
            found=listed(names),
            do="choose another --out",
        )


def listed(names: Sequence[str]) -> str:
    """Return the first few names as text."""
    return ", ".join(names[:FEW_NAMES]) + ", …" * (len(names) > FEW_NAMES) or "nothing"


def next_run_folder(name: str) -> Path:
    """Return `runs/name-1`, or the same with the first number that is free."""
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path


@contextlib.contextmanager
def os_errors_refused(where: Path) -> Iterator[None]:
    """Context that converts errors of the operating system by `refusal`."""
    try:
        yield
    except OSError as error:
        raise refusal(error, where) from error


def _delete(folder: Path, files: FileSystem) -> None:
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            _delete(Path(entry.path), files)
        else:
            files.remove(Path(entry.path))
    files.rmdir(folder)


def links_outside(path: Path, folder: Path) -> bool:
    """Return whether the links of a path lead out of a folder. The blobs of a download cache count
    as part of the snapshots that link to them."""
    home, target = folder.resolve(), path.resolve()
    snapshots = (p.parent.parent for p in (home, *home.parents) if p.parent.name == "snapshots")
    roots = [home, *(cache / "blobs" for cache in snapshots)]
    return not any(target.is_relative_to(root) for root in roots)


_NUMBERS = itertools.count()
STAGED = re.compile(rf"{re.escape(TEMPORARY)}(.+)-\d+-\d+", re.DOTALL)


@contextlib.contextmanager
def new_file(target: Path, *, files: FileSystem = DISK) -> Iterator[BinaryIO]:
    """Context with a binary stream that replaces the file `target` if the block succeeds.

    Raises:
        OutputError, StorageError, StoppedError: the file cannot be written.
    """
    with os_errors_refused(target):
        ending = f"-{os.getpid()}-{next(_NUMBERS)}"
        staged = target.with_name(TEMPORARY + shortened(target.name, len(ending)) + ending)
        descriptor = files.open_write(staged)
        stream = io.BufferedWriter(_Descriptor(descriptor, files))
        try:
            try:
                yield stream
                stream.flush()
                files.fsync(descriptor)
            finally:
                stream.close()
            files.rename(staged, target)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(staged)
            raise
        files.fsync_folder(target.parent)


@contextlib.contextmanager
def new_text(target: Path, *, newline: str = "\n", files: FileSystem = DISK) -> Iterator[TextIO]:
    """Context like `new_file`, for text in UTF-8.

    Raises:
        OutputError, StorageError, StoppedError: the file cannot be written.
    """
    with new_file(target, files=files) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline=newline)
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(OSError):
                text.detach()


def write_file(target: Path, data: bytes, *, files: FileSystem = DISK) -> Path:
    """Write `data` to the file `target` atomically; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: the file cannot be written.
    """
    with new_file(target, files=files) as stream:
        stream.write(data)
    return target


def temporaries_of(target: Path) -> list[Path]:
    """Return the temporary files of `target`, which stopped processes left if it is not locked."""
    names = {target.name, shortened(target.name, LONGEST_NAME)}
    matches = map(STAGED.fullmatch, os.listdir(target.parent))
    paths = [target.with_name(m[0]) for m in matches if m is not None and m[1] in names]
    return [path for path in paths if path.is_file()]  # a folder belongs to a target NAME-1-2


class _Descriptor(io.RawIOBase):
    """A raw stream that writes through a `FileSystem`."""

    def __init__(self, descriptor: int, files: FileSystem) -> None:
        self._descriptor, self._files = descriptor, files

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._files.write(self._descriptor, cast(memoryview, data))

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._files.close(self._descriptor)
