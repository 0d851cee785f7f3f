"""The rules that FineWeb adds to those of Gopher and C4: Penedo et al. 2024, "The FineWeb
Datasets", section 3.6, with the names and thresholds of datatrove. A value at the limit passes.

The thresholds were found on web pages in English; dialogue and verse have short lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maskwright.text.curate.arrays.segmentation import LINE_END, TERMINALS, find_repeats
from maskwright.text.curate.step import CurationBatch, Outcome, Step, measures_of, shares

SUMMARY = "FineWeb's rules: lines without punctuation, short lines, repeated lines, lists"


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    line_punct_thr: float = 0.12
    """Least share of lines that end in punctuation (`line_punct_ratio`); 0: no limit."""
    short_line_thr: float = 0.67
    """Greatest share of short lines (`short_line_ratio`); 1: no limit."""
    short_line_length: int = 30
    """Most characters of a short line."""
    char_duplicates_ratio: float = 0.01
    """Greatest share of characters in lines that stand earlier already (`char_dup_ratio`); 1: no
    limit."""
    new_line_ratio: float = 0.3
    """Most line ends for each word (`list_ratio`); 1: practically no limit."""
    languages: tuple[str, ...] = ()
    """Languages that the rules are for, by the note `language`; empty: all."""

    def check(self) -> None:
        self.check_shares("line_punct_thr", "short_line_thr", "char_duplicates_ratio")
        self.check_counts("short_line_length", "new_line_ratio")

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        applies = batch.in_languages(self.languages)
        lines, characters = batch.lines, batch.characters
        short = lines.total(lines.lengths <= self.short_line_length)
        repeated_chars = find_repeats(lines.hashes, lines.texts) * lines.lengths
        ends = characters.count(characters.points == LINE_END) - 1  # one is laid behind each text
        punctuated = shares(lines.total(lines.ending_in(TERMINALS)), lines.counts)
        duplicated = shares(lines.total(repeated_chars), lines.total(lines.lengths))
        line_ends = shares(ends, np.maximum(batch.words.counts, 1))
        rules = [
            ("line_punct_ratio", punctuated, self.line_punct_thr, None),
            ("short_line_ratio", shares(short, lines.counts), None, self.short_line_thr),
            ("char_dup_ratio", duplicated, None, self.char_duplicates_ratio),
            ("list_ratio", line_ends, None, self.new_line_ratio),
        ]
        return Outcome(measures=measures_of(rules, applies))
