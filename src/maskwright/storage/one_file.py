"""One file, there whole or not at all: the protocol of `commit` for what is no folder.

    .tmp-name-process    made beside the target and flushed
    name                 renamed; then the folder is flushed. Only now is it saved.

Each process has a temporary file of its own, so that two of them that write one page at the same
time end with one of the two pages, and never with a mixture.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from maskwright.storage.files import (
    DISK,
    LONGEST_NAME,
    TEMPORARY,
    FileSystem,
    in_our_words,
    shortened,
)

_NUMBERS = itertools.count()
STAGED = re.compile(rf"{re.escape(TEMPORARY)}(.+)-\d+-\d+", re.DOTALL)


@contextlib.contextmanager
def new_file(target: Path, *, files: FileSystem = DISK) -> Iterator[BinaryIO]:
    """A stream for the bytes of `target`, which takes the place of what stood there when the block
    ends, and only if it ends well.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    with in_our_words(target):
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
    return [target.with_name(m[0]) for m in matches if m is not None and m[1] in names]


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
