"""A file that grows while it is read: what a pipe brings is kept on disk and read from there.

Readers open a file several times (its beginning tells its kind), which a pipe does not allow. Here
the reader that comes to the end of the file waits for more of the pipe. Before it waits, what came
so far can be answered (`waiting`).
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from maskwright.storage.files import in_our_words

STEP = 1 << 20


def _nothing() -> None:
    """What is done before waiting where nobody asks."""


class Growing:
    """What `stream` brings, appended to the file `path` as it comes.

    Attributes:
        waiting: called before the pipe is waited for.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.waiting: Callable[[], None] = _nothing
        self._stream, self._ended = stream, False

    def more(self) -> bytes:
        """Append what comes next, and give it; empty at the end.

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
        with in_our_words(self.path), self.path.open("ab") as file:
            file.write(data)
        return data

    def _ready(self) -> bool:
        """Whether something is there, or the end."""
        try:
            return bool(select.select([self._stream], [], [], 0)[0])
        except (OSError, ValueError):  # a stream of no descriptor
            return True


_OPEN: dict[Path, Growing] = {}


@contextlib.contextmanager
def growing(path: Path, stream: BinaryIO) -> Iterator[Growing]:
    """Readers of `path` take it for a file that grows by `stream` while the block runs."""
    opened = _OPEN[path] = Growing(path, stream)
    try:
        yield opened
    finally:
        del _OPEN[path]


def find(path: Path) -> Growing | None:
    """What `path` grows by; None of other files."""
    return _OPEN.get(path)
