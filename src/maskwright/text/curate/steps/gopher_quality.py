"""The quality rules of Gopher: Rae et al. 2021, "Scaling Language Models: Methods, Analysis &
Insights from Training Gopher", appendix A.1.1, with the names of rules that datatrove gave them.

Words are counted as `arrays/segmentation.py` finds them; tokens between white space are tested for
letters, so that `--` and `1999` count as words without one. Blank lines do not count.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, UsageError
from maskwright.text.curate.arrays.hashes import HashTable, starts_of
from maskwright.text.curate.arrays.segmentation import ALPHABETIC, MARK, characters_of, words_of
from maskwright.text.curate.step import (
    LANGUAGE,
    UNDECIDED,
    CurationBatch,
    Outcome,
    RuleMeasure,
    Step,
    measures_of,
    shares,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray

SUMMARY = "Gopher's quality rules: words, their length, symbols, bullets, ellipses, stop words"
ENGLISH = ("the", "be", "to", "of", "and", "that", "have", "with")
# The bullet of the paper, and what web pages write in its place.
BULLETS = "•‣▪●■◦∙·-*"
ELLIPSIS = ord("…")


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    min_doc_words: int = 50
    """Fewest words (`gopher_short_doc`); 0: no limit."""
    max_doc_words: int = 100_000
    """Most words (`gopher_long_doc`)."""
    min_avg_word_length: float = 3.0
    """Least mean length of words, in characters (`gopher_below_avg_threshold`), not judged in
    scripts without spaces between words; 0: no limit."""
    max_avg_word_length: float = 10.0
    """Greatest mean length of words, in characters that are no combining marks
    (`gopher_above_avg_threshold`)."""
    max_symbol_word_ratio: float = 0.1
    """Most hash signs (`gopher_too_many_hashes`) and ellipses (`gopher_too_many_ellipsis`) for each
    word."""
    max_bullet_lines_ratio: float = 0.9
    """Greatest share of lines that begin with a bullet (`gopher_too_many_bullets`); 1: no limit."""
    max_ellipsis_lines_ratio: float = 0.3
    """Greatest share of lines that end in an ellipsis (`gopher_too_many_end_ellipsis`); 1: no
    limit."""
    min_alpha_words_ratio: float = 0.8
    """Least share of tokens that have a letter (`gopher_below_alpha_threshold`), not judged in
    scripts without spaces between words; 0: no limit."""
    min_stop_words: int = 2
    """Fewest different stop words of the document's language (`gopher_enough_stop_words`); 0: no
    limit."""
    languages: tuple[str, ...] = ("en",)
    """Languages that the rules are for, by the note `language`; documents of other languages pass
    untouched, those without the note are judged. Empty: all languages, with the stop words of
    English only for English."""
    stop_words: str = ""
    """A TOML file with a list of stop words for each language, as `de = ["der", "und"]`; its
    languages are judged too."""

    def check(self) -> None:
        self.check_counts("min_doc_words", "min_avg_word_length", "max_symbol_word_ratio")
        self.check_counts("min_stop_words")
        self.check_range("min_doc_words", "max_doc_words")
        self.check_range("min_avg_word_length", "max_avg_word_length")
        self.check_shares("max_bullet_lines_ratio", "max_ellipsis_lines_ratio")
        self.check_shares("min_alpha_words_ratio")
        for language, words in self._lists().items():
            if len(words) < self.min_stop_words:
                raise ConfigError(
                    "fewer stop words than a document needs",
                    where="stop_words",
                    found=f"{len(words)} for {language}",
                    wanted=f"at least min_stop_words, {self.min_stop_words}",
                )

    def check_beside(self, name: str, steps: Mapping[str, Step]) -> None:
        self.require_kept({*self.languages, *self._lists()} if self.languages else (), steps)

    def files(self) -> Sequence[Path]:
        return [Path(self.stop_words)] if self.stop_words else []

    def open(self) -> Mapping[str, HashTable]:
        """Return the stop words of each language."""
        return {
            language: HashTable(np.unique(words_of(characters_of(words)).hashes))
            for language, words in self._lists().items()
        }

    def apply(
        self, batch: CurationBatch, opened: Mapping[str, HashTable], gathered: Any = None
    ) -> Outcome:
        applies = batch.in_languages({*self.languages, *opened} if self.languages else ())
        characters, lines, words = batch.characters, batch.lines, batch.words
        counts = words.counts
        signs = np.bincount(words.texts, words.ends - words.begins, minlength=len(batch))
        length = shares(signs, counts)
        # Vowels and tones that are marks on a letter make no word too long.
        marks = characters.count((characters.classes & MARK) != 0)
        points = characters.points
        # Where every letter counts as a word, words have no length, and a sentence is a token.
        unspaced = characters.letters_per_word > 1
        length[unspaced] = np.nan
        ellipses = (points == ELLIPSIS) | _ends_of_dots(points)
        tokens, alphabetic = _tokens(batch)
        bullet = np.isin(points[lines.begins], [ord(c) for c in BULLETS])
        # A hyphen is a bullet where white space is behind it; so is a star, unlike `**bold**`.
        second = points[np.minimum(lines.begins + 1, len(points) - 1)]
        bullet &= (second == 0x20) | (points[lines.begins] >= 0x80)
        bullet_lines = shares(lines.total(bullet), lines.counts)
        ending_lines = shares(lines.total(ellipses[lines.ends - 1]), lines.counts)
        ellipsis_ratio = shares(characters.count(ellipses), counts)
        alphabetic_share = np.where(unspaced, np.nan, shares(alphabetic, tokens))
        unmarked_length = length - shares(marks, counts)
        hashes = characters.count(points == ord("#"))
        rules = [
            ("gopher_short_doc", counts, self.min_doc_words, None),
            ("gopher_long_doc", counts, None, self.max_doc_words),
            ("gopher_below_avg_threshold", length, self.min_avg_word_length, None),
            ("gopher_above_avg_threshold", unmarked_length, None, self.max_avg_word_length),
            ("gopher_too_many_hashes", shares(hashes, counts), None, self.max_symbol_word_ratio),
            ("gopher_too_many_ellipsis", ellipsis_ratio, None, self.max_symbol_word_ratio),
            ("gopher_too_many_bullets", bullet_lines, None, self.max_bullet_lines_ratio),
            ("gopher_too_many_end_ellipsis", ending_lines, None, self.max_ellipsis_lines_ratio),
            ("gopher_below_alpha_threshold", alphabetic_share, self.min_alpha_words_ratio, None),
        ]
        stop_words = self._stop_words(batch, opened)
        stop_word_rule = RuleMeasure("gopher_enough_stop_words", stop_words, self.min_stop_words)
        return Outcome(measures=[*measures_of(rules, applies), stop_word_rule])

    def _stop_words(self, batch: CurationBatch, opened: Mapping[str, HashTable]) -> FloatArray:
        """Return (B,) the distinct stop words of the document's language; NaN without a list."""
        words, stop_word_counts = batch.words, np.full(len(batch), np.nan)
        notes = batch.note(LANGUAGE)
        for language, table in opened.items():
            # A document whose language is not known is taken for English.
            in_language = np.fromiter(
                (n == language or (language == "en" and n in (None, UNDECIDED)) for n in notes),
                np.bool_,
                len(batch),
            )
            if not in_language.any():
                continue
            # A bit for each stop word of each text.
            present = np.zeros((len(batch), len(table)), np.bool_)
            indices, numbers = table.find(words.hashes)
            present[words.texts[indices], numbers] = True
            stop_word_counts = np.where(in_language, present.sum(axis=1), stop_word_counts)
        return stop_word_counts

    def _lists(self) -> dict[str, Sequence[str]]:
        """Read the stop words of each language."""
        lists: dict[str, Sequence[str]] = {"en": ENGLISH}
        if not self.stop_words:
            return lists
        try:
            plain = tomllib.loads(Path(self.stop_words).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise UsageError("no such file of stop words", where=self.stop_words) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(
                "stop words cannot be read",
                where="stop_words",
                found=f"{self.stop_words}: {error}",
                wanted='TOML, as de = ["der", "und"]',
            ) from error
        for language, words in plain.items():
            is_list = isinstance(words, list) and all(isinstance(w, str) for w in words)
            is_valid = is_list and (words_of(characters_of(words)).counts == 1).all()
            if not is_valid:
                raise ConfigError(
                    "not a list of words",
                    where="stop_words",
                    found=f"{self.stop_words}, {language}",
                    wanted='single words, as de = ["der", "und"]',
                )
        return {**lists, **plain}


def _ends_of_dots(points: NDArray[np.uint32]) -> BoolArray:
    """Return (N,) whether each character is the last dot of a run of three or more."""
    dot = np.concatenate([[False] * 3, points == ord("."), [False]])
    return dot[3:-1] & dot[2:-2] & dot[1:-3] & ~dot[4:]


def _tokens(batch: CurationBatch) -> tuple[IntArray, IntArray]:
    """Return (B,) the number of tokens between white space, and (B,) of those with a letter."""
    characters = batch.characters
    begins, ends = characters.tokens()
    running = starts_of((characters.classes & ALPHABETIC) != 0)
    has_letter = running[ends] > running[begins]
    starts = np.searchsorted(begins, characters.offsets)
    counts = starts_of(has_letter)
    return np.diff(starts), np.diff(counts[starts])
