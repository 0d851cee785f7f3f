"""From the turns of each side to its figures, and to the table that is shown.

single      seconds of one item by itself: median and 99th percentile over all turns
together    items and tokens of so many at once, per second
times       their time over ours, turn by turn: the median of the ratios
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maskwright.bench.work import Work
from maskwright.report.tables import Table

ENOUGH = 100
"""Items of which one in a hundred can be said."""
CLOSE = 0.999
"""Cosine of two vectors of one text that are taken for the same."""


@dataclass(frozen=True)
class Measured:
    """What one side came to.

    Attributes:
        label: its name in the table.
        turns: of its worker.
        started: seconds from the start of its process to the first answer.
        answers: to the first items, for comparison.
        tokens: of each of the first `items`, read or written.
    """

    label: str
    precision: str
    turns: Sequence[Mapping[str, Any]]
    started: float
    answers: Sequence[Any] = field(default_factory=list, repr=False)

    @property
    def single(self) -> list[float]:
        return [seconds for turn in self.turns for seconds in turn["single"]]

    def figures(self, tokens: float, ours: Measured | None, work: Work) -> dict[str, Any]:
        """The figures; `tokens` of an item on average."""
        single, count = self.single, int(self.turns[0]["items"])
        together = statistics.median(_together(turn) for turn in self.turns)
        return {
            "label": self.label,
            "precision": self.precision,
            "single_p50": float(np.percentile(single, 50)),
            "single_p99": float(np.percentile(single, 99)),
            "singles": len(single),
            "items_at_once": count,
            "items_per_second": count / together,
            "tokens_per_second": count * tokens / together,
            "tokens_per_second_single": tokens / float(np.percentile(single, 50)),
            "peak_bytes": int(self.turns[-1]["peak_bytes"]),
            "cold_start": self.started,
            "times_single": 1.0 if ours is None else _times(self, ours, _single),
            "times_together": 1.0 if ours is None else _times(self, ours, _together),
            "agrees": None if ours is None else agreement(work, self.answers, ours.answers),
            "turns": list(self.turns),
        }


def _single(turn: Mapping[str, Any]) -> float:
    return statistics.median(turn["single"])


def _together(turn: Mapping[str, Any]) -> float:
    return statistics.median(turn["together"])


def _times(side: Measured, ours: Measured, of: Any) -> float:
    """The median over the turns of its time over ours."""
    return statistics.median(of(a) / of(b) for a, b in zip(side.turns, ours.turns, strict=False))


def agreement(work: Work, found: Sequence[Any], ours: Sequence[Any]) -> float:
    """The share of items that are answered as ours: the same label, the same text, or vectors whose
    cosine is at least `CLOSE`."""
    if work.kind == "label":
        return float(np.mean([a[0] == b[0] for a, b in zip(found, ours, strict=True)]))
    if work.kind == "vector":
        first, second = np.asarray(found, np.float64), np.asarray(ours, np.float64)
        if first.shape != second.shape:
            return 0.0
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return float(((first * second).sum(1) / lengths >= CLOSE).mean())
    return float(np.mean([a == b for a, b in zip(found, ours, strict=True)]))


def table(work: Work, sides: Mapping[str, Any], absent: Mapping[str, str], about: str) -> Table:
    """The figures of all sides, and why the others have none."""
    writes = work.kind == "text"
    unit = "prompts" if writes else "texts" if work.kind != "answer" else "rows"
    first = next(iter(sides.values()))
    head = ["", "one: median", "99 %", f"{first['items_at_once']} at once: {unit}/s"]
    head += ["tokens/s at 1", "tokens/s"] if writes else ["tokens/s"]
    head += ["memory", "cold start", "its time of ours: one, at once", "as ours"]
    rows = []
    for each in sides.values():
        few = "" if each["singles"] >= ENOUGH else f" of {each['singles']}"
        row = [
            f"{each['label']}, {each['precision']}",
            f"{each['single_p50'] * 1e3:,.1f} ms",
            f"{each['single_p99'] * 1e3:,.1f} ms{few}",
            f"{each['items_per_second']:,.1f}",
        ]
        row += [f"{each['tokens_per_second_single']:,.1f}"] if writes else []
        row += [
            f"{each['tokens_per_second']:,.0f}",
            f"{each['peak_bytes'] / 2**20:,.0f} MiB",
            f"{each['cold_start']:,.1f} s",
            "" if each is first else f"{each['times_single']:.2f}x, {each['times_together']:.2f}x",
            "" if each["agrees"] is None else f"{each['agrees']:.1%}",
        ]
        rows.append(row)
    notes = [f"{about}."] + [f"{name}: {reason}." for name, reason in absent.items()]
    return {
        "title": f"{TITLES[work.kind]}: {work.folder}",
        "own_first": True,
        "head": head,
        "rows": rows,
        "note": "\n".join(notes),
    }


TITLES = {
    "label": "labels of texts",
    "answer": "answers to rows",
    "text": "texts written after prompts",
    "vector": "vectors of texts",
}
