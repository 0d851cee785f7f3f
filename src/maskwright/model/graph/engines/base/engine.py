"""The contract of an engine.

NEEDS       names of the packages that it imports
PRECISIONS  supported precisions of matrix products, the default first
load(file, threads, precision) -> Runtime

Runtime     name, precision, bytes    run(ids, mask, segments) -> states
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ResourceError
from maskwright.model.device.choices import module_of_engine, require_engine
from maskwright.model.graph.graphs import IDS, MASK, SEGMENTS

Ids = NDArray[np.int64]
States = NDArray[np.float32]


class Runtime(Protocol):
    """A stack loaded by another library."""

    name: str
    precision: str
    bytes: int
    """Size of the graph with its weights."""

    def run(self, ids: Ids, mask: Ids, segments: Ids | None = None) -> States:
        """Return the hidden states (B, T, D) of ids (B, T); `mask` is 0 at padding."""


def load(name: str, file: Path, *, threads: int, precision: str) -> Runtime:
    """Load the graph in `file` with the engine `name`.

    Raises:
        UsageError: as `require_engine`.
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
