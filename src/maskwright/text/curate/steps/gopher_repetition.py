"""The repetition rules of Gopher (Rae et al. 2021, appendix A.1.1, table A1), as in datatrove.

    dup_line_frac, dup_para_frac             share of lines, paragraphs that occur earlier
    dup_line_char_frac, dup_para_char_frac   the same by characters
    top_2_gram ... top_4_gram                share of words' characters in the most frequent n-gram
    duplicated_5_n_grams ... 10              share of words' characters in n-grams that occur
                                             earlier, each character counted once

An n-gram that occurs once is no repetition, however short the text. Words are those of
`arrays/words.py`, regardless of case and punctuation. In scripts without spaces, where they are
letters, an n-gram has n times as many as a word has letters. Blank lines are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwright.text.curate.arrays.characters import section_hashes
from maskwright.text.curate.arrays.lines import find_repeats
from maskwright.text.curate.arrays.ngrams import repeated_ngrams
from maskwright.text.curate.step import (
    CurationBatch,
    Outcome,
    RuleMeasure,
    Step,
    check_counts,
    check_shares,
    shares,
    where_applies,
)

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY = "Gopher's repetition rules: lines, paragraphs and n-grams that occur again"
TOP, DUPLICATED = (2, 3, 4), (5, 6, 7, 8, 9, 10)


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    """Each field is the greatest share that is allowed; 1 switches its rule off."""

    dup_line_frac: float = 0.30
    """Of lines that stand earlier in the document already."""
    dup_para_frac: float = 0.30
    """Of paragraphs (between blank lines) that stand earlier already."""
    dup_line_char_frac: float = 0.20
    """Of characters in such lines."""
    dup_para_char_frac: float = 0.20
    """Of characters in such paragraphs."""
    top_2_gram: float = 0.20
    """Of the words' characters in the most frequent pair of words."""
    top_3_gram: float = 0.18
    """The same of three words."""
    top_4_gram: float = 0.16
    """The same of four words."""
    duplicated_5_n_grams: float = 0.15
    """Of the words' characters in runs of five words that stand earlier already."""
    duplicated_6_n_grams: float = 0.14
    """The same of six words."""
    duplicated_7_n_grams: float = 0.13
    """The same of seven words."""
    duplicated_8_n_grams: float = 0.12
    """The same of eight words."""
    duplicated_9_n_grams: float = 0.11
    """The same of nine words."""
    duplicated_10_n_grams: float = 0.10
    """The same of ten words."""
    top_min_words: int = 50
    """Fewest words of a document that the rules about the most frequent n-gram judge: the paper has
    removed shorter ones before, where a name that occurs twice is a fifth of the text."""
    min_lines: int = 4
    """Fewest lines, and fewest paragraphs, of a document whose lines or paragraphs are judged by
    their number: one equal pair among three is chance."""

    def check(self) -> None:
        check_shares(self, *(name for name in vars(self) if not name.endswith(("words", "lines"))))
        check_counts(self, "top_min_words", "min_lines")

    def apply(self, batch: CurationBatch, opened: Any, gathered: pa.Table | None = None) -> Outcome:
        measures = [*self._lines(batch), *self._paragraphs(batch)]
        letters = batch.characters.letters_per_word
        top = {n: np.zeros(len(batch)) for n in TOP}
        duplicated = {n: np.zeros(len(batch)) for n in DUPLICATED}
        for count in np.unique(letters).tolist():
            chosen = letters == count
            words = batch.words if chosen.all() else batch.words.of(chosen)
            sizes_of = [[n * count for n in sizes] for sizes in (TOP, DUPLICATED)]
            repeated = repeated_ngrams(words, *sizes_of)
            for shares_of, sizes in zip(repeated, (top, duplicated), strict=True):
                for n in sizes:
                    sizes[n][chosen] = shares_of[n * count]
        enough = batch.words.counts >= self.top_min_words * letters
        rules = [(f"top_{n}_gram", where_applies(top[n], enough)) for n in TOP]
        rules += [(f"duplicated_{n}_n_grams", duplicated[n]) for n in DUPLICATED]
        measures += [RuleMeasure(rule, values, high=getattr(self, rule)) for rule, values in rules]
        return Outcome(measures=measures)

    def _lines(self, batch: CurationBatch) -> list[RuleMeasure]:
        lines = batch.lines
        repeated = find_repeats(lines.hashes, lines.texts)
        frac = shares(lines.total(repeated), lines.counts)
        frac[lines.counts < self.min_lines] = 0.0
        chars = shares(lines.total(repeated * lines.lengths), lines.total(lines.lengths))
        return [
            RuleMeasure("dup_line_frac", frac, high=self.dup_line_frac),
            RuleMeasure("dup_line_char_frac", chars, high=self.dup_line_char_frac),
        ]

    def _paragraphs(self, batch: CurationBatch) -> list[RuleMeasure]:
        """Measure repeated paragraphs, by number and by characters."""
        lines = batch.lines
        # A paragraph begins at the beginning of a text, and after a blank line.
        is_first = np.ones(len(lines.begins), np.bool_)
        is_first[1:] = (np.diff(lines.numbers) != 1) | (np.diff(lines.texts) != 0)
        first_lines = np.flatnonzero(is_first)
        last_lines = np.concatenate([first_lines[1:], [len(is_first)]])[: len(first_lines)] - 1
        texts, begins = lines.texts[first_lines], lines.begins[first_lines]
        ends = lines.ends[last_lines]
        hashes = section_hashes(batch.characters.sums, begins, ends)
        repeated = find_repeats(hashes, texts)
        size = len(batch)
        counts = np.bincount(texts, minlength=size)
        frac = shares(np.bincount(texts, repeated, minlength=size), counts)
        frac[counts < self.min_lines] = 0.0
        lengths = ends - begins
        chars = shares(
            np.bincount(texts, repeated * lengths, minlength=size),
            np.bincount(texts, lengths, minlength=size),
        )
        return [
            RuleMeasure("dup_para_frac", frac, high=self.dup_para_frac),
            RuleMeasure("dup_para_char_frac", chars, high=self.dup_para_char_frac),
        ]
