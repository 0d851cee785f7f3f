"""What a run writes down as it goes, in two files.

`metrics.jsonl` holds only what a repeated run would write again, byte for byte: losses, rates,
evaluations, samples. `timings.jsonl` holds the rest: seconds, tokens per second, memory. A
checkpoint never gets ahead of the journal (it is flushed first), and resuming cuts the journal back
to the checkpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO

from maskwright.storage import refusal

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"


class Journal:
    """Appends to both files of the run folder `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, TextIO] = {}

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
        """Everything written so far is on disk when this returns."""
        try:
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise refusal(error, self.folder) from error

    def close(self) -> None:
        if self._files:
            self.flush()
        for file in self._files.values():
            file.close()
        self._files = {}

    def _append(self, name: str, record: dict[str, Any]) -> None:
        try:
            if name not in self._files:
                path = self.folder / name
                self._files[name] = path.open("a", encoding="utf-8")
            self._files[name].write(json.dumps(record, separators=(",", ":")) + "\n")
        except OSError as error:
            raise refusal(error, self.folder / name) from error


def cut(folder: Path, step: int) -> int:
    """Remove the lines after `step` from both files; returns how many went.

    A last line torn by a crash counts as after. The file is replaced as a whole.
    """
    removed = 0
    for name in (METRICS, TIMINGS):
        path = folder / name
        if not path.is_file():
            continue
        kept = []
        with path.open("rb") as lines:
            for line in lines:
                if _step(line) is None or _step(line) > step:  # type: ignore[operator]
                    removed += 1
                else:
                    kept.append(line)
        temporary = path.with_name(f".tmp-{name}")
        with temporary.open("wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
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
