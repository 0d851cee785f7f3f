"""limit: keep at most a given number of documents or words, selected by their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maskwright.base.config import require
from maskwright.text.curate.arrays.selection import (
    LIMIT,
    check_seed,
    draw_columns,
    drawn_order,
    fill_groups,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    Removal,
    arrow_table,
)

SUMMARY = "keeps at most so many documents or words, drawn by their content"


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    documents: int | None = None
    """The most documents that are kept."""
    words: int | None = None
    """The most words that the kept documents have together."""
    seed: int = 0
    """Another seed draws other documents; with the same one, a smaller limit keeps part of what a
    larger one keeps."""

    def check(self) -> None:
        self.require_one("documents", "words", example="words = 1000000")
        for name in ("documents", "words"):
            if (value := getattr(self, name)) is not None:
                require(name, value, 1)
        check_seed(self.seed)

    def count(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the words of each document, and its place in a random order."""
        return arrow_table(**draw_columns(batch, LIMIT, self.seed))

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the documents to remove."""
        table = corpus.map("count", self.count).read()
        words = table.column("words").to_numpy()
        order = drawn_order(table)
        is_kept = np.ones(len(words), np.bool_)
        for most, sizes in ((self.documents, np.ones_like(words)), (self.words, words)):
            if most is not None:
                is_kept &= fill_groups(order, sizes, np.zeros_like(order), np.array([most]))
        return arrow_table(document=table.column(DOCUMENT).to_numpy()[~is_kept])

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        indices = batch.indices_in(gathered).tolist()
        limits = [("documents", self.documents), ("words", self.words)]
        allowed = " and ".join(f"at most {n:,} {name}" for name, n in limits if n is not None)
        return Outcome(removals=[Removal(p, "limit", "not drawn", None, allowed) for p in indices])
