"""Atomic writes of folders: shards, tokenizers, checkpoints, exports, reports.

    .tmp-name/    made beside the target; files are hashed while they are written, then flushed;
                  MANIFEST.json comes last: format, facts about the folder, bytes and SHA-256 of
                  each file; then the folder is flushed
    name/         the temporary folder, renamed; then the parent is flushed

From the first file to the last rename, the process holds the lock `.tmp-name.lock` beside the
target, which the system releases when the process dies. Another process is refused with the name of
the first, and does not touch its temporary folder. The next process that gets the lock cleans up
after a killed one: complete results are put in place, the rest is removed.

`commit_files` writes several files into an existing folder in the same way: they are complete once
the temporary folder has its manifest, and are then moved out of it one by one.

A folder is valid if its manifest verifies: `verify` checks sizes, then hashes, and the manifest has
a hash of its own. If anything fails, the temporary folder is removed and the old content stays.
After an input/output error, everything is written once more to a new folder, since a failed flush
cannot be repeated (Rebello et al. 2020, "Can Applications Recover from fsync Failures?").
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.base.config import canonical_json
from maskwright.base.errors import (
    CheckpointError,
    MaskwrightError,
    OutputError,
    StoppedError,
    StorageError,
    UsageError,
)
from maskwright.base.storage.files import (
    ASIDE,
    DISK,
    DOOMED,
    LOCKED,
    PROBE,
    TEMPORARY,
    FileSystem,
    discard,
    lock_beside,
    make_folders,
    os_errors_refused,
    probe_writable,
    put_back,
    refusal,
    remove_folder,
    require_own,
    require_space,
    temporaries_of,
)
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.manifest import (
    FORMAT,
    MANIFEST,
    Manifest,
    check_name,
    newest,
    numbered,
    read_manifest,
    verify,
)

# What is imported from here as well: the other operations on such folders.
__all__ = [
    "DISK",
    "MANIFEST",
    "FileSystem",
    "Lock",
    "Manifest",
    "newest",
    "numbered",
    "probe_writable",
    "read_manifest",
    "remove_folder",
    "require_own",
    "verify",
]
SPARE = 1.2  # free space that is required, relative to the expected bytes
Buffer = bytes | bytearray | memoryview


def commit(
    target: Path,
    write: Callable[[Staging], None],
    *,
    manifest: str = MANIFEST,
    about: dict[str, Any] | None = None,
    expected_bytes: int = 0,
    replace: bool = False,
    files: FileSystem = DISK,
) -> Manifest:
    """Write the folder `target` completely or not at all.

    Args:
        target: the folder to create, with its parents.
        write: fills the folder through a `Staging`. It is called a second time, with a new folder,
            after an input/output error.
        manifest: the name of the manifest file.
        about: facts for the manifest, plain JSON. `write` may add to `Staging.about`.
        expected_bytes: compared with the free space before anything is written.
        replace: whether an existing folder is replaced.

    Raises:
        OutputError: the path cannot be written, or exists.
        StoppedError: the disk or the quota is full, or another process is writing the folder.
        StorageError: two input/output errors.
    """
    target = Path(os.path.abspath(target))
    facts = json.loads(canonical_json(about or {}))
    temporary = target.with_name(TEMPORARY + target.name)

    def attempt() -> Manifest:
        return _write_all(
            target, write, Staging(temporary, manifest, dict(facts), files), expected_bytes
        )

    with writing(target, files):
        if not replace:
            require_new(target)
        try:
            return attempt()
        except StorageError:
            return attempt()


def commit_files(folder: Path, texts: Mapping[str, bytes], *, files: FileSystem = DISK) -> None:
    """Write new files into `folder`, all or none; if the process is killed while they are moved,
    the next call completes this.

    Raises:
        OutputError: a file exists or cannot be written.
        StoppedError, StorageError: as `commit`.
    """
    *_, last_name = texts

    def write(stage: Staging) -> None:
        for name, text in texts.items():
            require_new(folder / name)
            stage.write_bytes(name, text)

    commit(folder / last_name, write, about={BESIDE: list(texts)}, files=files)


BESIDE = "files"  # fact in a manifest: files to be moved out of the temporary folder
_WRITTEN: set[tuple[int, int, Path]] = set()  # process, thread and folder of each `writing`


def commit_once(
    target: Path, write: Callable[[Staging], None], *, files: FileSystem = DISK
) -> None:
    """Write the folder `target` while other processes may do the same work: the first to finish
    puts it in place, and the others drop their copies. No process waits.

    Args:
        target: kept if it exists.
        write: fills the folder; it must always write the same.

    Raises:
        OutputError, StoppedError, StorageError: it cannot be written.
    """
    target = Path(os.path.abspath(target))
    if target.is_dir():
        return
    unique = f"{TEMPORARY}{target.name[:64]}-{os.getpid()}-{os.urandom(6).hex()}"
    stage = Staging(target.with_name(unique), MANIFEST, {}, files)
    with os_errors_refused(target):
        make_folders(target.parent, files)
    try:
        files.mkdir(stage.path)
        write(stage)
        stage.finish()
        _put_once(stage.path, target, files)
    except BaseException as error:
        stage.abandon()
        if isinstance(error, OSError):
            raise refusal(error, target) from error
        raise


def _put_once(staged: Path, target: Path, files: FileSystem) -> None:
    try:
        files.rename(staged, target)
    except OSError:  # a rename never replaces a folder that is not empty
        if not target.is_dir():
            raise
        discard(staged, files)
    files.fsync_folder(target.parent)


@contextlib.contextmanager
def writing(target: Path, files: FileSystem = DISK) -> Iterator[None]:
    """Context in which only this thread may write the folder `target`, by `commit`.

    Long work whose result is a folder begins with it, so that a second process is refused before
    the work. What a stopped process left is cleaned up first.

    Raises:
        StoppedError: another process is writing the folder; the message names it.
        OutputError: the path cannot be written.
    """
    target = Path(os.path.abspath(target))
    key = (os.getpid(), threading.get_ident(), target)
    if key in _WRITTEN:
        yield
        return
    with os_errors_refused(target):
        make_folders(target.parent, files)
    with Lock(lock_beside(target), passing=True):
        _WRITTEN.add(key)
        try:
            with os_errors_refused(target):
                _settle(target, files)
            yield
        finally:
            _WRITTEN.discard(key)


def _settle(target: Path, files: FileSystem) -> None:
    """Clean up what a stopped process left of a folder or file. Requires its lock."""
    put_back(target, files)
    staged = target.with_name(TEMPORARY + target.name)
    with contextlib.suppress(CheckpointError, FileNotFoundError):
        _move_out(staged, target, read_manifest(staged).about.get(BESIDE, ()), files)
    for path in (staged, target.with_name(DOOMED + target.name)):
        if path.is_dir():
            discard(path, files)
    for path in temporaries_of(target):
        files.remove(path)


def require_new(
    *targets: Path,
    error: type[MaskwrightError] = OutputError,
    message: str = "the path already exists",
    do: str = "choose another name, or remove it first",
) -> None:
    """Refuse to overwrite existing paths, after cleaning up what a stopped process left.

    Args:
        targets: of `commit_files`, the last file is that of the lock.

    Raises:
        error: naming the first that exists.
    """
    if targets[-1].parent.is_dir():
        with contextlib.suppress(MaskwrightError), writing(targets[-1]):
            pass
    for target in filter(os.path.lexists, targets):
        raise error(message, where=target, do=do)


def _write_all(
    target: Path, write: Callable[[Staging], None], stage: Staging, expected_bytes: int
) -> Manifest:
    files = stage.files
    try:
        if os.path.lexists(stage.path):
            discard(stage.path, files)
        require_space(target.parent, expected_bytes * SPARE, files)
        files.mkdir(stage.path)
        write(stage)
        manifest = stage.finish()
        if BESIDE in manifest.about:
            _move_out(stage.path, target, manifest.about[BESIDE], files)
            stage.abandon()  # removes the rest
        else:
            _put_in_place(stage.path, target, files)
    except BaseException as error:
        stage.abandon()
        if isinstance(error, OSError):
            raise refusal(error, target, needed=expected_bytes or None) from error
        raise
    return manifest


def _put_in_place(staged: Path, target: Path, files: FileSystem) -> None:
    aside = target.with_name(ASIDE + target.name)
    replaced = os.path.lexists(target)
    try:
        if replaced:
            files.rename(target, aside)
        files.rename(staged, target)
        files.fsync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # `sweep` finishes what cannot be undone here
            if os.path.lexists(target) and not os.path.lexists(staged):
                files.rename(target, staged)
            if replaced and os.path.lexists(aside):
                files.rename(aside, target)
        raise
    if replaced:
        with contextlib.suppress(OSError):
            discard(aside, files)


def _move_out(staged: Path, target: Path, names: Sequence[str], files: FileSystem) -> None:
    """Move complete files out of the temporary folder, in order; `target` is the last."""
    moved: list[str] = []
    try:
        for name in names:
            if os.path.lexists(staged / name) and not os.path.lexists(target.with_name(name)):
                files.rename(staged / name, target.with_name(name))
                moved.append(name)
        files.fsync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            for name in moved:
                files.rename(target.with_name(name), staged / name)
        raise


def sweep(parent: Path, files: FileSystem = DISK) -> list[str]:
    """Clean up what stopped processes left in `parent`. Requires the lock.

    Removes `.tmp-…` and `.del-…`, and restores `.old-name` if a replacement was interrupted between
    its two renames. Files that another process is writing, and predictions, are kept. Returns the
    names that were handled.
    """
    if not parent.is_dir():
        return []
    swept, names = [], sorted(os.listdir(parent))
    busy = tuple(
        name.removesuffix(LOCKED)
        for name in names
        if name.startswith(TEMPORARY) and name.endswith(LOCKED) and not _is_unlocked(parent / name)
    )
    for name in names:
        path = parent / name
        if name.startswith(busy) or not os.path.lexists(path):
            continue
        answers = name.startswith(TEMPORARY) and name.endswith(".jsonl") and path.is_file()
        with os_errors_refused(path):
            if PROBE.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):  # another process has just looked
                    discard(path, files)
            elif name.startswith((TEMPORARY, DOOMED)) and not answers:
                discard(path, files)
            elif name.startswith(ASIDE):
                put_back(parent / name.removeprefix(ASIDE), files)
            else:
                continue
        swept.append(name)
    return swept


def _is_unlocked(lock: Path) -> bool:
    """Return whether no process holds the lock; its file is then removed."""
    try:
        with Lock(lock, passing=True):
            return True
    except StoppedError:
        return False


class Staging:
    """A temporary folder, passed to the function that fills it."""

    def __init__(self, path: Path, manifest: str, about: dict[str, Any], files: FileSystem) -> None:
        self.path = path
        self.about = about
        self.files = files
        self._manifest = manifest
        self._written: dict[str, dict[str, Any]] = {}
        self._open: list[StagedFile] = []

    def create(self, name: str) -> StagedFile:
        """Return a new file for writing; close it, or use it in a `with`."""
        file = StagedFile(
            self._place(name), self.files, functools.partial(self._written.__setitem__, name)
        )
        self._open.append(file)
        return file

    def write_bytes(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """Write a file; `name` may contain folders, as "training/state.json"."""
        with self.create(name) as file:
            for piece in (data,) if isinstance(data, bytes | bytearray | memoryview) else data:
                file.write(piece)

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        self.write_bytes(name, (text + "\n").encode())

    def finish(self) -> Manifest:
        """Write the manifest and flush every folder."""
        if any(not file.closed for file in self._open):
            raise ValueError("a file of the folder is still open")
        facts = json.loads(canonical_json(self.about))
        manifest = Manifest(FORMAT, facts, dict(sorted(self._written.items())))
        with StagedFile(self.path / self._manifest, self.files, lambda facts: None) as file:
            file.write(manifest.render())
        for folder, _, _ in os.walk(self.path, topdown=False):
            self.files.fsync_folder(Path(folder))
        return manifest

    def abandon(self) -> None:
        for file in self._open:
            file.abandon()
        if os.path.lexists(self.path):
            with contextlib.suppress(OSError):
                discard(self.path, self.files)

    def _place(self, name: str) -> Path:
        if name == self._manifest:
            raise UsageError("the manifest is written by the commit itself", found=repr(name))
        path = self.path / check_name(name)
        for parent in reversed(path.relative_to(self.path).parents[:-1]):
            if not (self.path / parent).is_dir():
                self.files.mkdir(self.path / parent)
        return path


class StagedFile:
    """A file that is hashed while it is written and flushed when it is closed."""

    def __init__(
        self, path: Path, files: FileSystem, record: Callable[[dict[str, Any]], None]
    ) -> None:
        self.path = path
        self.bytes = 0
        self.closed = False
        self._files, self._record = files, record
        self._hash = hashlib.sha256()
        self._descriptor = files.open_write(path)

    def write(self, data: Buffer) -> None:
        """Write all of `data`, in as many system calls as needed."""
        rest = memoryview(data)
        rest = rest.cast("B") if rest.nbytes else memoryview(b"")
        self._hash.update(rest)
        self.bytes += rest.nbytes
        while rest.nbytes:
            num_written = self._files.write(self._descriptor, rest)
            if num_written <= 0:
                raise OSError(errno.EIO, "nothing was written", str(self.path))
            rest = rest[num_written:]

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True  # the descriptor is invalid even if close fails
        try:
            self._files.fsync(self._descriptor)
        finally:
            self._files.close(self._descriptor)
        self._record({"bytes": self.bytes, "sha256": self._hash.hexdigest()})

    def abandon(self) -> None:
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self._files.close(self._descriptor)

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close() if kind is None else self.abandon()
