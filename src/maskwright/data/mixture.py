"""Several sources of rows as one, each with its share.

An epoch of the mixture has as many rows as all sources together; the shares decide how many come
from each. A source with too few rows starts its own next epoch; one with too many continues in the
mixture's next epoch where it stopped, and none of its rows is used twice before all are used once.
Everything follows from the row's number and the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from maskwright.config import fingerprint
from maskwright.data.rows import Rows, RowSource, check_indices, join
from maskwright.errors import ConfigError, IncompatibleError
from maskwright.randomness import key, permute


def mixed(sources: Sequence[RowSource], weights: Sequence[float], *, seed: int = 0) -> RowSource:
    """A single source unchanged, or several as their mixture."""
    if len(sources) == 1:
        return sources[0]
    return Mixture(list(zip(sources, weights, strict=True)), seed=seed)


class Mixture:
    """Rows of `sources` in proportion to their weights; itself a source.

    Args:
        sources: (source, weight) pairs; weights are positive and need not sum to one.
        seed: of the order in which each source gives its rows.

    Raises:
        ConfigError: no source, an empty one, or a weight that is not positive.
        IncompatibleError: rows of different lengths.
    """

    def __init__(self, sources: Sequence[tuple[RowSource, float]], *, seed: int = 0) -> None:
        self.sources = [source for source, _ in sources]
        weights = np.array([weight for _, weight in sources], dtype=np.float64)
        if not sources or not (np.isfinite(weights) & (weights > 0)).all():
            raise ConfigError(
                "the weights of a mixture are not positive numbers",
                where="mixture",
                found=weights.tolist(),
                wanted="numbers above 0",
                do="correct corpus.weights",
            )
        empty = [source.description for source in self.sources if len(source) == 0]
        if empty:
            raise ConfigError(
                "a source of a mixture has no rows",
                where="mixture",
                found=empty[0],
                do="give that text more documents, shorten the rows (rows.length), or leave it out",
            )
        lengths = {source.length for source in self.sources}
        if len(lengths) > 1:
            raise IncompatibleError(
                "rows of different lengths do not mix",
                found=sorted(lengths),
                wanted="one length",
                do="make all sources with the same row length",
            )
        self.length = lengths.pop()
        self._seed = seed
        total = sum(len(source) for source in self.sources)
        # Rounded so that the shares sum to `total`; a rare source still gives one row.
        borders = np.round(np.cumsum(weights / weights.sum()) * total).astype(np.int64)
        counts = np.maximum(1, np.diff(borders, prepend=0))
        self._borders = np.concatenate([[0], np.cumsum(counts)])
        prints = [source.fingerprint for source in self.sources]
        self.fingerprint = fingerprint(["mixture", 1, prints, weights.tolist(), seed])
        self.description = "mixture of " + "; ".join(
            f"{count / counts.sum():.1%} {source.description}"
            for count, source in zip(counts, self.sources, strict=True)
        )

    def __len__(self) -> int:
        return int(self._borders[-1])

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """The mixture's rows; their `ids` count in the mixture, so no two rows share their
        masks."""
        numbers = check_indices(indices, len(self), self.description)
        owners = np.searchsorted(self._borders, numbers, "right") - 1
        parts: list[Rows] = []
        places: list[NDArray[np.int64]] = []
        for owner in np.unique(owners):
            source = self.sources[owner]
            mine = np.flatnonzero(owners == owner)
            begin, stop = self._borders[owner], self._borders[owner + 1]
            numbers_in_source = epoch * (stop - begin) + numbers[mine] - begin
            epochs, numbers_in_source = np.divmod(numbers_in_source, len(source))
            keys = key("mixture", self._seed, int(owner), epochs)
            numbers_in_source = permute(keys, len(source), numbers_in_source)
            for own_epoch in np.unique(epochs):
                of_epoch = epochs == own_epoch
                parts.append(source.rows(numbers_in_source[of_epoch], int(own_epoch)))
                places.append(mine[of_epoch])
        if not parts:
            return self.sources[0].rows(numbers, epoch)
        mixed = join(parts).take(np.argsort(np.concatenate(places)))
        return replace(mixed, ids=numbers)
