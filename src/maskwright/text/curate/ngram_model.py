"""A word n-gram model: counts in a hash table, scoring all words of a batch at once.

A unit is a word, regardless of case, or a single sign that is neither letter nor space. Units and
not characters, since real words in a senseless order must be improbable too, and a random string is
a sequence of unknown units; n-grams and not a network, since a gigabyte takes a minute.

    p_1(w)             = (c(w) + D / 2^20) / (N + D)             N units, D different ones
    p_k(w | v_1..k-1)  = (c(v w) + M p_k-1(w | v_2..)) / (c(v) + M)

The second line is Dirichlet smoothing (MacKay and Peto 1995, A hierarchical Dirichlet language
model); an unknown unit is treated as one of 2^20. An n-gram has two possible slots in the table,
where 40 bits of its hash identify it; it is dropped if more frequent ones occupy both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskwright.text.curate.arrays.hashes import BASE, mix, starts_of
from maskwright.text.curate.arrays.segmentation import SPACE
from maskwright.text.curate.step import ArrowTable, CurationBatch, arrow_table
from maskwright.text.store import BoolArray, FloatArray, IntArray, UintArray

UNKNOWN = 2.0**-20
STRENGTH = 4.0  # M: the weight of the shorter context, in occurrences of the longer one
MOST_BITS = 24
COUNT = np.uint64(24)  # bits of the count in an entry; the others are of the hash
MANY = (1 << 16) - 1
LARGEST = np.uint64((1 << 24) - 1)


@dataclass(frozen=True)
class Units:
    """U units of B texts: (U,) hashes, and (B + 1,) the index of the first unit of each text."""

    hashes: UintArray
    starts: IntArray

    @property
    def counts(self) -> IntArray:
        return np.diff(self.starts)

    def of(self, chosen: BoolArray) -> Units:
        """Return the units of the texts where `chosen`, (B,), is true."""
        in_text = np.repeat(chosen, self.counts)
        return Units(self.hashes[in_text], starts_of(self.counts[chosen]))

    def grams(self, size: int) -> tuple[UintArray, BoolArray]:
        """Return (U,) the hash of the n-gram that ends at each unit, and (U,) whether its text has
        `size` units up to there. Cached, since the same units are counted and scored."""
        cache: dict[int, tuple[UintArray, BoolArray]]
        cache = self.__dict__.setdefault("_grams", {})
        if size not in cache:
            gram_hashes = np.full(len(self.hashes), size, np.uint64)
            with np.errstate(over="ignore"):
                for back in range(size - 1, -1, -1):
                    gram_hashes *= BASE
                    gram_hashes[back:] += self.hashes[: len(gram_hashes) - back]
            complete = np.ones(len(gram_hashes), np.bool_)
            for offset in range(size - 1):
                complete[(self.starts[:-1] + offset)[self.counts > offset]] = False
            cache[size] = mix(gram_hashes), complete
        return cache[size]


def units_of(batch: CurationBatch) -> Units:
    """Return the words and signs of a batch, in the order of the text."""
    words, characters = batch.words, batch.characters
    steps = np.zeros(len(characters.points) + 1, np.int8)
    firsts = words.begins + characters.offsets[words.texts]
    steps[firsts] += 1
    steps[words.ends + characters.offsets[words.texts]] -= 1
    outside = np.cumsum(steps[:-1], dtype=np.int8) == 0
    signs = np.flatnonzero(outside & (characters.classes & SPACE == 0))
    positions = np.concatenate([firsts, signs])
    order = np.argsort(positions, kind="stable")
    hashes = np.concatenate([words.hashes, mix(characters.points[signs].astype(np.uint64) + BASE)])
    return Units(hashes[order], np.searchsorted(positions[order], characters.offsets))


@dataclass(frozen=True)
class NgramModel:
    """An n-gram model as a hash table of counts.

    Attributes:
        table: (2**b,) uint64, the highest 40 bits of the hash of an n-gram, then its count.
        total, different: the number of units, and of different units.
        order: the size of the largest n-grams.
    """

    table: UintArray
    total: int
    different: int
    order: int

    def bits(self, units: Units) -> FloatArray:
        """Return (B,) the mean of -log2 p over the units of each text; NaN without units."""
        before, _ = units.grams(1)
        counts = self._count(before)
        p = (counts + self.different * UNKNOWN) / (self.total + self.different)
        for size in range(2, self.order + 1):
            grams, complete = units.grams(size)
            # The count of the context, the shorter n-gram that ends one unit earlier.
            context = np.concatenate([[0.0], counts[:-1]])[: len(counts)]
            counts = self._count(grams)
            p = np.where(
                complete, (counts + STRENGTH * p) / (np.maximum(context, counts) + STRENGTH), p
            )
        return _means(-np.log2(p), units.starts)

    def _count(self, grams: UintArray) -> FloatArray:
        slots = self.table[_first(grams, len(self.table))]
        mismatched = np.flatnonzero(slots >> COUNT != grams >> COUNT)
        entries = self.table[_second(grams[mismatched], len(self.table))]
        slots[mismatched] = entries * (entries >> COUNT == grams[mismatched] >> COUNT)
        return (slots & LARGEST).astype(np.float64)


def _first(grams: UintArray, size: int) -> UintArray:
    return grams & np.uint64(size - 1)


def _second(grams: UintArray, size: int) -> UintArray:
    with np.errstate(over="ignore"):
        return grams * BASE >> np.uint64(64 - (size - 1).bit_length())


def _means(values: FloatArray, starts: IntArray) -> FloatArray:
    """Return (B,) the mean of each text's values, summed as integers, independently of order."""
    running_sums = starts_of(np.rint(values * (1 << 20)).astype(np.int64))
    counts = np.diff(starts)
    sums = running_sums[starts[1:]] - running_sums[starts[:-1]]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, sums / counts / (1 << 20), np.nan)


def concatenate(batches: Sequence[Units]) -> Units:
    """Concatenate the units of batches."""
    empty = Units(np.zeros(0, np.uint64), np.zeros(1, np.int64))
    hashes = [units.hashes for units in (empty, *batches)]
    counts = [units.counts for units in (empty, *batches)]
    return Units(np.concatenate(hashes), starts_of(np.concatenate(counts)))


@dataclass(frozen=True)
class NgramCounts:
    """The counts of n-grams.

    Attributes:
        grams: for each size from 1 the hashes of the n-grams, ascending.
        often: for each size the count of each n-gram.
    """

    grams: Sequence[UintArray]
    often: Sequence[IntArray]

    def without(self, less: NgramCounts) -> NgramCounts:
        """Subtract `less`, the counts of some of the texts."""
        grams, often = [], []
        for hashes, count, removed, removed_counts in zip(
            self.grams, self.often, less.grams, less.often, strict=True
        ):
            remaining = count.copy()
            remaining[np.searchsorted(hashes, removed)] -= removed_counts
            grams.append(hashes[remaining > 0])
            often.append(remaining[remaining > 0])
        return NgramCounts(grams, often)


def count_ngrams(units: Units, order: int) -> NgramCounts:
    """Count the n-grams of texts, of sizes 1 to `order`."""
    grams, often = [], []
    for size in range(1, order + 1):
        hashes, complete = units.grams(size)
        distinct, counts = np.unique(hashes[complete], return_counts=True)
        grams.append(distinct)
        often.append(counts.astype(np.int64))
    return NgramCounts(grams, often)


def train(counts: NgramCounts) -> NgramModel:
    """Build the model with these counts."""
    hashes, count = np.concatenate(counts.grams), np.concatenate(counts.often)
    bits = min(MOST_BITS, max(8, (4 * len(hashes) - 1).bit_length()))
    ranked = _ranked(hashes, count)
    hashes, capped = hashes[ranked], np.minimum(count[ranked].astype(np.uint64), LARGEST)
    entries = hashes >> COUNT << COUNT | capped
    table = np.zeros(1 << bits, np.uint64)
    for places_of in (_first, _second):
        slots = places_of(hashes, len(table))
        free = np.flatnonzero(table[slots] == 0)
        # Of several n-grams for one slot the last one written, the most frequent, wins.
        table[slots[free][::-1]] = entries[free][::-1]
        unplaced = table[slots] != entries
        hashes, entries = hashes[unplaced], entries[unplaced]
    total, different = int(counts.often[0].sum()), len(counts.often[0])
    return NgramModel(table, total, different, len(counts.grams))


def _ranked(hashes: UintArray, count: IntArray) -> IntArray:
    """Return the indices of n-grams, sorted by descending count, then by hash."""
    order = np.argsort(hashes)
    # 16 bits are sorted by counting; the few larger counts are then sorted among themselves.
    rare = MANY - np.minimum(count[order], MANY)
    order = order[np.argsort(rare.astype(np.uint16), kind="stable")]
    many = int((rare == 0).sum())
    order[:many] = order[:many][np.argsort(-count[order[:many]], kind="stable")]
    return order


def table_of(models: Sequence[NgramModel]) -> ArrowTable:
    """Serialise models as an Arrow table, a row for each: the used slots of its table and their
    entries as lists, and its numbers."""
    slots = [np.flatnonzero(model.table).astype(np.uint32) for model in models]
    return arrow_table(
        slots=slots,
        entries=[model.table[used] for model, used in zip(models, slots, strict=True)],
        size=[len(model.table) for model in models],
        total=[model.total for model in models],
        different=[model.different for model in models],
        order=[model.order for model in models],
    )


def models_of(table: ArrowTable) -> list[NgramModel]:
    """The inverse of `table_of`. The models of the last table are cached."""
    if not _OPENED or _OPENED[0][0] is not table:
        _OPENED[:] = [(table, _models_of(table))]
    return _OPENED[0][1]


_OPENED: list[tuple[ArrowTable, list[NgramModel]]] = []  # of the last table


def _models_of(table: ArrowTable) -> list[NgramModel]:
    models = []
    for n, size in enumerate(table.column("size").to_pylist()):
        slots, entries = (table.column(name)[n].values.to_numpy() for name in ("slots", "entries"))
        full_table = np.zeros(size, np.uint64)
        full_table[slots] = entries
        total, different, order = (
            table.column(name)[n].as_py() for name in ("total", "different", "order")
        )
        models.append(NgramModel(full_table, total, different, order))
    return models
