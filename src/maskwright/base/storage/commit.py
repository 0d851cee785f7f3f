"""One protocol for every folder that is written: shards, tokenizers, checkpoints, exports, reports.

    .tmp-name/    made beside the target; each file hashed while it is written, then flushed
                  MANIFEST.json last: format, facts about the folder, bytes and SHA-256 of each file
                  the folder itself flushed
    name/         the temporary folder, renamed; then the parent is flushed. Only now is it saved.

One process at a time writes a folder: from the first file to the last rename it holds the lock
`.tmp-name.lock` beside the target, which the system drops when the process dies. A second one is
refused by the name of the first, and never touches its temporary folder. Who gets the lock first
settles what a killed process left: what was complete is put in place, the rest is removed.

Several files of a folder that may hold others go the same way (`commit_files`): once the temporary
folder has its manifest they are complete, and what is left is to move each out of it.

A folder is valid because its manifest verifies, not because of its name: `verify` reads the sizes,
then the hashes, and the manifest guards itself with a hash of its own. Whatever fails on the way,
the temporary folder goes and what stood there before stays. After an input/output error the whole
is tried once more in a new folder, since a flush that failed cannot be repeated (Rebello et al.
2020, "Can Applications Recover from fsync Failures?").
"""

from __future__ import annotations

import contextlib
import errno
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
    temporaries_of,
)
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.manifest import (
    FORMAT,
    MANIFEST,
    Manifest,
    check_name,
    extra_files,
    newest,
    numbered,
    read_manifest,
    verify,
)

__all__ = [
    "DISK",
    "FORMAT",
    "MANIFEST",
    "FileSystem",
    "Lock",
    "Manifest",
    "StagedFile",
    "Staging",
    "commit",
    "commit_files",
    "commit_once",
    "extra_files",
    "newest",
    "numbered",
    "probe_writable",
    "read_manifest",
    "refusal",
    "remove_folder",
    "require_new",
    "require_own",
    "sweep",
    "verify",
    "writing",
]

SPARE = 1.2  # free space asked for, as a multiple of the bytes expected
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
    """Write the folder `target` so that it is there completely or not at all.

    Args:
        target: the folder to make; its parents are made as needed.
        write: fills the folder through the `Staging` it is given. After an input/output error it
            is called a second time, for a new folder.
        manifest: the name of the manifest in the folder.
        about: facts recorded in the manifest; plain JSON. `write` may add to `Staging.about`.
        expected_bytes: checked against the free space before anything is written.
        replace: whether a folder that stands there already gives way.

    Raises:
        OutputError: the place cannot be written, or is taken.
        StoppedError: the disk or the quota is full, or another process is writing the folder.
        StorageError: the disk fails, twice.
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
    """Put new files into `folder`, by their names, so that all are there or none; after a kill
    between them, as soon as the same is asked again.

    Raises:
        OutputError: one of them is there already, or cannot be written.
        StoppedError, StorageError: as `commit`.
    """
    *_, last_name = texts

    def write(stage: Staging) -> None:
        for name, text in texts.items():
            require_new(folder / name)
            stage.write_bytes(name, text)

    commit(folder / last_name, write, about={BESIDE: list(texts)}, files=files)


BESIDE = "files"  # of a manifest: what is moved into the folder where the temporary one lies
_WRITTEN: set[tuple[int, int, Path]] = set()  # process, thread and folder of each `writing`


def commit_once(
    target: Path, write: Callable[[Staging], None], *, files: FileSystem = DISK
) -> None:
    """Write the folder `target` where several processes may do the same work at the same time: the
    first that ends puts it in place, and what the others made is dropped. Nobody waits.

    Args:
        target: found again if it is there.
        write: fills the folder; it must write the same wherever and whenever it is called.

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
    except OSError:  # a folder that holds something is never replaced
        if not target.is_dir():
            raise
        discard(staged, files)
    files.fsync_folder(target.parent)


@contextlib.contextmanager
def writing(target: Path, files: FileSystem = DISK) -> Iterator[None]:
    """Until the block ends, no other process and no other thread writes the folder `target`; inside
    it, this thread may `commit` it. For work whose result is one folder, so that a second process
    is refused before the work and not after it. What a stopped process left is settled first.

    Raises:
        StoppedError: another process is writing it; the message names the process.
        OutputError: the place cannot be written.
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
    """Finish what a stopped process left of a folder or a file; call it under its lock."""
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
    """Refuse to write over what is there. First what a stopped process left is settled; of several
    files, which `commit_files` writes, by the last.

    Raises:
        error: naming the first that is there.
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
        free = files.free_bytes(target.parent)
        if expected_bytes * SPARE > free:
            raise StoppedError(
                "not enough free space",
                where=target.parent,
                found=f"{free:,} bytes free",
                wanted=f"{int(expected_bytes * SPARE):,} bytes",
                do="free some space and start the same command again",
            )
        files.mkdir(stage.path)
        write(stage)
        manifest = stage.finish()
        if BESIDE in manifest.about:
            _move_out(stage.path, target, manifest.about[BESIDE], files)
            stage.abandon()  # what is left of it
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
        with contextlib.suppress(
            OSError
        ):  # undone as far as the disk allows; `sweep` does the rest
            if os.path.lexists(target) and not os.path.lexists(staged):
                files.rename(target, staged)
            if replaced and os.path.lexists(aside):
                files.rename(aside, target)
        raise
    if replaced:
        with contextlib.suppress(OSError):
            discard(aside, files)


def _move_out(staged: Path, target: Path, names: Sequence[str], files: FileSystem) -> None:
    """Move complete files out of the temporary folder, in their order, `target` the last."""
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
    """Finish what a stopped process left in `parent`; call it under the lock.

    Removes `.tmp-…` and `.del-…`; puts `.old-name` back where a replacement was cut off between
    its two renames. What another process is writing there now is left alone; so are predictions.
    Returns the names it dealt with.
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
    """Whether no process holds the lock any more; then its file is gone, too."""
    try:
        with Lock(lock, passing=True):
            return True
    except StoppedError:
        return False


class Staging:
    """The folder being written, handed to the function that fills it."""

    def __init__(self, path: Path, manifest: str, about: dict[str, Any], files: FileSystem) -> None:
        self.path = path
        self.about = about
        self.files = files
        self._manifest = manifest
        self._written: dict[str, dict[str, Any]] = {}
        self._open: list[StagedFile] = []

    def create(self, name: str) -> StagedFile:
        """A file to be written piece by piece; close it, or use it in a `with`."""
        file = StagedFile(self._place(name), self.files, lambda facts: self._record(name, facts))
        self._open.append(file)
        return file

    def write_bytes(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """One file; `name` may lie in subfolders, as "training/state.json"."""
        with self.create(name) as file:
            for piece in (data,) if isinstance(data, bytes | bytearray | memoryview) else data:
                file.write(piece)

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        self.write_bytes(name, (text + "\n").encode())

    def finish(self) -> Manifest:
        """The manifest, written last, and every folder flushed."""
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

    def _checked(self, name: str) -> str:
        if name == self._manifest:
            raise UsageError("the manifest is written by the commit itself", found=repr(name))
        return check_name(name)

    def _place(self, name: str) -> Path:
        path = self.path / self._checked(name)
        for parent in reversed(path.relative_to(self.path).parents[:-1]):
            if not (self.path / parent).is_dir():
                self.files.mkdir(self.path / parent)
        return path

    def _record(self, name: str, facts: dict[str, Any]) -> None:
        self._written[name] = facts


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
        """All of `data`, however often the system takes only a part."""
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
        self.closed = True  # whatever close answers, the descriptor is gone
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
