"""Which of several engines answers sooner on this machine: a second or two of measuring.

    cells       one row of 32 and of 128 tokens, 8 rows of 32, 32 rows of mixed lengths
    the rule    an engine is taken in place of ours if it is `FASTER` times as fast in at least
                `CELLS_WON` cells, and on the whole (the geometric mean) faster; of several the one
                that is so most

The sides take turns at every cell; a side's first call in each turn is not timed, because it wakes
threads that slept and caches of another. The figure of a cell is its least time.
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
    """What was measured.

    Attributes:
        times: of each side the seconds of each cell, by their names.
        ours: the name of the side that stays unless another is faster.
        chosen: the name of the side that answers.
    """

    times: Mapping[str, Mapping[str, float]]
    ours: str
    chosen: str

    def ratios(self, name: str) -> list[float]:
        """How many times as fast as ours this side is, cell by cell."""
        ours = self.times[self.ours]
        return [ours[cell] / seconds for cell, seconds in self.times[name].items()]

    def line(self) -> str:
        """The times of all sides, for a finding."""
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
    """Measure the sides and choose one.

    Args:
        ours: the name of the one that stays unless another is faster.
        longest: tokens of a row that the model reads; longer cells are cut.
        seconds: of measuring, all sides and cells together; each is called a few times at least.
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
    """The side that answers, by the rule above."""
    best, fastest = 1.0, ours
    for name, cells in times.items():
        ratios = [times[ours][cell] / seconds for cell, seconds in cells.items()]
        won = sum(ratio >= FASTER for ratio in ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if name != ours and won >= CELLS_WON and mean > best:
            best, fastest = mean, name
    return fastest


def _least(side: Side, lengths: Lengths, seconds: float, clock: Callable[[], float]) -> float:
    """The least time of a call, of as many as the seconds allow."""
    times: list[float] = []
    end = clock() + seconds
    while len(times) < LEAST_CALLS or clock() < end:
        begin = clock()
        side(lengths)
        times.append(clock() - begin)
    return min(times)
