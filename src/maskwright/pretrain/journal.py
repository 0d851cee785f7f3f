"""What a run writes down as it goes, in two files.

`metrics.jsonl` holds only what a repeated run would write again, byte for byte: losses, rates,
evaluations, samples. `timings.jsonl` holds the rest: seconds, tokens per second, memory. A
checkpoint never gets ahead of the journal (it is flushed first), and resuming cuts the journal back
to the checkpoint. Where the disk is full, lines wait in memory for the next flush.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from maskwright.errors import MaskwrightError
from maskwright.one_file import new_file
from maskwright.storage import FULL, in_our_words

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
# Bytes of lines that wait before they are written.
WAITING = 8192


class Journal:
    """Appends to both files of the run folder `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._waiting: dict[str, bytearray] = {}

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Write what waits; that this fails is told where nothing else has failed."""
        try:
            self.flush()
        except MaskwrightError:
            if error is None:
                raise
        finally:
            for file in self._files.values():
                file.close()

    def write(self, record: dict[str, Any]) -> None:
        """One line of `metrics.jsonl`; it must hold nothing that depends on time or place."""
        self._append(METRICS, record)

    def time(self, step: int, seconds: float, tokens_per_second: float, peak_memory: int) -> None:
        """One line of `timings.jsonl`; memory in bytes."""
        self._append(
            TIMINGS,
            {
                "step": step,
                "seconds": round(seconds, 3),
                "tokens_per_second": round(tokens_per_second, 1),
                "peak_memory": peak_memory,
            },
        )

    def flush(self) -> None:
        """Everything written so far is on disk when this returns.

        Raises:
            StoppedError: the disk is full.  OutputError, StorageError: it cannot be written.
        """
        with in_our_words(self.folder):
            for name in self._waiting:
                self._write(name)
                os.fsync(self._files[name].fileno())

    def _append(self, name: str, record: dict[str, Any]) -> None:
        waiting = self._waiting.setdefault(name, bytearray())
        waiting += (json.dumps(record, separators=(",", ":")) + "\n").encode()
        if len(waiting) < WAITING:
            return
        with in_our_words(self.folder / name):
            try:
                self._write(name)
            except OSError as error:
                if error.errno not in FULL:  # whoever saves next tells, and waits
                    raise

    def _write(self, name: str) -> None:
        if name not in self._files:
            self._files[name] = (self.folder / name).open("ab", buffering=0)
        waiting = self._waiting[name]
        while waiting:
            del waiting[: self._files[name].write(bytes(waiting))]


def cut(folder: Path, step: int) -> int:
    """Remove the lines after `step` from both files; returns how many went.

    A last line torn by a crash counts as after. The file is replaced as a whole.
    """
    removed = 0
    for name in (METRICS, TIMINGS):
        path = folder / name
        if not path.is_file():
            continue
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if (at := _step(line)) is not None and at <= step]
        if len(kept) == len(lines):
            continue
        removed += len(lines) - len(kept)
        with new_file(path) as file:
            file.writelines(kept)
    return removed


def read(folder: Path, name: str = METRICS) -> list[dict[str, Any]]:
    """All whole lines of one of the two files."""
    path = folder / name
    if not path.is_file():
        return []
    with path.open("rb") as lines:
        found = [json.loads(line) for line in lines if _step(line) is not None]
    return found if name != METRICS else [r for r in found if isinstance(r.get("kind"), str)]


def _step(line: bytes) -> int | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return None  # torn, or no line of ours
