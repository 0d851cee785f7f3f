"""Reads a run folder for its report; only one of its files is required.

The run may still be active or may have stopped within a line. Unreadable lines are counted and left
out; an unreadable `run.json` is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.report import tables
from maskwright.base.report.progress import budget
from maskwright.base.report.wording import number
from maskwright.base.storage.commit import numbered
from maskwright.base.storage.strict_json import parse_object

Record = dict[str, Any]
LARGEST = 64 << 20  # bytes of run.json


@dataclass(frozen=True)
class RunFolder:
    """The files of a run as plain values. `saved` is the config.json of the newest checkpoint,
    `unreadable` the number of lines left out, `written` the time of the newest record."""

    path: Path
    run: Record = field(default_factory=dict)
    train: list[Record] = field(default_factory=list)
    skipped: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    samples: list[Record] = field(default_factory=list)
    timings: list[Record] = field(default_factory=list)
    tables: list[Record] = field(default_factory=list)
    recipe: str = ""
    checkpoints: tuple[str, ...] = ()
    saved: Record = field(default_factory=dict)
    unreadable: int = 0
    written: datetime | None = None

    @property
    def references(self) -> Record:
        return table(self.run.get("references"))

    @property
    def seconds(self) -> float:
        """Seconds of training; NaN if not recorded."""
        return number(self.timings[-1], "seconds") if self.timings else math.nan

    @property
    def share(self) -> float:
        """The share of the budget that is used, 0 to 1."""
        lasts, latest = budget(self.run), self.train[-1] if self.train else {}
        if lasts is None:
            return 0.0
        steps, tokens = number(latest, "step"), number(latest, "tokens")
        return lasts.share(steps=steps, tokens=tokens, seconds=self.seconds)


def read(folder: Path) -> RunFolder:
    """Read the folder of a run.

    Raises:
        UsageError: no such folder, or neither `run.json` nor `metrics.jsonl` is in it.
        DataError: `run.json` is not a JSON object.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError("there is no such run folder", where=folder, do="look in runs/")
    metrics_file, run_file = folder / "metrics.jsonl", folder / "run.json"
    if not metrics_file.is_file() and not run_file.is_file():
        raise UsageError(
            "this is not a run folder", where=folder, found="neither run.json nor metrics.jsonl"
        )
    run: Record = {}
    if run_file.is_file():
        run = parse_object(run_file.read_bytes(), run_file, error=DataError, largest=LARGEST)
    metrics, lost = _lines(metrics_file)
    timings, lost_timings = _lines(folder / "timings.jsonl")
    recipe_file = folder / "recipe.toml"
    checkpoints = numbered(folder / "checkpoints")
    return RunFolder(
        path=folder,
        run=run,
        train=[r for r in metrics if r.get("kind") == "train"],
        skipped=[r for r in metrics if r.get("kind") == "skipped"],
        evaluations=[r for r in metrics if r.get("kind") == "evaluation"],
        samples=[r for r in metrics if r.get("kind") == "sample"],
        timings=timings,
        tables=tables.read(folder),
        recipe=recipe_file.read_text("utf-8", "replace") if recipe_file.is_file() else "",
        checkpoints=tuple(p.name for p in checkpoints),
        saved=_saved(checkpoints[-1]) if checkpoints else {},
        unreadable=lost + lost_timings,
        written=datetime.fromtimestamp(metrics_file.stat().st_mtime, UTC) if metrics else None,
    )


def table(value: object) -> Record:
    """Return `value` if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def _saved(checkpoint: Path) -> Record:
    """Return the config.json of a checkpoint; empty if it cannot be read."""
    try:
        return table(json.loads((checkpoint / "config.json").read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def _lines(path: Path) -> tuple[list[Record], int]:
    """Return the objects of a JSON-lines file and the number of invalid lines."""
    records: list[Record] = []
    lost = 0
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                if isinstance(value, dict):
                    records.append(value)
                elif line.strip():
                    lost += 1
    return records, lost
