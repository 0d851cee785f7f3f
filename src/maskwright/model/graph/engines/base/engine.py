"""The contract of an engine.

NEEDS       the packages that it imports
EXACT       whether it computes with the model's own numbers; one that does not is taken only
            when it is named
PRECISIONS  what products it computes: the first is usual
load(file, threads, precision) -> Engine

Engine      name, bytes    warm(shapes)    run(ids, mask, segments) -> states
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ResourceError
from maskwright.model.graph.engines.base.names import module, require
from maskwright.model.graph.graphs import IDS, MASK, SEGMENTS

Ids = NDArray[np.int64]
States = NDArray[np.float32]
Shape = tuple[int, int]  # rows, positions


class Engine(Protocol):
    """A stack that was loaded by another library."""

    name: str
    precision: str
    bytes: int
    """Of the graph with its weights, as the engine read it."""

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Answer rows of these shapes once, so that what is made at first use is made."""

    def run(self, ids: Ids, mask: Ids, segments: Ids | None = None) -> States:
        """The states (B, T, D) of rows (B, T); `mask` is 0 where a row is padded."""


def load(name: str, file: Path, *, threads: int, precision: str) -> Engine:
    """The engine `name` over the graph in `file`.

    Raises:
        UsageError: as `require`.
        ResourceError: the library cannot load the graph.
    """
    require(name)
    of = module(name)
    usable = precision if precision in of.PRECISIONS else of.PRECISIONS[0]
    try:
        engine: Engine = of.load(file, threads, usable)
    except (RuntimeError, ValueError, OSError) as error:
        raise ResourceError(
            "the engine cannot load the model",
            where=name,
            found=str(error).strip().splitlines()[-1] if str(error).strip() else repr(error),
            do='answer with the engine "torch"',
        ) from error
    return engine


def feeds(ids: Ids, mask: Ids, segments: Ids | None, inputs: Sequence[str]) -> dict[str, Ids]:
    """What a graph with these `inputs` is given; segments that are not said are the first."""
    arrays = {IDS: ids, MASK: mask}
    if SEGMENTS in inputs:
        arrays[SEGMENTS] = np.zeros_like(ids) if segments is None else segments
    return arrays


def rows_of(shape: Shape, longest: int | None = None) -> tuple[Ids, Ids]:
    """Ids and mask of this shape, to warm an engine with."""
    rows, length = shape
    length = length if longest is None else min(length, longest)
    ids = np.ones((rows, length), np.int64)
    return ids, np.ones_like(ids)


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A place for a graph until it is loaded."""
    return tempfile.TemporaryDirectory(prefix="maskwright-engine-")
