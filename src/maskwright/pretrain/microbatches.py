"""The batches of a run: rows in the loader's order, corrupted by the objective's keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import Batch
from maskwright.data.loader import Loader
from maskwright.data.rows import Rows
from maskwright.objectives.parts.objective import Objective
from maskwright.train import loop
from maskwright.train.phases import Ramp
from maskwright.train.state import TrainState


class Microbatches:
    """The microbatches of the next step, a function of the number of rows taken so far and of the
    share of the budget that is used.

    All microbatches of a step have equally many rows. Where the row length changes, the count of
    rows continues in the order of the new rows.

    Args:
        phases: (share of the budget, loader): each loader is used until that share is reached.
    """

    def __init__(
        self,
        objective: Objective,
        phases: Sequence[tuple[float, Loader]],
        plan: loop.Plan,
        state: TrainState,
        ramp: Ramp | None = None,
    ) -> None:
        self.objective, self.phases, self.plan, self.state = objective, phases, plan, state
        self.ramp = ramp or Ramp()

    def __call__(self, step: int, number: int) -> Batch:
        rows, epochs = self.rows(number)
        return self.objective.corrupt(rows, epochs, self.plan.seed, self._progress)

    def rows(self, number: int) -> tuple[Rows, NDArray[np.int64]]:
        """The rows of microbatch `number` before they are corrupted, and the epoch of each."""
        progress, last = self._progress, self.phases[-1][1]
        loader = next((one for until, one in self.phases if progress < until), last)
        size = self.ramp.rows(loader.batch_rows // self.plan.microbatches, progress)
        indices, epochs = loader.take(self.state.samples + number * size, size)
        return loader.rows_of(indices, epochs), epochs

    @property
    def _progress(self) -> float:
        return loop.progress(self.plan, self.state)
