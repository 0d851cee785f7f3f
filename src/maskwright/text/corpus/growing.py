"""A file that grows while it is read: the content of a pipe is stored on disk and read from there.

Readers open a file several times (its beginning tells its format), which a pipe does not allow.
Here a reader that reaches the end of the file waits for more from the pipe. Before it waits, the
rows so far can be answered (`waiting`).
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
        waiting: called before the pipe is waited for.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.waiting: Callable[[], None] = lambda: None
        self._stream, self._ended = stream, False

    def more(self) -> bytes:
        """Append the next bytes, and return them; empty at the end.

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
        except (OSError, ValueError):  # a stream of no descriptor
            return True


_OPEN: dict[Path, GrowingFile] = {}


@contextlib.contextmanager
def growing(path: Path, stream: BinaryIO) -> Iterator[GrowingFile]:
    """A block in which readers of `path` read a file that grows by `stream`."""
    opened = _OPEN[path] = GrowingFile(path, stream)
    try:
        yield opened
    finally:
        del _OPEN[path]


def find(path: Path) -> GrowingFile | None:
    """The growing file at `path`; None for other files."""
    return _OPEN.get(path)
