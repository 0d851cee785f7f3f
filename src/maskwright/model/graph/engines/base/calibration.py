"""Measure in a second or two which of several engines is fastest on this machine.

    cells       one row of 32 and of 128 tokens, 8 rows of 32, 32 rows of mixed lengths
    rule        an engine replaces ours if it is `FASTER` times as fast in at least `CELLS_WON`
                cells, and faster in the geometric mean; the one with the best mean is chosen

The engines take turns in every cell; the first call of each turn is a warm-up. The time of a cell
is the minimum over its calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Lengths = tuple[int, ...]
MIXED = tuple(int(n) for n in np.round(np.geomspace(12, 128, 32)))
CELLS: Mapping[str, Lengths] = {
    "1 row of 32": (32,),
    "1 row of 128": (128,),
    "8 rows of 32": (32,) * 8,
    "32 rows of 12 to 128": MIXED,
}
FASTER, CELLS_WON = 1.2, 2
SECONDS = 1.5
LEAST_CALLS = 5
Side = Callable[[Lengths], object]


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        times: name of engine -> name of cell -> seconds.
        ours: name of the engine that is used unless another is faster.
        chosen: name of the chosen engine.
    """

    times: Mapping[str, Mapping[str, float]]
    ours: str
    chosen: str

    def ratios(self, name: str) -> list[float]:
        """Return the speed of an engine relative to ours, cell by cell."""
        ours = self.times[self.ours]
        return [ours[cell] / seconds for cell, seconds in self.times[name].items()]

    def line(self) -> str:
        """Return the times of all engines, for a finding."""
        cells = list(next(iter(self.times.values())))
        sides = (
            f"{name} {', '.join(f'{self.times[name][cell] * 1e3:.1f}' for cell in cells)}"
            for name in self.times
        )
        return f"ms at {'; '.join(cells)}: {'; '.join(sides)}"


def calibrate(
    sides: Mapping[str, Side],
    ours: str,
    *,
    longest: int | None = None,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure the engines and choose one.

    Args:
        sides: name of engine -> function that runs it on rows of given lengths.
        ours: name of the engine that is used unless another is faster.
        longest: maximum length of a row; longer cells are truncated. None for no maximum.
        seconds: total time of the measurement, with at least `LEAST_CALLS` calls for each cell.
    """
    cells = {
        name: tuple(min(length, longest or length) for length in lengths)
        for name, lengths in CELLS.items()
    }
    times: dict[str, dict[str, float]] = {name: {} for name in sides}
    share = seconds / (len(cells) * len(sides))
    for cell, lengths in cells.items():
        for name, side in sides.items():
            side(lengths)
            times[name][cell] = _least(side, lengths, share, clock)
    return Calibration(times, ours, choose(times, ours))


def choose(times: Mapping[str, Mapping[str, float]], ours: str) -> str:
    """Return the name of the chosen engine, by the rule above."""
    best, fastest = 1.0, ours
    for name, cells in times.items():
        ratios = [times[ours][cell] / seconds for cell, seconds in cells.items()]
        cells_won = sum(ratio >= FASTER for ratio in ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if name != ours and cells_won >= CELLS_WON and mean > best:
            best, fastest = mean, name
    return fastest


def _least(side: Side, lengths: Lengths, seconds: float, clock: Callable[[], float]) -> float:
    """Return the minimum time of a call within the given seconds."""
    times: list[float] = []
    end = clock() + seconds
    while len(times) < LEAST_CALLS or clock() < end:
        begin = clock()
        side(lengths)
        times.append(clock() - begin)
    return min(times)
