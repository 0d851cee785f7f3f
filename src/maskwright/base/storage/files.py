"""The file seam: every change on disk goes through one small object.

`FileSystem` names each operation that a commit or a deletion performs. The program uses `DISK`;
tests pass others that record the operations, refuse the n-th one, or stop there as a power cut
would. Reading needs no seam. Also here: what an operating system's error means to the user
(`refusal`), and deletion that can be cut off anywhere without leaving a half folder that looks
whole: renamed to `.del-…` first, symbolic links never followed.
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
REFUSED = FULL | FORBIDDEN | TOO_MANY | {errno.EIO, errno.ENOMEM}  # that `refusal` has words for
FEW_NAMES = 5  # that are told of a folder
LONGEST_NAME = 255  # bytes, on the usual file systems
LOCKS_OWN = 100  # bytes that a lock may add to a name, those of the machine's name among them


def file_state(path: Path | str) -> tuple[str, int, int, int, int]:
    """What tells one content of a file from another without reading it: its path, size, times of
    change and number.

    Raises:
        OSError: it is not there.
    """
    status = os.stat(path)
    return str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class FileSystem:
    """The operations of a commit, one call each, on the real disk."""

    def open_write(self, path: Path) -> int:
        """A descriptor for a file that must not exist yet."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        """How many of the bytes were taken; may be fewer than all."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def fsync_folder(self, path: Path) -> None:
        """Make the names inside `path` durable."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def fsync_path(self, path: Path) -> None:
        """Make a file durable that somebody else wrote."""
        self._sync(path, os.O_RDONLY)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    @staticmethod
    def _sync(path: Path, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


DISK = FileSystem()


def refusal(error: OSError, where: Path | str, *, needed: int | None = None) -> MaskwrightError:
    """What the operating system's `error` means, in our words and with our exit code.

    Args:
        error: from any operation on files.
        where: what was being written.
        needed: its bytes, where they are known.
    """
    location = f"{where} ({error.filename})" if error.filename else str(where)
    reason = f"{error.strerror or error} [{errno.errorcode.get(error.errno or 0, error.errno)}]"
    if error.errno in FULL:
        expected = None if needed is None else f"{needed:,} bytes"
        if isinstance(where, Path):
            reason += f"; {DISK.free_bytes(existing_parent(where)):,} bytes free"
        return StoppedError(
            "the disk or the quota is full",
            where=location,
            wanted=expected,
            found=reason,
            do="free some space and start the same command again",
        )
    if error.errno in FORBIDDEN:
        return OutputError(
            "this place cannot be written",
            where=location,
            found=reason,
            do="choose another folder, or fix its permissions",
        )
    if error.errno == errno.ENOMEM:
        return ResourceError(
            "out of memory",
            where=location,
            found=reason,
            do="end other programs, or use a machine with more memory",
        )
    if error.errno in TOO_MANY:
        return ResourceError(
            "too many files are open",
            where=location,
            found=reason,
            do="raise the limit, for example: ulimit -n 4096",
        )
    return StorageError(
        "reading or writing failed",
        where=location,
        found=reason,
        do="check the disk; what was complete before is still there",
    )


def existing_parent(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there."""
    path = Path(os.path.abspath(path))
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def require_space(path: Path, needed: float, files: FileSystem = DISK) -> None:
    """Refuse work whose result of `needed` bytes at the least has no room at `path`.

    Raises:
        StoppedError: with the bytes that are free.
    """
    folder = existing_parent(path)
    try:
        free = files.free_bytes(folder)
    except OSError:  # a file system that does not say
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
    """`path` and the parents it lacks, each made durable in its own parent."""
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
    """Delete a folder with all that is in it; of a symbolic link, only the link.

    The folder loses its name first, so that a deletion cut short never leaves a part of it behind
    that could be taken for the whole; `sweep` finishes the work.

    Raises:
        OutputError, StorageError: the system refuses; what is left no longer has the name.
    """
    with os_errors_refused(path):
        discard(path, files)


def discard(path: Path, files: FileSystem) -> None:
    """`remove_folder`, with the system's own errors."""
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
    """Settle a replacement of `target` that was cut off: the old one returns, or goes for good."""
    aside = target.with_name(ASIDE + target.name)
    if not os.path.lexists(aside):
        return
    if os.path.lexists(target):
        discard(aside, files)
    else:
        files.rename(aside, target)
        files.fsync_folder(target.parent)


def lock_beside(target: Path) -> Path:
    """The file that a process locks while it writes `target`, a folder or a file."""
    return target.with_name(TEMPORARY + shortened(target.name, LOCKS_OWN) + LOCKED)


def shortened(name: str, more: int) -> str:
    """`name`, or its hash where the name of a temporary file with `more` bytes is too long."""
    if len(os.fsencode(TEMPORARY + name)) + more <= LONGEST_NAME:
        return name
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def probe_writable(folder: Path, files: FileSystem = DISK) -> None:
    """Write, flush and rename a small file in `folder`, made if need be, before work is spent.

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
                with contextlib.suppress(OSError):  # the folder can be written all the same
                    files.remove(leftover)
    except MaskwrightError:
        for leftover in (probe, renamed):
            with contextlib.suppress(OSError):  # the first error is the one to tell
                files.remove(leftover)
        raise


def _is_of_no_process(probe: Path) -> bool:
    """Whether the process that wrote the small file has ended, as far as this machine knows."""
    try:
        if match := PROBE.fullmatch(probe.name):
            os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def require_own(folder: Path, *started_by: str, beside: Collection[str] = ()) -> None:
    """Refuse a folder that holds something, and nothing of what a work of ours begins with.

    Args:
        started_by: names of which one at least is there where the work goes on.
        beside: names that may be there before it has begun.

    Raises:
        OutputError: naming some of what is there.
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
    """The first few of a folder's `names`, to be told."""
    return ", ".join(names[:FEW_NAMES]) + ", …" * (len(names) > FEW_NAMES) or "nothing"


@contextlib.contextmanager
def os_errors_refused(where: Path) -> Iterator[None]:
    """The operating system's errors, raised as refusals that name `where`."""
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
    """Whether the links of a path lead out of a folder. The blobs of a download cache belong to the
    snapshots that link to them."""
    home, target = folder.resolve(), path.resolve()
    snapshots = (p.parent.parent for p in (home, *home.parents) if p.parent.name == "snapshots")
    roots = [home, *(cache / "blobs" for cache in snapshots)]
    return not any(target.is_relative_to(root) for root in roots)


_NUMBERS = itertools.count()
STAGED = re.compile(rf"{re.escape(TEMPORARY)}(.+)-\d+-\d+", re.DOTALL)


@contextlib.contextmanager
def new_file(target: Path, *, files: FileSystem = DISK) -> Iterator[BinaryIO]:
    """A stream for the bytes of `target`, which takes the place of what stood there when the block
    ends, and only if it ends well.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    with os_errors_refused(target):
        staged = _staged(target)
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
    """`new_file` for text in UTF-8.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
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
    """Put `data` into the file `target`, whole or not at all; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    with new_file(target, files=files) as stream:
        stream.write(data)
    return target


def _staged(target: Path) -> Path:
    ending = f"-{os.getpid()}-{next(_NUMBERS)}"
    return target.with_name(TEMPORARY + shortened(target.name, len(ending)) + ending)


def temporaries_of(target: Path) -> list[Path]:
    """The temporary files of `target`; where nobody writes it, remains of stopped processes."""
    names = {target.name, shortened(target.name, LONGEST_NAME)}
    matches = map(STAGED.fullmatch, os.listdir(target.parent))
    paths = [target.with_name(m[0]) for m in matches if m is not None and m[1] in names]
    return [path for path in paths if path.is_file()]  # a folder is that of NAME-1-2


class _Descriptor(io.RawIOBase):
    """A descriptor of the file system's, to be written to."""

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
