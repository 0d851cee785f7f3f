"""The rows of a training step, as a function of the step, so that no state has to be saved.

    n                                 samples, counted from the beginning of the run
    epoch, i = divmod(n, num_rows)
    row = permute(key("shuffle", seed, epoch), num_rows, i)

An `OrderedSource` determines the rows of these samples itself.

Every row comes once per epoch; a batch may span two epochs, so no row is dropped. The state is one
integer, which the trainer owns: the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import ConfigError, DataError, IncompatibleError, UsageError
from maskwright.base.randomness import key, permute, uniforms
from maskwright.text.store import BoolArray, FloatArray, IntArray
from maskwright.text.store.rows import OrderedSource, Rows, RowSource, check_indices, join

# Samples in a block of a `ScheduledMixture`, fewer in short runs; blocks of a run, so that their
# counts stay small.
BLOCK, LEAST_BLOCKS, MOST_BLOCKS = 128, 64, 1 << 16
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


class Loader:
    """The rows of `source` in the order of `seed`, for batches of `batch_rows`.

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

    def take(self, begin: int, count: int) -> tuple[IntArray, IntArray]:
        """Return row numbers and epochs, (count,) each, of `count` samples from number `begin`."""
        if isinstance(self.source, OrderedSource):
            return self.source.take(begin, count)
        epochs, positions = np.divmod(np.arange(begin, begin + count), len(self.source))
        keys = key("shuffle", self.seed, epochs)
        return permute(keys, len(self.source), positions), epochs

    def rows_of(self, indices: IntArray, epochs: IntArray) -> Rows:
        """Return the rows with these numbers and epochs, in the given order."""
        return _gathered([self.source], np.zeros_like(indices), indices, epochs)


# ------------------------------------------------------------------------------ mixtures
def mixed(sources: Sequence[RowSource], weights: Sequence[float], *, seed: int = 0) -> RowSource:
    """Return the mixture of several sources, or a single source unchanged."""
    if len(sources) == 1:
        return sources[0]
    return Mixture(list(zip(sources, weights, strict=True)), seed=seed)


class Mixture:
    """Rows of `sources` in proportion to their weights; itself a source.

    An epoch of the mixture has as many rows as all sources together; the shares decide how many
    come from each. A source with too few rows starts its own next epoch; one with too many
    continues in the next epoch of the mixture, and no row is used twice before all of its source
    are used once.

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
        self.length = _checked_length(self.sources, weights, np.isfinite(weights) & (weights > 0))
        self._seed = seed
        total = sum(len(source) for source in self.sources)
        # Rounded so that the counts sum to `total`; every source gives at least one row.
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
        """Return rows of the mixture; their `ids` are row numbers of the mixture, so that no two
        rows share their masks."""
        numbers = check_indices(indices, len(self), self.description)
        owners = np.searchsorted(self._borders, numbers, "right") - 1
        begins, stops = self._borders[owners], self._borders[owners + 1]
        counts = epoch * (stops - begins) + numbers - begins
        rows, epochs = _in_keyed_order(self.sources, owners, counts, self._seed)
        return replace(_gathered(self.sources, owners, rows, epochs), ids=numbers)


def _in_keyed_order(
    sources: Sequence[RowSource], owners: NDArray[np.integer], counts: IntArray, seed: int
) -> tuple[IntArray, IntArray]:
    """Return the row and the epoch of draw number `counts` from the source `owners`, whose rows are
    drawn in a keyed order, all of them once before one is drawn again."""
    rows, epochs = np.zeros_like(counts), np.zeros_like(counts)
    for owner in np.unique(owners):
        of_owner, size = owners == owner, len(sources[owner])
        epochs[of_owner], positions = np.divmod(counts[of_owner], size)
        keys = key("mixture", seed, int(owner), epochs[of_owner])
        rows[of_owner] = permute(keys, size, positions)
    return rows, epochs


def _gathered(
    sources: Sequence[RowSource], owners: NDArray[np.integer], numbers: IntArray, epochs: IntArray
) -> Rows:
    """Return the rows `numbers` of the sources `owners` in `epochs`, in this order."""
    chunks, positions = [], []
    for owner in np.unique(owners):
        of_owner = np.flatnonzero(owners == owner)
        for epoch in np.unique(epochs[of_owner]):
            selected = of_owner[epochs[of_owner] == epoch]
            chunks.append(sources[owner].rows(numbers[selected], int(epoch)))
            positions.append(selected)
    if len(chunks) < 2:
        return chunks[0] if chunks else sources[0].rows(numbers, 0)
    return join(chunks).take(np.argsort(np.concatenate(positions)))


def _checked_length(sources: Sequence[RowSource], weights: FloatArray, good: BoolArray) -> int:
    """Return the row length of all sources."""
    if not sources or not good.all():
        raise ConfigError(
            "the weights of a mixture are not positive numbers",
            where="mixture",
            found=weights.tolist(),
            wanted="numbers above 0",
            do="correct corpus.weights",
        )
    empty = [source.description for source in sources if len(source) == 0]
    if empty:
        raise ConfigError(
            "a source of a mixture has no rows",
            where="mixture",
            found=empty[0],
            do="give that text more documents, shorten the rows (rows.length), or leave it out",
        )
    lengths = {source.length for source in sources}
    if len(lengths) > 1:
        raise IncompatibleError(
            "rows of different lengths do not mix",
            found=sorted(lengths),
            wanted="one length",
            do="make all sources with the same row length",
        )
    return lengths.pop()


class ScheduledMixture:
    """Rows of `sources` whose shares change over a run, evenly from some weights to others.

    The samples of a run come in blocks. In each, the shares at its middle decide how many rows come
    from each source; a keyed permutation decides which samples of the block these are. Fractions of
    rows are rounded by systematic sampling (Madow 1949) with an offset that moves by the golden
    ratio from block to block, so that they add up over the run. The rows of a source come as in a
    `Mixture`: in a keyed order, all of them once before one comes again.

    Rows are numbered through all sources in order; the epoch of a row is that of its source.

    Args:
        begin, end: (K,) weights, one for each source; one of the two may be 0.
        progress: ascending pairs (samples, share of the run completed after them), interpolated.

    Raises:
        As `Mixture`.
    """

    def __init__(
        self,
        sources: Sequence[RowSource],
        begin: FloatArray,
        end: FloatArray,
        progress: Sequence[tuple[float, float]],
        *,
        seed: int = 0,
    ) -> None:
        self.sources = list(sources)
        weights = np.stack([begin, end]).astype(np.float64)
        is_valid = np.isfinite(weights) & (weights >= 0) & (weights.sum(axis=0) > 0)
        self.length = _checked_length(self.sources, weights, is_valid)
        self._shares = weights / weights.sum(axis=1, keepdims=True)
        self._samples, self._progress = np.array(progress, dtype=np.float64).T
        self._seed = seed
        self._borders = np.cumsum([0, *map(len, self.sources)])
        total = float(self._samples[-1])
        short_block = 1 << (int(total) // LEAST_BLOCKS).bit_length() >> 1
        self._block = max(8, min(BLOCK, short_block), math.ceil(total / MOST_BLOCKS))
        self._before = np.zeros((1, len(self.sources)), np.int64)
        prints = [source.fingerprint for source in self.sources]
        plain = [self._shares.tolist(), self._samples.tolist(), self._progress.tolist()]
        self.fingerprint = fingerprint(["scheduled mixture", 1, prints, *plain, seed])
        self.description = "mixture of " + "; ".join(
            f"{begin_share:.1%} to {end_share:.1%} {source.description}"
            for begin_share, end_share, source in zip(*self._shares, self.sources, strict=True)
        )

    def __len__(self) -> int:
        return int(self._borders[-1])

    def take(self, begin: int, count: int) -> tuple[IntArray, IntArray]:
        """Return row numbers and epochs of their sources, (count,) each, of `count` samples of the
        run from number `begin`."""
        owners, numbers = self._source(np.arange(begin, begin + count))
        rows, epochs = _in_keyed_order(self.sources, owners, numbers, self._seed)
        return self._borders[owners] + rows, epochs

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """Return the rows with these numbers in `epoch` of their sources."""
        numbers = check_indices(indices, len(self), self.description)
        owners = np.searchsorted(self._borders, numbers, "right") - 1
        epochs = np.full_like(numbers, epoch)
        own_numbers = numbers - self._borders[owners]
        return replace(_gathered(self.sources, owners, own_numbers, epochs), ids=numbers)

    def realised(self, samples: int) -> IntArray:
        """Return (K,) how many of the first `samples` of the run come from each source."""
        blocks, rest = divmod(samples, self._block)
        owners, _ = self._source(np.arange(blocks * self._block, blocks * self._block + rest))
        rest_counts = np.bincount(owners, minlength=len(self.sources))
        return self._rows_before(blocks)[blocks] + rest_counts

    def _source(self, samples: IntArray) -> tuple[IntArray, IntArray]:
        """Return the source of each sample, and the number of rows of that source before it."""
        blocks, positions = np.divmod(samples, self._block)
        until = self._rows_before(int(blocks.max(initial=0)) + 1)
        positions = permute(key("schedule", self._seed, blocks), self._block, positions)
        edges = np.cumsum(until[blocks + 1] - until[blocks], axis=1)  # (samples, K)
        owners = (positions[:, None] >= edges).sum(axis=1)
        lower = np.where(owners > 0, edges[np.arange(len(owners)), owners - 1], 0)
        return owners, until[blocks, owners] + positions - lower

    def _rows_before(self, block: int) -> IntArray:
        """Return (at least block + 1, K) numbers of rows of each source before each block."""
        if len(self._before) <= block:
            numbers = np.arange(max(block, 2 * len(self._before)))
            middles = (numbers + 0.5) * self._block
            done = np.interp(middles, self._samples, self._progress)[:, None]
            borders = np.cumsum((1 - done) * self._shares[0] + done * self._shares[1], axis=1)
            offset = float(uniforms(key("schedule", self._seed), 1)[0])
            offsets = (offset + numbers * GOLDEN_RATIO) % 1.0
            edges = np.floor(borders[:, :-1] * self._block + offsets[:, None]).astype(np.int64)
            ends = np.full((len(numbers), 1), self._block)
            counts = np.diff(np.minimum(edges, self._block), prepend=0, append=ends, axis=1)
            self._before = np.cumsum(np.vstack([np.zeros_like(counts[:1]), counts]), axis=0)
        return self._before
