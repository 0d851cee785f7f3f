"""The rules of C4: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer", section 2.2, with the names of rules that datatrove gave them.

    lines cut       no_terminal_punct, too_few_words, javascript, policy, too_long_word
    documents gone  too_few_sentences, curly_bracket, lorem_ipsum, bad_words

Each rule has a setting that switches it off. The rules were made for web pages in English: cutting
lines without a full stop, or with few words, takes much of a dialogue, a poem or a listing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from maskwright.text.curate.arrays.segmentation import TERMINALS, sentences_of
from maskwright.text.curate.arrays.spans import (
    Phrases,
    line_changes,
    phrases_of,
    read_entries,
    remove_lines,
)
from maskwright.text.curate.step import (
    Change,
    CurationBatch,
    Outcome,
    Removal,
    RuleMeasure,
    Step,
    where_applies,
)
from maskwright.text.store import BoolArray

SUMMARY = "C4's rules: whole sentences, words per line, curly brackets, policy lines, bad words"
# Phrases by rule: those of the published code.
PHRASES = {
    "javascript": ("javascript",),
    "policy": (
        *("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies"),
        "use cookies",
    ),
    "lorem_ipsum": ("lorem ipsum",),
}
CURLY = "{"


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    CHANGES_TEXT: ClassVar[bool] = True

    terminal_punctuation: bool = True
    """Cut lines that do not end in a full stop, question or exclamation mark or quotation mark, or
    that end in an ellipsis (`no_terminal_punct`)."""
    min_words_per_line: int = 5
    """Cut lines of fewer words (`too_few_words`); 0: no limit."""
    max_word_length: int = 1000
    """Cut lines with a longer run of characters without white space (`too_long_word`); 0: no
    limit."""
    javascript: bool = True
    """Cut lines with the word JavaScript (`javascript`)."""
    policy: bool = True
    """Cut lines about cookies, privacy policies and terms of use (`policy`)."""
    min_num_sentences: int = 3
    """Fewest sentences of a document after its lines were cut (`too_few_sentences`); 0: no limit.
    datatrove has 5."""
    curly_bracket: bool = True
    """Remove documents with a curly bracket (`curly_bracket`): most are code."""
    lorem_ipsum: bool = True
    """Remove documents with the words lorem ipsum (`lorem_ipsum`)."""
    bad_words: str = ""
    """A file with a word or phrase on each line, `#` for comments; documents with one are removed
    (`bad_words`). Empty: no such rule."""
    languages: tuple[str, ...] = ("en",)
    """Languages that the rules are for, by the note `language`; documents of other languages pass
    untouched, those without the note are judged. Empty: all languages."""

    def check(self) -> None:
        self.check_counts("min_words_per_line", "max_word_length", "min_num_sentences")
        self.open()

    def check_beside(self, name: str, steps: Mapping[str, Step]) -> None:
        self.require_kept(self.languages, steps)

    def files(self) -> Sequence[Path]:
        return [Path(self.bad_words)] if self.bad_words else []

    def open(self) -> Mapping[str, Phrases]:
        """The phrases of each rule that is on.

        Raises:
            UsageError: the file of bad words does not exist.
            DataError: the file is no list of words.
        """
        entries = {
            rule: [(text, 0, "") for text in texts]
            for rule, texts in PHRASES.items()
            if getattr(self, rule)
        }
        if self.bad_words:
            entries["bad_words"] = read_entries(self.bad_words, "bad_words")
        return {rule: phrases_of(listed) for rule, listed in entries.items()}

    def apply(
        self, batch: CurationBatch, opened: Mapping[str, Phrases], gathered: Any = None
    ) -> Outcome:
        applies = batch.in_languages(self.languages)
        lines = batch.lines
        judged = applies[lines.texts]
        cut = np.zeros(len(judged), np.bool_)
        changes: list[Change] = []
        for rule, hit in self._line_rules(batch, opened):
            hit = hit & judged & ~cut
            cut |= hit
            changes += line_changes(lines, rule, hit)
        texts = batch.texts
        if cut.any():
            texts = remove_lines(texts, lines, cut)
        measures = []
        if self.min_num_sentences:
            sentences = lines.total(np.where(cut, 0, sentences_of(lines)))
            values = where_applies(sentences, applies)
            measures.append(RuleMeasure("too_few_sentences", values, self.min_num_sentences))
        removals = []
        if self.curly_bracket:
            for index in np.flatnonzero(applies).tolist():
                if (position := batch.texts[index].find(CURLY)) >= 0:
                    where = f"character {position}"
                    removals.append(Removal(index, "curly_bracket", CURLY, where, "none"))
        for rule in ("lorem_ipsum", "bad_words"):
            if rule in opened:
                removals += _removals(batch, rule, opened[rule], applies)
        return Outcome(
            texts=texts if changes else None, measures=measures, removals=removals, changes=changes
        )

    def _line_rules(
        self, batch: CurationBatch, opened: Mapping[str, Phrases]
    ) -> Sequence[tuple[str, BoolArray]]:
        """Return (rule, (L,) whether it cuts each line), in the order of the published code."""
        lines = batch.lines
        points = batch.characters.points
        rules = []
        begins, ends = batch.characters.tokens()
        if self.max_word_length:
            long = begins[ends - begins > self.max_word_length]
            rules.append(("too_long_word", lines.count_positions(long) > 0))
        if self.terminal_punctuation:
            dots = np.ones(len(lines.ends), np.bool_)
            for back in (1, 2, 3):
                dots &= points[np.maximum(lines.ends - back, 0)] == ord(".")
            ends_well = lines.ending_in(TERMINALS) & ~lines.ending_in("…") & ~dots
            rules.append(("no_terminal_punct", ~ends_well))
        if self.min_words_per_line:
            rules.append(("too_few_words", lines.count_positions(begins) < self.min_words_per_line))
        words = batch.words
        for rule in ("javascript", "policy"):
            if rule in opened:
                firsts, _, _ = opened[rule].find(words)
                positions = words.begins[firsts] + batch.characters.offsets[words.texts[firsts]]
                rules.append((rule, lines.count_positions(positions) > 0))
        return rules


def _removals(
    batch: CurationBatch, rule: str, phrases: Phrases, applies: BoolArray
) -> list[Removal]:
    """Return a removal for each document with a phrase, naming the first."""
    begins, _, numbers = phrases.find(batch.words)
    texts, first_matches = np.unique(batch.words.texts[begins], return_index=True)
    removals = []
    for text, at in zip(texts.tolist(), first_matches.tolist(), strict=True):
        if applies[text]:
            where = f"character {batch.words.begins[begins[at]]}"
            removals.append(Removal(text, rule, phrases.texts[numbers[at]], where, "none"))
    return removals
