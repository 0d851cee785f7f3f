"""A file that grows while it is read: the content of a pipe is stored on disk and read from there.

Readers open a file several times (to detect its format), which a pipe does not allow. A reader that
reaches the end of the file waits for more data from the pipe. Before it waits, the rows so far can
be processed (`waiting`).
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from maskwright.base.storage.files import os_errors_refused

STEP = 1 << 20


class GrowingFile:
    """The content of `stream`, appended to the file `path` as it arrives.

    Attributes:
        waiting: called before waiting for the pipe.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.waiting: Callable[[], None] = lambda: None
        self._stream, self._ended = stream, False

    def more(self) -> bytes:
        """Append the next bytes from the stream and return them; empty at its end.

        Raises:
            StoppedError: the disk is full.
        """
        if self._ended:
            return b""
        if not self._ready():
            self.waiting()
        read = getattr(self._stream, "read1", self._stream.read)
        data: bytes = read(STEP)
        self._ended = not data
        with os_errors_refused(self.path), self.path.open("ab") as file:
            file.write(data)
        return data

    def _ready(self) -> bool:
        """Whether bytes are available, or the end is reached."""
        try:
            return bool(select.select([self._stream], [], [], 0)[0])
        except (OSError, ValueError):  # a stream without a file descriptor
            return True


_OPEN: dict[Path, GrowingFile] = {}


@contextlib.contextmanager
def growing(path: Path, stream: BinaryIO) -> Iterator[GrowingFile]:
    """Context manager in which readers of `path` read a file that grows from `stream`."""
    opened = _OPEN[path] = GrowingFile(path, stream)
    try:
        yield opened
    finally:
        del _OPEN[path]


def find(path: Path) -> GrowingFile | None:
    """Return the growing file at `path`; None for other files."""
    return _OPEN.get(path)
