"""The records of a run, in two files.

`metrics.jsonl` holds losses, learning rates, evaluations and samples; an identical run writes the
same bytes. `timings.jsonl` holds seconds, tokens per second and memory. The journal is flushed
before a checkpoint is saved, and resuming truncates it to the checkpoint. If the disk is full,
lines are kept in memory until the next flush.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from maskwright.base.errors import DataError, MaskwrightError
from maskwright.base.storage.files import FULL, new_file, os_errors_refused

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
# Number of buffered bytes at which lines are written.
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
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Write the buffered lines; an error is raised only if the block raised none."""
        try:
            self.flush()
        except MaskwrightError:
            if error is None:
                raise
        finally:
            for file in self._files.values():
                file.close()

    def write(self, record: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl`; it must not depend on time or machine."""
        self._append(METRICS, record)

    def time(self, step: int, seconds: float, tokens_per_second: float, peak_memory: int) -> None:
        """Append a line to `timings.jsonl`; `peak_memory` in bytes."""
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
        """Write all buffered lines to disk.

        Raises:
            StoppedError: the disk is full.  OutputError, StorageError: it cannot be written.
        """
        with os_errors_refused(self.folder):
            for name in self._waiting:
                self._write(name)
                os.fsync(self._files[name].fileno())

    def _append(self, name: str, record: dict[str, Any]) -> None:
        buffer = self._waiting.setdefault(name, bytearray())
        buffer += (json.dumps(record, separators=(",", ":")) + "\n").encode()
        if len(buffer) < WAITING:
            return
        with os_errors_refused(self.folder / name):
            try:
                self._write(name)
            except OSError as error:
                if error.errno not in FULL:  # a full disk is reported when a checkpoint is saved
                    raise

    def _write(self, name: str) -> None:
        if name not in self._files:
            self._files[name] = (self.folder / name).open("ab", buffering=0)
        buffer = self._waiting[name]
        while buffer:
            del buffer[: self._files[name].write(bytes(buffer))]


def cut(folder: Path, step: int) -> int:
    """Remove the lines after `step`, and an incomplete last line, from both files.

    Each file is replaced atomically. Returns the number of removed lines.
    """
    removed = 0
    for name in (METRICS, TIMINGS):
        path = folder / name
        if not path.is_file():
            continue
        lines = path.read_bytes().splitlines(keepends=True)
        remaining = [line for line in lines if (at := _step(line)) is not None and at <= step]
        if len(remaining) == len(lines):
            continue
        removed += len(lines) - len(remaining)
        with new_file(path) as file:
            file.writelines(remaining)
    return removed


def read(folder: Path, name: str = METRICS) -> list[dict[str, Any]]:
    """Return the records of all complete lines of one of the two files."""
    path = folder / name
    if not path.is_file():
        return []
    with path.open("rb") as lines:
        records = [json.loads(line) for line in lines if _step(line) is not None]
    return records if name != METRICS else [r for r in records if isinstance(r.get("kind"), str)]


def figures(folder: Path, saved: Mapping[str, Any] | None, *, bits: bool) -> list[dict[str, Any]]:
    """Return the validated records of `metrics.jsonl`, for comparison with those of other runs.

    Args:
        saved: the `stamp` in the newest checkpoint; None for a checkpoint of an earlier release:
            then only the fields of the lines are checked.
        bits: whether evaluations must have bits per byte.

    Raises:
        DataError: the file differs from the saved stamp, or a line lacks a number.
    """
    if saved is not None and stamp(folder, saved.get("bytes")) != saved:
        raise _damaged(folder, f"not the {saved.get('bytes')} bytes with {saved.get('sha256')}")
    lines = read(folder)
    required = {"train": ("tokens",), "evaluation": ("loss", *["bits_per_byte"] * bits)}
    for line in lines:
        if missing := [n for n in required.get(line["kind"], ()) if not _is_number(line.get(n))]:
            name = missing[0]
            raise _damaged(folder, f"step {line['step']}: {name}: {line.get(name)!r}"[:200])
    trained_steps = {line["step"] for line in lines if line["kind"] == "train"}
    evaluated_steps = {line["step"] for line in lines if line["kind"] == "evaluation"}
    if not evaluated_steps or not evaluated_steps <= trained_steps:
        raise _damaged(folder, "no evaluation, or one of a step without a line")
    return lines


def _damaged(folder: Path, content: str) -> DataError:
    return DataError(
        "metrics.jsonl is not what the run saved",
        where=folder / METRICS,
        found=content,
        do="take an intact copy of the run, or remove its folder and let it be trained again",
    )


def times(folder: Path) -> list[dict[str, Any]]:
    """Return the records of `timings.jsonl` that have a time and a step."""
    return [
        line
        for line in read(folder, TIMINGS)
        if _is_number(line.get("seconds")) and _is_number(line["step"])
    ]


def stamp(folder: Path, size: Any = None) -> dict[str, Any] | None:
    """Return {"bytes", "sha256"} of `metrics.jsonl`, or of its first `size` bytes; None if the file
    does not exist or is shorter."""
    path = folder / METRICS
    if not path.is_file():
        return None
    data = path.read_bytes()
    size = len(data) if size is None else size
    if not isinstance(size, int) or not 0 <= size <= len(data):
        return None
    return {"bytes": size, "sha256": hashlib.sha256(data[:size]).hexdigest()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _step(line: bytes) -> int | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None  # incomplete, or not written by `Journal`
