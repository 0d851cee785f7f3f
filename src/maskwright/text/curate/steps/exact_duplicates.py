"""Remove all but one of the documents with the same text.

Texts are compared by a 128-bit hash (BLAKE2b) after normalisation: by default case and runs of
white space are ignored, punctuation is not. The remaining texts are unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maskwright.text.curate.arrays.winnow import (
    ORDER,
    OrderedStep,
    bytes_128,
    hash_128,
    ids_of,
    rows_to_keep,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    CorpusHandle,
    CurationBatch,
    Outcome,
    Pass,
    Removal,
)

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY = "remove all but one of the documents with the same text"
RULE = "exact-duplicate"
KEYS = ("key_1", "key_2")
# A translation table that maps ASCII white space to a blank.
BLANKS = bytes(0x20 if byte < 0x80 and chr(byte).isspace() else byte for byte in range(256))
PUNCTUATION = re.compile(r"[^\w\s]+|_+")


@dataclass(frozen=True, kw_only=True)
class Settings(OrderedStep):
    UNLESS: ClassVar[str] = "equal documents were not looked for"

    ignore_case: bool = True
    """Whether upper and lower case are the same."""
    ignore_spaces: bool = True
    """Whether any run of white space is the same as one blank, and none at the text's ends."""
    ignore_punctuation: bool = False
    """Whether texts that differ in punctuation and symbols only are the same."""

    def compared(self, text: str) -> str:
        """Return the normalised text; a text of symbols only keeps them."""
        if self.ignore_case:
            text = text.lower()
        if self.ignore_punctuation:
            text = PUNCTUATION.sub(" ", text) if PUNCTUATION.sub("", text).strip() else text
        return collapse_spaces(text) if self.ignore_spaces else text

    def _key(self, text: str) -> tuple[int, int]:
        """Return the hash of the normalised text; ASCII is normalised as bytes, for speed."""
        if not text.isascii() or self.ignore_punctuation:
            return hash_128(self.compared(text))
        plain = text.encode()
        if self.ignore_case:
            plain = plain.lower()
        return bytes_128(_collapse_ascii(plain) if self.ignore_spaces else plain)

    def hashes(self, batch: CurationBatch, side_input: pa.Table | None) -> pa.Table:
        """Pass: return the hash, the columns of the order and the id of each document."""
        import pyarrow as pa

        keys = [self._key(text) for text in batch.texts]
        columns = {
            name: pa.array([key[n] for key in keys], pa.uint64()) for n, name in enumerate(KEYS)
        }
        ids = pa.array(batch.ids, pa.large_string())
        return pa.table({"row": pa.array(batch.rows), **columns, **self.order(batch), "id": ids})

    def first_pass(self) -> tuple[str, Pass]:
        return "hashes", self.hashes

    def gather(self, corpus: CorpusHandle, opened: Any) -> pa.Table:
        """Return the documents to remove, each with the id of the one that is kept (`kept`)."""
        import pyarrow as pa

        tables = corpus.map("hashes", self.hashes)
        repeated = tables.repeated(KEYS, [DOCUMENT, *ORDER])
        keys = [repeated.column(name).to_numpy() for name in KEYS]
        is_first = np.zeros(repeated.num_rows, np.bool_)
        for key in keys:
            is_first[1:] |= key[1:] != key[:-1]
        kept_rows = rows_to_keep(repeated, np.cumsum(is_first))
        documents = repeated.column(DOCUMENT).to_numpy()
        is_copy = kept_rows != np.arange(len(kept_rows))
        return pa.table(
            {
                DOCUMENT: pa.array(documents[is_copy], pa.int64()),
                "kept": ids_of(tables, documents[kept_rows[is_copy]]),
            }
        )

    def apply(self, batch: CurationBatch, opened: Any, gathered: pa.Table | None = None) -> Outcome:
        if gathered is None or not gathered.num_rows:
            return Outcome()
        indices = np.searchsorted(batch.rows, gathered.column("row").to_numpy()).tolist()
        kept_ids = gathered.column("kept").to_pylist()
        allowed = "one document of this text"
        return Outcome(
            removals=[
                Removal(index, RULE, name, allowed=allowed, survivor=name)
                for index, name in sorted(zip(indices, kept_ids, strict=True))
            ]
        )


def collapse_spaces(text: str) -> str:
    """The text with one blank for any run of white space, and none at its ends."""
    if not text.isascii():
        return " ".join(text.split())
    # The same, at some times its speed.
    return _collapse_ascii(text.encode()).decode()


def _collapse_ascii(plain: bytes) -> bytes:
    """ASCII with one blank for any run of white space, and none at its ends."""
    plain = plain.translate(BLANKS)
    while b"  " in plain:
        plain = plain.replace(b"  ", b" ")
    return plain.strip(b" ")
