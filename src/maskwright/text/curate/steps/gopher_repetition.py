"""The repetition rules of Gopher (Rae et al. 2021, appendix A.1.1, table A1), as in datatrove.

    dup_line_frac, dup_para_frac             share of lines, paragraphs that occur earlier
    dup_line_char_frac, dup_para_char_frac   the same by characters
    top_2_gram ... top_4_gram                share of words' characters in the most frequent n-gram
    duplicated_5_n_grams ... 10              share of words' characters in n-grams that occur
                                             earlier, each character counted once

An n-gram that occurs once is no repetition, however short the text. Words are those of
`arrays/segmentation.py`, regardless of case and punctuation. In scripts without spaces, where they
are letters, an n-gram has n times as many as a word has letters. Blank lines are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskwright.text.curate.arrays.hashes import BASE, group_equal, is_first, mix, starts_of
from maskwright.text.curate.arrays.segmentation import Words, find_repeats
from maskwright.text.curate.step import (
    CurationBatch,
    Outcome,
    RuleMeasure,
    Step,
    shares,
    where_applies,
)
from maskwright.text.store import FloatArray, IntArray

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
        self.check_shares(*(name for name in vars(self) if not name.endswith(("words", "lines"))))
        self.check_counts("top_min_words", "min_lines")

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        measures = self._lines(batch)
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
        """Measure repeated lines, and repeated paragraphs, by number and by characters."""
        lines = batch.lines
        # A paragraph begins at the beginning of a text, and after a blank line.
        opens = is_first(lines.texts)
        opens[1:] |= np.diff(lines.numbers) != 1
        first_lines = np.flatnonzero(opens)
        last_lines = np.append(first_lines[1:], len(opens))[: len(first_lines)] - 1
        measures = []
        for name, firsts, lasts in (
            ("line", slice(None), slice(None)),
            ("para", first_lines, last_lines),
        ):
            texts, begins, ends = lines.texts[firsts], lines.begins[firsts], lines.ends[lasts]
            repeated = find_repeats(batch.characters.hashes.of(begins, ends), texts)
            counts, repeats, lengths, repeated_lengths = (
                np.bincount(texts, weights, minlength=len(batch))
                for weights in (None, repeated, ends - begins, repeated * (ends - begins))
            )
            by_number = np.where(counts < self.min_lines, 0.0, shares(repeats, counts))
            for rule, values in (
                (f"dup_{name}_frac", by_number),
                (f"dup_{name}_char_frac", shares(repeated_lengths, lengths)),
            ):
                measures.append(RuleMeasure(rule, values, high=getattr(self, rule)))
        return measures


Shares = Mapping[int, FloatArray]


def repeated_ngrams(
    words: Words, top: Sequence[int], duplicated: Sequence[int]
) -> tuple[Shares, Shares]:
    """Return the shares of the characters of each text's words that are in repeated n-grams.

    An n-gram can only be repeated where the (n - 1)-gram at its position is. So each size considers
    only the positions that the size before left, and all cost little more than the first.

    Args:
        top, duplicated: sizes n of n-grams, at least 2.

    Returns:
        For each size of `top`, (B,) the share in the most frequent n-gram that occurs at least
        twice (at most 1, even if occurrences overlap). For each size of `duplicated`, (B,) the
        share in n-grams that also occur earlier in the text.
    """
    size = len(words.starts) - 1
    lengths = words.ends - words.begins
    sums = starts_of(lengths)
    totals = sums[words.starts[1:]] - sums[words.starts[:-1]]
    text_ends = words.starts[words.texts + 1] if len(lengths) else lengths  # of each word's text
    empty = np.zeros(size)
    tops: dict[int, FloatArray] = dict.fromkeys(top, empty)
    duplicates: dict[int, FloatArray] = dict.fromkeys(duplicated, empty)

    positions = np.arange(len(lengths))
    # The index of the text is part of the value, as equal n-grams of two texts are distinct.
    with np.errstate(over="ignore"):
        values = words.hashes + mix(words.texts.astype(np.uint64)) * BASE
    for n in range(2, max(*top, *duplicated) + 1):
        inside = positions + n <= text_ends[positions]
        positions, values = positions[inside], values[inside]
        if not positions.size:
            break
        with np.errstate(over="ignore"):
            values = values * BASE + words.hashes[positions + n - 1]
        order, firsts = group_equal(values)
        begins = np.flatnonzero(firsts)
        counts = np.diff(np.append(begins, len(order)))
        first_occurrences = order[begins]  # of each n-gram
        multiple = counts > 1
        if n in tops:
            at = positions[first_occurrences[multiple]]
            tops[n] = _largest(words.texts[at], counts[multiple], sums[at + n] - sums[at], totals)
        in_group = np.repeat(multiple, counts)
        repeated = np.zeros(len(positions), np.bool_)
        repeated[order[in_group]] = True
        if n in duplicates:
            is_later = repeated.copy()
            is_later[first_occurrences] = False
            duplicates[n] = _covered(words, positions[is_later], n, lengths, totals)
        positions, values = positions[repeated], values[repeated]
    return tops, duplicates


def _largest(texts: IntArray, counts: IntArray, lengths: IntArray, totals: IntArray) -> FloatArray:
    """(B,) count * length / total of the most frequent n-gram of each text, ties by length."""
    order = np.lexsort((-lengths, -counts, texts))
    chosen = order[is_first(texts[order])]
    covered = np.zeros(len(totals))
    covered[texts[chosen]] = counts[chosen] * lengths[chosen]
    return np.minimum(shares(covered, totals), 1.0)


def _covered(
    words: Words, begins: IntArray, n: int, lengths: IntArray, totals: IntArray
) -> FloatArray:
    """(B,) the share of the words' characters covered by the n-grams that begin at `begins`."""
    edges = np.zeros(len(lengths) + 1, np.int64)
    np.add.at(edges, begins, 1)
    np.add.at(edges, begins + n, -1)
    inside = np.cumsum(edges[:-1]) > 0
    return shares(np.bincount(words.texts[inside], lengths[inside], minlength=len(totals)), totals)
