"""File systems that record what a commit does, refuse its n-th operation, or die there.

A dead file system refuses everything that follows, clean-up included, as a killed process does; so
the code under test needs no fork to be killed at each of its operations in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.base.storage.files import FileSystem

OPERATIONS = (
    *("open_write", "write", "fsync", "close", "mkdir", "rename"),
    *("fsync_folder", "fsync_path", "remove", "rmdir"),
)


class Killed(BaseException):
    """The process ended here."""


class Unhurried(FileSystem):
    """The real disk, but for the waiting: what is flushed is flushed sometime."""

    def fsync(self, descriptor: int) -> None:
        os.fstat(descriptor)

    def fsync_folder(self, path: Path) -> None:
        os.listdir(path)

    def fsync_path(self, path: Path) -> None:
        os.stat(path)


class Watched(Unhurried):
    """Every operation passes `before` first and is kept in `trace` once it is done."""

    def __init__(self) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self.paths: dict[int, Path] = {}
        self.count = 0

    def before(self, operation: str, *arguments: Any) -> None:
        self.count += 1

    def note(self, what: str) -> None:
        """A line of the trace that is no operation."""
        self.trace.append(("note", what))


def _watched(operation: str) -> Callable[..., Any]:
    real = getattr(Unhurried, operation)

    def run(self: Watched, *arguments: Any) -> Any:
        self.before(operation, *arguments)
        first = self.paths.get(arguments[0], arguments[0])
        result = real(self, *arguments)
        if operation == "open_write":
            self.paths[result] = arguments[0]
        rest = [bytes(a[:result]) if isinstance(a, memoryview) else a for a in arguments[1:]]
        self.trace.append((operation, first, *rest))
        return result

    return run


for _operation in OPERATIONS:
    setattr(Watched, _operation, _watched(_operation))


class Failing(Watched):
    """The operations numbered in `when` (from 1) answer with the error `number`."""

    def __init__(self, number: int, *when: int) -> None:
        super().__init__()
        self.number, self.when = number, when

    def before(self, operation: str, *arguments: Any) -> None:
        super().before(operation, *arguments)
        if self.count in self.when:
            if operation == "close":
                os.close(arguments[0])  # the descriptor is gone, whatever close answers
            raise OSError(self.number, os.strerror(self.number))


class Dying(Watched):
    """Dies at operation `when`, from 1; a write in which it dies has done half its work."""

    def __init__(self, when: int) -> None:
        super().__init__()
        self.when = when

    def before(self, operation: str, *arguments: Any) -> None:
        super().before(operation, *arguments)
        if self.count < self.when:
            return
        if self.count == self.when and operation == "write":
            os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise Killed(f"at operation {self.when}, {operation}")


class Stuttering(Unhurried):
    """Takes at most seven bytes of each write."""

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data[:7])
