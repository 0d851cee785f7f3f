"""Remove all but one of the documents with the same text.

Texts are compared by a 128-bit hash (BLAKE2b) after normalisation: by default case and runs of
white space are ignored, punctuation is not. The remaining texts are unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maskwright.text.curate.arrays.hashes import is_first
from maskwright.text.curate.arrays.selection import (
    ORDER,
    OrderedStep,
    digests,
    encode,
    ids_of,
    rows_to_keep,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    CorpusHandle,
    CurationBatch,
    Outcome,
    Pass,
    Removal,
    arrow_table,
    strings,
)

SUMMARY = "remove all but one of the documents with the same text"
RULE = "exact-duplicate"
KEYS = ("key_1", "key_2")
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

    def compared(self, text: str) -> bytes:
        """Return the normalised text in UTF-8; a text of symbols only keeps them."""
        text = text.lower() if self.ignore_case else text
        if self.ignore_punctuation and PUNCTUATION.sub("", text).strip():
            text = PUNCTUATION.sub(" ", text)
        return encode(" ".join(text.split()) if self.ignore_spaces else text)

    def hashes(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the hash, the columns of the order and the id of each document."""
        keys = digests(map(self.compared, batch.texts), 2)
        columns = dict(zip(KEYS, keys.T, strict=True))
        return arrow_table(row=batch.rows, **columns, **self.order(batch), id=strings(batch.ids))

    def first_pass(self) -> tuple[str, Pass]:
        return "hashes", self.hashes

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the documents to remove, each with the id of the one that is kept (`kept`)."""
        tables = corpus.map("hashes", self.hashes)
        repeated = tables.repeated(KEYS, [DOCUMENT, *ORDER])
        keys = [repeated.column(name).to_numpy() for name in KEYS]
        kept_rows = rows_to_keep(repeated, np.cumsum(is_first(*keys)))
        documents = repeated.column(DOCUMENT).to_numpy()
        is_copy = kept_rows != np.arange(len(kept_rows))
        kept_ids = ids_of(tables, documents[kept_rows[is_copy]])
        return arrow_table(document=documents[is_copy], kept=kept_ids)

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        allowed = "one document of this text"
        indices, kept_ids = batch.indices_in(gathered).tolist(), gathered.column("kept").to_pylist()
        return Outcome(
            removals=[
                Removal(index, RULE, name, allowed=allowed, survivor=name)
                for index, name in zip(indices, kept_ids, strict=True)
            ]
        )
