"""The contract of an engine, and the choice of the fastest.

The contract of an engine.

NEEDS       names of the packages that it imports
EXACT       whether it uses the original weights; other engines are used only if named explicitly
PRECISIONS  supported precisions of matrix products, the default first
load(file, threads, precision) -> Runtime

Runtime      name, bytes    warm(shapes)    run(ids, mask, segments) -> states

Measure in a second or two which of several engines is fastest on this machine.

    cells       one row of 32 and of 128 tokens, 8 rows of 32, 32 rows of mixed lengths
    rule        an engine replaces ours if it is `FASTER` times as fast in at least `CELLS_WON`
                cells, and faster in the geometric mean; the one with the best mean is chosen

The engines take turns in every cell; the first call of each turn is a warm-up. The time of a cell
is the minimum over its calls.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ResourceError
from maskwright.model.device.choices import module_of_engine, require_engine
from maskwright.model.graph.graphs import IDS, MASK, SEGMENTS

Ids = NDArray[np.int64]
States = NDArray[np.float32]
Shape = tuple[int, int]  # rows, positions


class Runtime(Protocol):
    """A stack loaded by another library."""

    name: str
    precision: str
    bytes: int
    """Size of the graph with its weights."""

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Run on inputs of these shapes once, so that lazy initialisation is done."""

    def run(self, ids: Ids, mask: Ids, segments: Ids | None = None) -> States:
        """Return the hidden states (B, T, D) of ids (B, T); `mask` is 0 at padding."""


def load(name: str, file: Path, *, threads: int, precision: str) -> Runtime:
    """Load the graph in `file` with the engine `name`.

    Raises:
        UsageError: as `require`.
        ResourceError: the library cannot load the graph.
    """
    require_engine(name)
    engine_module = module_of_engine(name)
    usable = precision if precision in engine_module.PRECISIONS else engine_module.PRECISIONS[0]
    try:
        engine: Runtime = engine_module.load(file, threads, usable)
    except (RuntimeError, ValueError, OSError) as error:
        raise ResourceError(
            "the engine cannot load the model",
            where=name,
            found=str(error).strip().splitlines()[-1] if str(error).strip() else repr(error),
            do='answer with the engine "torch"',
        ) from error
    return engine


def feeds(ids: Ids, mask: Ids, segments: Ids | None, inputs: Sequence[str]) -> dict[str, Ids]:
    """Return the arrays by name for a graph with these `inputs`; default segments are 0."""
    arrays = {IDS: ids, MASK: mask}
    if SEGMENTS in inputs:
        arrays[SEGMENTS] = np.zeros_like(ids) if segments is None else segments
    return arrays


def rows_of(shape: Shape, longest: int | None = None) -> tuple[Ids, Ids]:
    """Return ids and mask of this shape, for a warm-up."""
    rows, length = shape
    length = length if longest is None else min(length, longest)
    ids = np.ones((rows, length), np.int64)
    return ids, np.ones_like(ids)


def temporary() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for a graph until it is loaded."""
    return tempfile.TemporaryDirectory(prefix="maskwright-engine-")


# ------------------------------------------------------------------------------ the fastest
Lengths = tuple[int, ...]
MIXED = tuple(int(n) for n in np.round(np.geomspace(12, 128, 32)))
CELLS: Mapping[str, Lengths] = {
    "1 row of 32": (32,),
    "1 row of 128": (128,),
    "8 rows of 32": (32,) * 8,
    "32 rows of 12 to 128": MIXED,
}
FASTER, CELLS_WON = 1.2, 2
CALIBRATION_SECONDS = 1.5
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
    seconds: float = CALIBRATION_SECONDS,
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
