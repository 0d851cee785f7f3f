"""toxicity: remove documents with words of the user's own lists. There is no built-in list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from maskwright.base.config import require
from maskwright.base.errors import ConfigError
from maskwright.text.curate.arrays.spans import Phrases, phrases_of, read_entries
from maskwright.text.curate.step import CurationBatch, Outcome, Removal, Step
from maskwright.text.store import BoolArray, IntArray

SUMMARY = "removes documents with words or phrases of your own lists"


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    UNLESS: ClassVar[str] = "offensive words were not looked for"

    words: tuple[str, ...] = ()
    """Files of words and phrases, one a line (`#` begins a comment). Whole words count, without
    regard to case; a phrase is its words one after the other, whatever stands between them."""
    allow: str = ""
    """A file of phrases in which a listed word is fine, one a line."""
    most: int | None = None
    """How many listed words a document may have; without this and `most_share`: 0."""
    most_share: float | None = None
    """The share of a document's words that may be of the lists."""

    def check(self) -> None:
        self.require_one("words", example='words = ["words.txt"]')
        if self.most is not None:
            require("most", self.most, 0)
        if self.most_share is not None and not 0 <= self.most_share < 1:
            raise ConfigError(
                "not a share of words",
                where="most_share",
                found=self.most_share,
                wanted="0 or more and less than 1",
                do="use 0.01 for one word of a hundred",
            )
        if self.most == 0 and self.most_share:
            raise self.without_effect("most_share", "where no listed word is allowed")

    def files(self) -> Sequence[Path]:
        return [Path(path) for path in (*self.words, *filter(None, [self.allow]))]

    def open(self) -> tuple[Phrases, Phrases | None]:
        """Read the phrases that count, and those in which they are fine.

        Raises:
            UsageError, DataError: a file cannot be read, is empty, or has an entry without words.
        """
        listed = [entry for path in self.words for entry in read_entries(path, "words")]
        allowed = phrases_of(read_entries(self.allow, "allow")) if self.allow else None
        return phrases_of(listed), allowed

    def apply(
        self, batch: CurationBatch, opened: tuple[Phrases, Phrases | None], gathered: Any = None
    ) -> Outcome:
        words = batch.words
        listed, allowances = opened
        firsts, lasts, phrases = listed.find(words)
        if allowances is not None and firsts.size:
            is_allowed = _inside(firsts, lasts, *allowances.find(words)[:2])
            firsts, lasts, phrases = firsts[~is_allowed], lasts[~is_allowed], phrases[~is_allowed]
        owners = words.texts[firsts]
        counts = np.bincount(owners, minlength=len(batch))
        covered = np.bincount(owners, lasts - firsts + 1, len(batch))
        shares = covered / np.maximum(words.counts, 1)
        removals = []
        for index in np.flatnonzero(counts).tolist():
            broken = self._over(int(counts[index]), float(shares[index]))
            if broken is not None:
                rule, allowed = broken
                match = int(np.searchsorted(owners, index))
                where = f"characters {words.begins[firsts[match]]} to {words.ends[lasts[match]]}"
                value = listed.texts[phrases[match]]
                removals.append(Removal(index, rule, value, where, allowed))
        return Outcome(removals=removals)

    def _over(self, count: int, share: float) -> tuple[str, str] | None:
        """Return the rule that a document breaks and what it allows, or None."""
        most = 0 if self.most is None and self.most_share is None else self.most
        if most is not None and count > most:
            return "listed_words", f"at most {most} listed words; it has {count}"
        if self.most_share is not None and share > self.most_share:
            return "listed_words_share", f"at most {self.most_share:g} of its words; {share:.4f}"
        return None


def _inside(
    firsts: IntArray, lasts: IntArray, outer_firsts: IntArray, outer_lasts: IntArray
) -> BoolArray:
    """Return (N,) whether each span of words (first, last) is within one of the outer spans."""
    if not outer_firsts.size:
        return np.zeros(len(firsts), np.bool_)
    order = np.argsort(outer_firsts, kind="stable")
    max_last = np.maximum.accumulate(outer_lasts[order])
    outer = np.searchsorted(outer_firsts[order], firsts, side="right") - 1
    return (outer >= 0) & (max_last[np.maximum(outer, 0)] >= lasts)
