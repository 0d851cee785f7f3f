"""Detect characters that are no language: symbols, random letters and digits, encoded bytes. The
rules hold in every language and need no list of words; see `perplexity` for word-like text.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.hashes import starts_of
from maskwright.text.curate.arrays.segmentation import (
    ALPHABETIC,
    DIGIT,
    LOWER,
    SPACE,
    SYMBOL,
    UPPER,
)
from maskwright.text.curate.step import CurationBatch, Outcome, RuleMeasure, Step, shares
from maskwright.text.store import BoolArray, IntArray

SUMMARY = "characters that are no language: symbols, random letters, keys at random, encoded bytes"
# Consonants in a row that a word of few languages has.
CONSONANTS = 5
LONG_WORD = 50
CONSONANT, HEXADECIMAL = 1, 2


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    max_symbols: float = 0.5
    """Greatest share of symbols, neither letters nor digits, of the characters that are no white
    space (`gibberish_symbols`), a row of one symbol counted once; 1: no limit."""
    max_mixed_words: float = 0.3
    """Greatest share of words with a letter behind a digit, or a capital between a small letter and
    no small letter (`gibberish_mixed_words`): `x9qa` and `gWQ`, not `getValue`; 1: no limit."""
    max_consonants: float = 0.12
    """Greatest share of words in plain Latin letters with five consonants in a row
    (`gibberish_consonants`); 1: no limit."""
    max_hexadecimal: float = 0.4
    """Greatest share of words that are hexadecimal numbers with a letter
    (`gibberish_hexadecimal`); 1: no limit."""
    max_run: float = 0.3
    """Greatest share of characters that repeat the three before them (`gibberish_runs`); 1: no
    limit."""
    max_long_words: float = 0.3
    """Greatest share of characters in words of more than 50 characters (`gibberish_long_words`); 1:
    no limit."""
    min_characters: int = 40
    """Fewest characters, white space apart, of a document that is judged."""
    min_words: int = 20
    """Fewest words of a document that the rules about shares of words judge."""

    def check(self) -> None:
        names = ("max_symbols", "max_mixed_words", "max_consonants", "max_hexadecimal", "max_run")
        self.check_shares(*names, "max_long_words")
        self.check_counts("min_characters", "min_words")

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        characters, points = batch.characters, batch.characters.points
        classes = characters.classes
        visible = characters.count((classes & SPACE) == 0)
        # A ruler of many hyphens is one symbol.
        is_new = np.ones(len(points), np.bool_)
        is_new[1:] = points[1:] != points[:-1]
        symbol = (classes & SYMBOL) != 0
        symbols = characters.count(symbol & is_new)
        distinct = visible - characters.count(symbol & ~is_new)
        runs = np.zeros(len(points), np.bool_)
        if len(points) > 3:
            equal = points[1:] == points[:-1]
            runs[3:] = equal[2:] & equal[1:-1] & equal[:-2] & ((classes[3:] & SPACE) == 0)
        words = batch.words
        lengths = words.ends - words.begins
        is_long = lengths > LONG_WORD
        long_chars = np.bincount(words.texts[is_long], lengths[is_long], minlength=len(batch))
        too_short = visible < self.min_characters
        for values in (symbols, long_chars):
            values[too_short] = 0
        run_counts = np.where(too_short, 0, characters.count(runs))
        counts, mixed, consonants, hexadecimal = self._words(batch, too_short)
        rules = [
            ("gibberish_symbols", shares(symbols, distinct), self.max_symbols),
            ("gibberish_runs", shares(run_counts, visible), self.max_run),
            ("gibberish_long_words", shares(long_chars, visible), self.max_long_words),
            ("gibberish_mixed_words", shares(mixed, counts), self.max_mixed_words),
            ("gibberish_consonants", shares(consonants, counts), self.max_consonants),
            ("gibberish_hexadecimal", shares(hexadecimal, counts), self.max_hexadecimal),
        ]
        return Outcome(
            measures=[RuleMeasure(rule, values, high=high) for rule, values, high in rules]
        )

    def _words(self, batch: CurationBatch, few: BoolArray) -> tuple[IntArray, ...]:
        """Return four (B,) counts: words; mixed words; words with many consonants in a row; and
        hexadecimal words. All are 0 for documents that are too short to be judged."""
        words, size = batch.words, len(batch)
        classes, points = batch.characters.classes, batch.characters.points
        origins = batch.characters.offsets[words.texts]
        begins, ends = words.begins + origins, words.ends + origins
        letter, digit = (classes & ALPHABETIC) != 0, (classes & DIGIT) != 0

        # Changes between positions p and p + 1 that occur inside the words of no language.
        breaks = np.zeros(len(points), np.bool_)
        lower = (classes & LOWER) != 0
        breaks[:-1] = digit[:-1] & letter[1:]
        if len(points) > 2:
            breaks[:-2] |= lower[:-2] & ((classes[1:-1] & UPPER) != 0) & ~lower[2:]
        mixed = _count_flags(breaks, begins, ends - 1) > 0

        marks = np.take(_marks(), points, mode="clip")
        consonants = (marks & CONSONANT) != 0
        for _ in range(CONSONANTS - 1):
            consonants[:-1] &= consonants[1:]
            consonants[-1:] = False
        clusters = _count_flags(consonants, begins, ends) > 0

        # The first and last characters exclude most words.
        hexadecimal = np.zeros(len(begins), np.bool_)
        digits = (marks & HEXADECIMAL) != 0
        candidates = np.flatnonzero(digits[begins] & digits[ends - 1])
        hex_words = candidates[_count_flags(~digits, begins[candidates], ends[candidates]) == 0]
        # Exclude decimal numbers; words of two letters, such as `be`, count with letters alone.
        begins, ends = begins[hex_words], ends[hex_words]
        lettered = _count_flags(letter, begins, ends) > 0
        lettered &= (_count_flags(digit, begins, ends) > 0) | (ends - begins == 2)
        hexadecimal[hex_words] = lettered

        counts = words.counts
        judged = (counts >= self.min_words) & ~few
        flags = (mixed, clusters, hexadecimal)
        flagged = [np.bincount(words.texts[f], minlength=size) for f in flags]
        return tuple(np.where(judged, values, 0) for values in (counts, *flagged))


@functools.cache
def _marks() -> NDArray[np.uint8]:
    """Return the bits `CONSONANT` and `HEXADECIMAL` of every code point."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for mark, characters in (
        (CONSONANT, "bcdfghjklmnpqrstvwxz"),
        (HEXADECIMAL, "0123456789abcdef"),
    ):
        for point in {*characters.encode(), *characters.upper().encode()}:
            table[point] |= mark
    return table


def _count_flags(flags: BoolArray, begins: IntArray, ends: IntArray) -> IntArray:
    """Return the number of true flags of each section."""
    running = starts_of(flags)
    return running[ends] - running[begins]
