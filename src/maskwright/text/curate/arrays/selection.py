"""Which documents are kept: of several copies the first in order, or those that are drawn.

Neither depends on where a document is: the order and the draws are computed from texts and notes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.base import randomness
from maskwright.base.errors import ConfigError, DataError
from maskwright.text.curate.arrays.hashes import is_first
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    CorpusStep,
    CurationBatch,
    Tables,
    strings,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray, UintArray

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

    def order(self, batch: CurationBatch) -> dict[str, NDArray[np.generic]]:
        """Return the columns `ORDER` for a batch.

        Raises:
            DataError: a value of the note of quality that was named is no number.
        """
        ranks = {source: rank for rank, source in enumerate(self.priority)}
        contents = digests(map(encode, batch.texts), 2)
        names = sorted(batch.notes)
        columns = [batch.note(name) for name in names]
        notes = [
            repr([pair for pair in zip(names, row, strict=True) if pair[1] is not None])
            for row in (zip(*columns, strict=True) if columns else [()] * len(batch))
        ]
        return {
            "priority": np.array(
                [ranks.get(source or "", len(ranks)) for source in batch.note("source")], np.int32
            ),
            "quality": np.array(self._qualities(batch), np.float64),
            "length": np.array([count_visible(text) for text in batch.texts], np.int64),
            "content_1": contents[:, 0],
            "content_2": contents[:, 1],
            "notes": digests(map(encode, notes))[:, 0],
            "name": digests(map(encode, batch.ids))[:, 0],
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


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def digests(data: Iterable[bytes], numbers: int = 1) -> UintArray:
    """Return (B, numbers) integers of 64 bits, the first one the highest: BLAKE2b of each item."""
    joined = b"".join(blake2b(item, digest_size=8 * numbers).digest() for item in data)
    return np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, numbers)


def hashes(texts: Sequence[str]) -> UintArray:
    """Return (B,) 64 bits of BLAKE2b of each text, the lowest byte first."""
    return digests(map(encode, texts))[:, 0].byteswap()


def count_visible(text: str) -> int:
    """Count the characters that are no blanks, tabs or line ends, so that padding has no effect."""
    data = encode(text)
    blanks = len(data) - len(data.translate(None, BLANKS))
    wide = 0 if len(data) == len(text) else sum(map(text.count, WIDE_BLANKS))
    return len(text) - blanks - wide


def in_order(table: ArrowTable, groups: IntArray | None = None) -> IntArray:
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


def rows_to_keep(table: ArrowTable, groups: IntArray) -> IntArray:
    """Return (R,) for each row of a table with the columns `ORDER` the row that its group keeps."""
    rows = in_order(table, groups)
    firsts = is_first(groups[rows])
    kept_rows = np.empty(len(rows), np.int64)
    kept_rows[rows] = rows[firsts][np.cumsum(firsts) - 1]
    return kept_rows


def ids_of(tables: Tables, documents: IntArray) -> ArrowTable:
    """Return (D,) the ids of documents, from the column `id` of the tables of a pass."""
    if not len(documents):
        return strings([])
    table = tables.read([DOCUMENT, "id"])
    rows = np.searchsorted(table.column(DOCUMENT).to_numpy(), documents)
    return strings(table.column("id").take(rows).to_pylist())


# Keys of steps, so that they draw different random numbers for the same text.
SAMPLE, LIMIT, BALANCE, PERPLEXITY = range(4)


def draws(texts: Sequence[str], step: int, seed: int) -> FloatArray:
    """Return (B,) pseudo-random numbers in [0, 1) that depend on text, step and seed only."""
    keys = randomness.key("curate", step, seed, hashes(texts))
    return randomness.uniforms(np.atleast_1d(keys), 1)[:, 0]


def draw_columns(batch: CurationBatch, step: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return the words of each document, and the columns of its place in a random order."""
    return {
        "row": batch.rows,
        "words": batch.words.counts,
        "draw": draws(batch.texts, step, seed),
        "place": hashes(batch.ids),
    }


def drawn_order(table: ArrowTable) -> IntArray:
    """Return (D,) the documents of a table of `draw_columns`, in their random order."""
    return np.lexsort((table.column("place").to_numpy(), table.column("draw").to_numpy()))


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ConfigError(
            "not a seed", where="seed", found=seed, wanted="0 to 2**63 - 1", do="use 0"
        )


def fill_groups(
    order: IntArray, sizes: IntArray, groups: IntArray, limits: FloatArray
) -> BoolArray:
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
