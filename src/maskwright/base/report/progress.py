"""Progress, speed and loss history of a run, in constant memory.

A step only updates a running mean; speed and remaining time are computed from marks that are set
when something is shown.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from maskwright.base.budget import UNITS, Budget
from maskwright.base.report.wording import number

Record = Mapping[str, Any]
BARS = "▁▂▃▄▅▆▇█"


class History:
    """The loss in a fixed number of cells, which are merged in pairs when all are used."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self._per_cell = 1
        self._means: list[float] = []
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        if value != value:
            return
        self._sum += value
        self._count += 1
        if self._count == self._per_cell:
            self._means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
            if len(self._means) == 2 * self.cells:
                pairs = zip(self._means[::2], self._means[1::2], strict=True)
                self._means = [(a + b) / 2 for a, b in pairs]
                self._per_cell *= 2

    def sparkline(self) -> str:
        """Return one character per cell, taller for a higher loss."""
        means = self._means
        if len(means) > self.cells:
            means = [sum(means[i : i + 2]) / len(means[i : i + 2]) for i in range(0, len(means), 2)]
        if not means:
            return ""
        low, high = min(means), max(means)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((m - low) * scale)] for m in means)


class Throughput:
    """Speed over the last marks, and the remaining time.

    The first mark is set after the first step, so the slow first step and the time before a run was
    resumed do not count.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque(maxlen=40)  # (time, tokens)
        self._first: tuple[float, float] | None = None  # (time, share of the run)
        self._now = 0.0

    def mark(self, now: float, tokens: float, share: float) -> None:
        """Record the tokens and the share of the run (0 to 1) at the time `now` in seconds."""
        self._now = now
        self._first = self._first or (now, share)
        if tokens == tokens and (not self._marks or now > self._marks[-1][0]):
            self._marks.append((now, tokens))

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second; 0 before the second mark."""
        if len(self._marks) < 2:
            return 0.0
        (since, before), (now, after) = self._marks[0], self._marks[-1]
        return (after - before) / (now - since)

    def remaining(self, share: float) -> float:
        """Return the remaining seconds; NaN while they cannot be estimated."""
        if self._first is None or share <= self._first[1]:
            return math.nan
        started, first_share = self._first
        return (1 - share) * (self._now - started) / (share - first_share)


def budget(run: Record) -> Budget | None:
    """Return the budget in `run.json`; None if the run has no known end."""
    recorded = run.get("budget")
    table = recorded if isinstance(recorded, Mapping) else {}
    for unit, value in [*((u, number(table, u)) for u in UNITS), ("steps", number(run, "steps"))]:
        if unit != "flops" and 0 < value < math.inf:
            fields: dict[str, Any] = {unit: value if unit == "minutes" else int(value)}
            return Budget(**fields)
    return None
