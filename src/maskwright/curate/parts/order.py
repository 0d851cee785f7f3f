"""The order by which one of several equal or similar documents is kept, never that of arrival.

First comes the document of the source that the setting `priority` names earlier, then the one of
higher quality, the one with more characters besides white space, the one whose content has the
smaller hash. Of documents with one text the hashes of their notes decide, and at last of their ids,
so that the order is total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.step import DOCUMENT, CorpusStep, Tables
from maskwright.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of the order, the first weighing most.
ORDER = ("priority", "quality", "length", "content_1", "content_2", "notes", "name")
# Whether a higher value comes first.
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

    def order(self, batch: Batch) -> dict[str, pa.Array]:
        """The columns `ORDER` of the documents of a batch: int32, float64, int64 and four uint64.

        Raises:
            DataError: a value of the note of quality that was named is no number.
        """
        import pyarrow as pa

        places = {source: place for place, source in enumerate(self.priority)}
        texts = [hash_128(text) for text in batch.texts]
        names = sorted(batch.notes)
        columns = [batch.note(name) for name in names]
        notes = [
            hash_64(repr([pair for pair in zip(names, row, strict=True) if pair[1] is not None]))
            for row in (zip(*columns, strict=True) if columns else [()] * len(batch))
        ]
        return {
            "priority": pa.array(
                [places.get(source or "", len(places)) for source in batch.note("source")],
                pa.int32(),
            ),
            "quality": pa.array(self._qualities(batch), pa.float64()),
            "length": pa.array([inked(text) for text in batch.texts], pa.int64()),
            "content_1": pa.array([first for first, _ in texts], pa.uint64()),
            "content_2": pa.array([second for _, second in texts], pa.uint64()),
            "notes": pa.array(notes, pa.uint64()),
            "name": pa.array([hash_64(name) for name in batch.ids], pa.uint64()),
        }

    def _qualities(self, batch: Batch) -> list[float]:
        """(B,) the note of quality; without one, a document comes after those that have one."""
        if not self.quality or self.quality not in batch.notes:
            return [-math.inf] * len(batch)
        found = []
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
            found.append(value)
        return found


def inked(text: str) -> int:
    """Characters that are no blanks, tabs or line ends: a padded copy is not longer."""
    data = text.encode("utf-8", "surrogatepass")
    blanks = len(data) - len(data.translate(None, BLANKS))
    wide = 0 if len(data) == len(text) else sum(map(text.count, WIDE_BLANKS))
    return len(text) - blanks - wide


def hash_128(text: str) -> tuple[int, int]:
    """BLAKE2b of the text's UTF-8, 128 bits as two numbers of 64."""
    return bytes_128(text.encode("utf-8", "surrogatepass"))


def bytes_128(data: bytes) -> tuple[int, int]:
    """BLAKE2b of bytes, 128 bits as two numbers of 64."""
    digest = blake2b(data, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def hash_64(text: str) -> int:
    """BLAKE2b of the text's UTF-8, 64 bits."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def in_order(table: pa.Table, groups: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """(R,) the rows of a table with the columns `ORDER` by group, in each the one to keep first."""
    keys = []
    for name in ORDER:
        values = table.column(name).to_numpy()
        keys.append(-values if name in FALLING else values)
    if groups is not None:
        keys.insert(0, groups)
    return np.lexsort(keys[::-1])


def firsts(table: pa.Table, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """(R,) for every row of a table with the columns `ORDER` the row that its group keeps."""
    if not len(groups):
        return np.zeros(0, np.int64)
    rows = in_order(table, groups)
    opening = np.concatenate([[True], np.diff(groups[rows]) != 0])
    kept = rows[opening][np.cumsum(opening) - 1]
    found = np.empty(len(rows), np.int64)
    found[rows] = kept
    return found


def ids_of(tables: Tables, documents: NDArray[np.int64]) -> pa.Array:
    """(D,) the ids of documents, from the column `id` of what a pass gave."""
    import pyarrow as pa

    if not len(documents):
        return pa.array([], pa.large_string())
    table = tables.read([DOCUMENT, "id"])
    rows = np.searchsorted(table.column(DOCUMENT).to_numpy(), documents)
    return pa.array(table.column("id").take(pa.array(rows)).to_pylist(), pa.large_string())
