"""Winnowing (Schleimer, Wilkerson and Aiken 2003): fingerprints that equal spans of words share,
hashes of any span in constant time; and the order in which one of several documents is kept.

The fingerprint of a window of `length` words is the smallest hash of its k-grams, the leftmost of
equals. It depends on the words of the window only, so equal windows have equal fingerprints at the
same position. Most neighbouring windows share theirs: there is one per (length - k) / 2 words.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.base import randomness
from maskwright.base.errors import ConfigError, DataError
from maskwright.text.curate.arrays.words import Words, mix, powers_of_base
from maskwright.text.curate.step import DOCUMENT, CorpusStep, CurationBatch, Tables

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of the order in which documents are kept, the primary one first.
ORDER = ("priority", "quality", "length", "content_1", "content_2", "notes", "name")
# Columns in which a higher value comes first.
FALLING = ("quality", "length")
QUALITY = "quality"  # the note that the step `classifier` writes
BLANKS, WIDE_BLANKS = b" \n\t\r", "\u00a0\u3000"


@dataclass(frozen=True, kw_only=True)
class OrderedStep(CorpusStep):
    """A step that keeps one of several documents: the settings of the order are its own."""

    REMOVES_COPIES: ClassVar[bool] = True

    priority: tuple[str, ...] = ()
    """Sources (values of the note `source`), the one to keep first; others come after them."""
    quality: str = QUALITY
    """The note whose number says how good a document is: the higher is kept; "" for none. What is
    no number is an error in a note that you name, and nothing in `quality` itself."""

    def check(self) -> None:
        if len(set(self.priority)) < len(self.priority):
            raise ConfigError(
                "a source is named twice",
                where="priority",
                found=", ".join(self.priority),
                wanted="each source once",
                do="leave the second out",
            )

    def order(self, batch: CurationBatch) -> dict[str, pa.Array]:
        """Return the columns `ORDER` for a batch: int32, float64, int64 and four of uint64.

        Raises:
            DataError: a value of the note of quality that was named is no number.
        """
        import pyarrow as pa

        ranks = {source: rank for rank, source in enumerate(self.priority)}
        texts = [hash_128(text) for text in batch.texts]
        names = sorted(batch.notes)
        columns = [batch.note(name) for name in names]
        notes = [
            hash_64(repr([pair for pair in zip(names, row, strict=True) if pair[1] is not None]))
            for row in (zip(*columns, strict=True) if columns else [()] * len(batch))
        ]
        return {
            "priority": pa.array(
                [ranks.get(source or "", len(ranks)) for source in batch.note("source")], pa.int32()
            ),
            "quality": pa.array(self._qualities(batch), pa.float64()),
            "length": pa.array([count_visible(text) for text in batch.texts], pa.int64()),
            "content_1": pa.array([high for high, _ in texts], pa.uint64()),
            "content_2": pa.array([low for _, low in texts], pa.uint64()),
            "notes": pa.array(notes, pa.uint64()),
            "name": pa.array([hash_64(name) for name in batch.ids], pa.uint64()),
        }

    def _qualities(self, batch: CurationBatch) -> list[float]:
        """Return (B,) the number in the note `self.quality`; -inf, which comes last, without it."""
        if not self.quality or self.quality not in batch.notes:
            return [-math.inf] * len(batch)
        qualities = []
        for name, text in zip(batch.ids, batch.note(self.quality), strict=True):
            try:
                value = -math.inf if text is None or not text.strip() else float(text)
            except ValueError:
                value = math.nan
            if math.isnan(value) and self.quality == QUALITY:
                value = -math.inf
            if math.isnan(value):
                raise DataError(
                    "the quality of a document is no number",
                    where=name,
                    found=f"{self.quality} = {text!r}",
                    wanted="a number, the higher the better",
                    do="name another note in the setting `quality`, or none with quality = ''",
                )
            qualities.append(value)
        return qualities


def count_visible(text: str) -> int:
    """Count the characters that are no blanks, tabs or line ends, so that padding has no effect."""
    data = text.encode("utf-8", "surrogatepass")
    blanks = len(data) - len(data.translate(None, BLANKS))
    wide = 0 if len(data) == len(text) else sum(map(text.count, WIDE_BLANKS))
    return len(text) - blanks - wide


def hash_128(text: str) -> tuple[int, int]:
    """Return BLAKE2b of the text in UTF-8, 128 bits as two integers of 64 bits."""
    return bytes_128(text.encode("utf-8", "surrogatepass"))


def bytes_128(data: bytes) -> tuple[int, int]:
    """Return BLAKE2b of bytes, 128 bits as two integers of 64 bits."""
    digest = blake2b(data, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def hash_64(text: str) -> int:
    """Return BLAKE2b of the text in UTF-8, 64 bits."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def in_order(table: pa.Table, groups: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return (R,) the indices of rows sorted by `ORDER`, the one to keep first, within groups.

    Args:
        table: with the columns `ORDER`.
        groups: (R,) the group of each row; None: a single group.
    """
    keys = []
    for name in ORDER:
        values = table.column(name).to_numpy()
        keys.append(-values if name in FALLING else values)
    if groups is not None:
        keys.insert(0, groups)
    return np.lexsort(keys[::-1])


def rows_to_keep(table: pa.Table, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (R,) for each row of a table with the columns `ORDER` the row that its group keeps."""
    if not len(groups):
        return np.zeros(0, np.int64)
    rows = in_order(table, groups)
    is_first = np.concatenate([[True], np.diff(groups[rows]) != 0])
    kept_in_order = rows[is_first][np.cumsum(is_first) - 1]
    kept_rows = np.empty(len(rows), np.int64)
    kept_rows[rows] = kept_in_order
    return kept_rows


def ids_of(tables: Tables, documents: NDArray[np.int64]) -> pa.Array:
    """Return (D,) the ids of documents, from the column `id` of the tables of a pass."""
    import pyarrow as pa

    if not len(documents):
        return pa.array([], pa.large_string())
    table = tables.read([DOCUMENT, "id"])
    rows = np.searchsorted(table.column(DOCUMENT).to_numpy(), documents)
    return pa.array(table.column("id").take(pa.array(rows)).to_pylist(), pa.large_string())


# Keys of steps, so that they draw different random numbers for the same text.
SAMPLE, LIMIT, BALANCE, PERPLEXITY = range(4)


def draws(texts: Sequence[str], step: int, seed: int) -> NDArray[np.float64]:
    """Return (B,) pseudo-random numbers in [0, 1) that depend on text, step and seed only."""
    keys = randomness.key("curate", step, seed, hashes(texts))
    return randomness.uniforms(np.atleast_1d(keys), 1)[:, 0]


def hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return (B,) 64 bits of BLAKE2b of each text."""
    digests = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in texts
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def fill_groups(
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    groups: NDArray[np.int64],
    limits: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Fill each group in order, up to the first document with which it would exceed its limit.
    Return (D,) whether each document is kept.

    Args:
        order: (D,) a permutation of the documents.
        sizes: (D,) the size of each document.
        groups: (D,) the group of each document, 0 to G - 1.
        limits: (G,) the largest sum of sizes of each group.
    """
    by_group = order[np.argsort(groups[order], kind="stable")]
    running = np.cumsum(sizes[by_group])
    group = groups[by_group]
    begins = np.searchsorted(group, np.arange(len(limits)))
    offsets = np.concatenate([[0], running])[begins]
    is_kept = np.zeros(len(sizes), np.bool_)
    is_kept[by_group] = running - offsets[group] <= limits[group]
    return is_kept


# Bits of a sort key that hold the index of a word in its batch.
PLACE_BITS = 28


@dataclass(frozen=True)
class Runs:
    """Runs of neighbouring windows of a text whose fingerprint is the same k-gram.

    Attributes:
        prints: (R,) uint64, the fingerprint of each run.
        firsts: (R,) int64, the index in the batch of the first word of the first window.
        counts: (R,) the number of windows.
    """

    prints: NDArray[np.uint64]
    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]

    def take(self, chosen: NDArray[np.bool_]) -> Runs:
        return Runs(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


class Stretches:
    """Hashes of spans of words of a batch."""

    def __init__(self, words: Words) -> None:
        powers, inverse = powers_of_base(1 << max(16, len(words.hashes).bit_length()))
        with np.errstate(over="ignore"):
            sums = np.cumsum(words.hashes * powers[: len(words.hashes)], dtype=np.uint64)
        self.sums = np.concatenate([np.zeros(1, np.uint64), sums])
        self.inverse = inverse

    def hashes(
        self, firsts: NDArray[np.int64], lengths: NDArray[np.int64] | int
    ) -> NDArray[np.uint64]:
        """Return (R,) hashes of the `lengths` words from `firsts` on; equal for equal words."""
        with np.errstate(over="ignore"):
            values = (self.sums[firsts + lengths] - self.sums[firsts]) * self.inverse[firsts]
            return mix(values + np.asarray(lengths, np.uint64))


def gram_of(length: int) -> int:
    """Return k for windows of `length` words: few prints for small k, specific ones for large."""
    return max(1, length // 3)


def runs_of(words: Words, stretches: Stretches, length: int) -> Runs:
    """Return all windows of `length` words, as runs with the same fingerprint."""
    gram = gram_of(length)
    width = length - gram + 1
    windows = np.maximum(words.counts - length + 1, 0)
    total = int(windows.sum())
    if not total:
        empty = np.zeros(0, np.int64)
        return Runs(np.zeros(0, np.uint64), empty, empty)
    if len(words.hashes) >> PLACE_BITS:
        raise ValueError("too many words in a batch")
    count = len(words.hashes) - gram + 1
    # One sort key for hash and position; those of grams across texts are computed but not used.
    hashes = stretches.hashes(np.arange(count), gram)
    shift = np.uint64(PLACE_BITS)
    minima = (hashes >> shift << shift) | np.arange(count, dtype=np.uint64)
    span = 1
    while span < width:
        step = min(span, width - span)
        minima = np.minimum(minima[: len(minima) - step], minima[step:])
        span += step
    starts = np.concatenate([[0], np.cumsum(windows)])
    firsts = np.arange(total) + np.repeat(words.starts[:-1] - starts[:-1], windows)
    places = (minima[firsts] & np.uint64((1 << PLACE_BITS) - 1)).astype(np.int64)
    # Positions of different texts differ, so a change of position ends a run in any case.
    begins = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    counts = np.diff(np.append(begins, total))
    return Runs(hashes[places[begins]], firsts[begins], counts)
