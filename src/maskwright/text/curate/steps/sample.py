"""sample: keep a share of the documents, selected by their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskwright.base.errors import ConfigError
from maskwright.text.curate.arrays.winnow import SAMPLE, draws
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
        if not 0 < self.share <= 1:
            raise ConfigError(
                "not a share of the documents",
                where="share",
                found=self.share,
                wanted="more than 0, at most 1",
                do="use 0.1 for one document of ten; a number of documents is the step `limit`",
            )
        check_seed(self.seed)

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        numbers = draws(batch.texts, SAMPLE, self.seed)
        return Outcome(measures=[RuleMeasure("sample_share", numbers, high=self.share)])


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ConfigError(
            "not a seed", where="seed", found=seed, wanted="0 to 2**63 - 1", do="use 0"
        )
