"""sample: keep a share of the documents, selected by their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskwright.text.curate.arrays.selection import SAMPLE, check_seed, draws
from maskwright.text.curate.step import CurationBatch, Outcome, RuleMeasure, Step

SUMMARY = "keeps a share of the documents, drawn by their content"


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    share: float = 1.0
    """The share of the documents that is kept. Equal texts are kept or removed together."""
    seed: int = 0
    """Another seed draws other documents; with the same one, a smaller share is part of a larger
    one."""

    def check(self) -> None:
        self.check_shares("share", positive=True)
        check_seed(self.seed)

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        numbers = draws(batch.texts, SAMPLE, self.seed)
        return Outcome(measures=[RuleMeasure("sample_share", numbers, high=self.share)])
