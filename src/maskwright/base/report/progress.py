"""How far a run is, how fast it goes and how its loss went, in constant memory.

Nothing is computed per step but a running mean; speed and remaining time come from marks that are
set when something is shown.
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
    """The course of the loss in a fixed number of cells; old cells are merged as new ones come."""

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
        """One character per cell, the highest loss the tallest."""
        means = self._means
        if len(means) > self.cells:
            means = [sum(means[i : i + 2]) / len(means[i : i + 2]) for i in range(0, len(means), 2)]
        if not means:
            return ""
        low, high = min(means), max(means)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((m - low) * scale)] for m in means)


class Throughput:
    """Speed over the last marks, and the time a run still takes.

    The first mark is set at the first step that is seen, so a resumed run is judged by what it does
    now, and the slow first step is left out.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque(maxlen=40)  # (time, tokens)
        self._first: tuple[float, float] | None = None  # (time, share of the run)
        self._now = 0.0

    def mark(self, now: float, tokens: float, share: float) -> None:
        """At `now` (seconds), `tokens` were seen and `share` (0 to 1) of the run is over."""
        self._now = now
        self._first = self._first or (now, share)
        if tokens == tokens and (not self._marks or now > self._marks[-1][0]):
            self._marks.append((now, tokens))

    @property
    def tokens_per_second(self) -> float:
        """0 until two marks are there."""
        if len(self._marks) < 2:
            return 0.0
        (since, before), (now, after) = self._marks[0], self._marks[-1]
        return (after - before) / (now - since)

    def remaining(self, share: float) -> float:
        """Seconds until the share of the run that is over is 1; NaN until that can be said."""
        if self._first is None or share <= self._first[1]:
            return math.nan
        started, first_share = self._first
        return (1 - share) * (self._now - started) / (share - first_share)


def budget(run: Record) -> Budget | None:
    """Of a run as its `run.json` says it; None of one without a known end."""
    recorded = run.get("budget")
    table = recorded if isinstance(recorded, Mapping) else {}
    for unit, value in [*((u, number(table, u)) for u in UNITS), ("steps", number(run, "steps"))]:
        if unit != "flops" and 0 < value < math.inf:
            fields: dict[str, Any] = {unit: value if unit == "minutes" else int(value)}
            return Budget(**fields)
    return None
