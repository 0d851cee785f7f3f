"""The rows that a step trains on: a function of the step, so that nothing has to be saved.

    n = step * batch_rows, …          samples, counted from the beginning of the run
    epoch, i = divmod(n, num_rows)
    row = permute(key("shuffle", seed, epoch), num_rows, i)

A source with an order of its own (`Ordered`) is asked for the rows of these samples instead.

Every row comes once per epoch; a batch may end one epoch and begin the next, so none is dropped.
The loader's state is one integer, the step or, where batches differ in size, the number of samples;
the trainer owns it. The number of processes that share a batch does not change the result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskwright.config import fingerprint
from maskwright.data.rows import Ordered, Rows, RowSource, join
from maskwright.errors import DataError, UsageError
from maskwright.randomness import key, permute


class Loader:
    """Batches of `batch_rows` rows of `source`, in the order of `seed`.

    Raises:
        DataError: the source has no rows.
    """

    def __init__(self, source: RowSource, batch_rows: int, seed: int) -> None:
        if len(source) == 0:
            raise DataError(
                "the text is too short for a single row",
                found=source.description,
                do="give more text, or shorten the rows",
            )
        if batch_rows < 1:
            raise UsageError(
                "a batch needs at least one row",
                found=batch_rows,
                wanted="1 or more",
                do="raise training.batch",
            )
        self.source, self.batch_rows, self.seed = source, batch_rows, seed
        self.fingerprint = fingerprint(["loader", 1, source.fingerprint, batch_rows, seed])

    def batch(
        self, step: int, rank: int = 0, world: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row numbers and their epochs, (batch_rows / world,) each, of step `step` from 0.

        Raises:
            UsageError: `world` does not divide the batch.
        """
        if self.batch_rows % world or not 0 <= rank < world or step < 0:
            raise UsageError(
                "the batch has no such slice",
                found=f"{rank} of {world}, step {step}",
                wanted=f"a divisor of {self.batch_rows} rows",
            )
        share = self.batch_rows // world
        return self.take(step * self.batch_rows + rank * share, share)

    def take(self, begin: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row numbers and their epochs, (count,) each, of `count` samples from number `begin`."""
        if isinstance(self.source, Ordered):
            return self.source.take(begin, count)
        epochs, places = np.divmod(np.arange(begin, begin + count), len(self.source))
        keys = key("shuffle", self.seed, epochs)
        return permute(keys, len(self.source), places), epochs

    def rows_of(self, indices: NDArray[np.int64], epochs: NDArray[np.int64]) -> Rows:
        """The rows with these numbers, each of its own epoch, in the order given."""
        found = [np.flatnonzero(epochs == epoch) for epoch in np.unique(epochs)]
        parts = [self.source.rows(indices[rows], int(epochs[rows[0]])) for rows in found]
        if len(parts) == 1:
            return parts[0]
        return join(parts).take(np.argsort(np.concatenate(found)))

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """The rows of `batch(step, rank, world)`."""
        return self.rows_of(*self.batch(step, rank, world))
