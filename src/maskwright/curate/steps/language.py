"""language: the language of each document is noted; others than those wanted are removed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.identify import (
    FastText,
    Identifier,
    NaiveBayes,
    open_fasttext,
    open_py3langid,
    require_model,
)
from maskwright.curate.parts.outcome import Measure, Outcome, Removal
from maskwright.curate.parts.passages import passages_of
from maskwright.curate.parts.step import Step
from maskwright.errors import ConfigError, near
from maskwright.findings import Finding

SUMMARY = "notes the language of each document, and keeps those in the languages you name"
UNDECIDED, NO_LANGUAGE = "und", "zxx"  # ISO 639-2
DOMINANT = 0.8  # share of the documents from which on a first look keeps one language
LEAST_LETTERS = 20  # bytes of letters in UTF-8: 20 Latin letters, 10 Cyrillic, 7 Chinese
# How much better another language must explain a document than one that is kept, or a passage than
# that of its document: the natural logarithm of the ratio, per square root of the bytes. Neighbours
# such as Danish and Norwegian seldom reach it, German in an English text always does.
MARGIN = 2.0
_WORDS = re.compile(r"[\W\d_]+")
SHORT = 64  # bytes of a passage of which a second language is not said


@dataclass(frozen=True)
class Languages:
    """What was found of B documents.

    Attributes:
        codes: (B,) the languages, `und` or `zxx`.
        probabilities: (B,) of the languages; 0 for `und` and `zxx`.
        others: (B,) the share of a document in other languages than its own and those wanted.
        second: (B,) the language of most of that share, or "".
    """

    codes: Sequence[str]
    probabilities: NDArray[np.float64]
    others: NDArray[np.float64]
    second: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    UNLESS: ClassVar[str] = "languages were not identified"
    NOTES: ClassVar[tuple[str, ...]] = ("language",)

    keep: tuple[str, ...] = ()
    """The languages that are kept (ISO 639 codes: en, de, zh, ...); none: all are, and noted. A
    text that another language does not explain much better, as Malay does not Indonesian, stays."""
    least: float | None = None
    """The least probability of a language in `keep`."""
    most_other: float | None = None
    """The largest share of a document in other languages than its own and those in `keep`."""
    keep_undecided: bool = True
    """Whether documents stay of which no language is said: with fewer than 20 bytes of letters."""
    passages: int = 8
    """How many passages of some 300 bytes of a document are read, at even distances."""
    model: str = "py3langid"
    """py3langid (its model comes with it) or fasttext:PATH."""

    def proposed(self, counts: Mapping[str, int]) -> tuple[Self, Finding | None]:
        """With the language that most documents have, if there is one."""
        known = Counter(
            {name: n for name, n in counts.items() if name not in ("", UNDECIDED, NO_LANGUAGE)}
        )
        if self.keep or not known:
            return self, None
        name, count = known.most_common(1)[0]
        share = count / known.total()
        if share < DOMINANT:
            listed = ", ".join(f"{n} {c / known.total():.0%}" for n, c in known.most_common(5))
            remedy = f"name those to keep: --set 'language.keep=[\"{name}\"]'"
            what = "several languages, all are kept"
            return self, Finding("several-languages", what, listed, remedy)
        what = f"only documents in the language {name!r} are kept, that of {share:.1%}"
        remedy = "to keep all: --set 'language.keep=[]'"
        return replace(self, keep=(name,)), Finding("one-language", what, "", remedy)

    def check(self) -> None:
        require_model(self.model)
        if self.least is not None and not self.keep:
            raise ConfigError(
                "`least` has no effect where all languages are kept",
                where="least",
                found=f"{self.least} with keep = []",
                wanted="the languages that are kept",
                do='set keep = ["en"], or leave `least` out',
            )
        if not self.keep_undecided and not self.keep:
            raise ConfigError(
                "undecided documents are removed only where languages are chosen",
                where="keep_undecided",
                found="false with keep = []",
                do='set keep = ["en"], or leave it out',
            )
        for name in ("least", "most_other"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(
                    "not a probability or share",
                    where=name,
                    found=value,
                    wanted="0 to 1",
                    do="use 0.5",
                )
        if self.passages < 1:
            raise ConfigError(
                "nothing to read of a document",
                where="passages",
                found=self.passages,
                wanted="1 or more",
                do="leave it out for 8",
            )

    def files(self) -> Sequence[Path]:
        return () if self.model == "py3langid" else (Path(self.model[9:]),)

    def open(self) -> NaiveBayes | FastText:
        """The model.

        Raises:
            UsageError: it is not installed, or there is no such file.
            DataError: the model is damaged.
            ConfigError: it does not know a language in `keep`.
        """
        model: NaiveBayes | FastText
        if self.model == "py3langid":
            model = open_py3langid()
        else:
            model = open_fasttext(Path(self.model[9:]))
        for code in self.keep:
            if code not in model.languages and code != UNDECIDED:
                raise ConfigError(
                    "the model does not know this language",
                    where="language.keep",
                    found=repr(code),
                    wanted="a code of ISO 639 that it knows",
                    do=near(code, model.languages),
                )
        return model

    def apply(self, batch: Batch, opened: Identifier, known: Any = None) -> Outcome:
        found = identify(batch.texts, opened, self.passages, self.keep)
        decided = found.probabilities > 0
        measures, removals = [], []
        if self.keep:
            for place, code in enumerate(found.codes):
                if code in self.keep or (self.keep_undecided and not decided[place]):
                    continue
                removals.append(Removal(place, "language", code, None, ", ".join(self.keep)))
            if self.least is not None:
                values = np.where(decided, found.probabilities, np.nan)
                measures.append(Measure("language_probability", values, low=self.least))
        if self.most_other is not None:
            measures.append(Measure("other_language_share", found.others, high=self.most_other))
        numbers = [f"{p:.4f}" if p else None for p in found.probabilities.tolist()]
        second = [
            f"{code} {share:.2f}" if code else None
            for code, share in zip(found.second, found.others.tolist(), strict=True)
        ]
        notes = {
            "language": found.codes,
            "language_probability": numbers,
            "second_language": second,
        }
        return Outcome(measures=measures, removals=removals, notes=notes)


def identify(
    texts: Sequence[str], model: Identifier, most: int, wanted: Sequence[str] = ()
) -> Languages:
    """The languages of texts, from at most so many passages of each.

    The scores of the passages add up; divided by the square root of the bytes they are calibrated
    (the rule of py3langid), and their softmax is the probability.
    """
    passages, owners = passages_of(texts, most)
    sizes = np.fromiter(map(len, passages), np.int64, len(passages))
    scores = model.scores(passages)  # (P, L)
    starts = np.searchsorted(owners, np.arange(len(texts)))
    read = np.add.reduceat(sizes, starts)
    total = np.add.reduceat(scores, starts, axis=0, dtype=np.float64) + _priors(model)
    logits = total / np.sqrt(read)[:, None]
    names, columns, twice = _merged(model.languages)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    for first, other_column in twice:
        odds[:, first] += odds[:, other_column]
    merged = odds[:, columns]
    merged /= merged.sum(axis=1, keepdims=True)
    best = merged.argmax(axis=1)
    columns_wanted = [names.index(code) for code in wanted if code in names]
    if columns_wanted:
        # What cannot be told from a wanted language is taken for it.
        nearest = np.array(columns_wanted)[merged[:, columns_wanted].argmax(axis=1)]
        rows = np.arange(len(texts))
        close = merged[rows, nearest] * math.exp(MARGIN) >= merged[rows, best]
        best = np.where(close, nearest, best)
    codes = [names[n] for n in best]
    # Rounded: the last bits depend on how many texts are computed at once.
    probabilities = merged[np.arange(len(texts)), best].round(6)
    for n, text in enumerate(texts):
        if undecided := _without_language(text):
            codes[n], probabilities[n] = undecided, 0.0

    # A passage in another language, and by a margin.
    for first, other_column in twice:
        scores[:, first] = np.maximum(scores[:, first], scores[:, other_column])
    passage_scores = scores[:, columns]
    own = passage_scores[np.arange(len(passages)), best[owners]]
    for code in wanted:
        if code in names:
            own = np.maximum(own, passage_scores[:, names.index(code)])
    other = passage_scores.argmax(axis=1)
    lead = passage_scores.max(axis=1) - own
    foreign = (lead > MARGIN * np.sqrt(sizes)) & (sizes >= SHORT) & (probabilities[owners] > 0)
    others = np.add.reduceat(np.where(foreign, sizes, 0), starts) / read
    second = [""] * len(texts)
    for n in np.flatnonzero(others).tolist():
        here = slice(starts[n], starts[n + 1] if n + 1 < len(texts) else len(passages))
        amounts = np.bincount(other[here], np.where(foreign[here], sizes[here], 0), len(names))
        second[n] = names[int(amounts.argmax())]
    return Languages(codes, probabilities, others, second)


def _priors(model: Identifier) -> NDArray[np.float32]:
    return getattr(model, "priors", np.zeros(len(model.languages), np.float32))


def _merged(languages: Sequence[str]) -> tuple[list[str], list[int], list[tuple[int, int]]]:
    """The languages, each once, with their first columns, and pairs of the first and a further
    column of those that have two, as Serbian for its two scripts."""
    firsts: dict[str, int] = {}
    twice = []
    for column, name in enumerate(languages):
        if name in firsts:
            twice.append((firsts[name], column))
        else:
            firsts[name] = column
    return list(firsts), list(firsts.values()), twice


def _without_language(text: str) -> str:
    """`zxx` for a text without letters, `und` for one with too few, "" for others."""
    beginning = text[: 2 * LEAST_LETTERS]
    if len(_WORDS.sub("", beginning)) >= LEAST_LETTERS and beginning.isascii():
        return ""
    letters = "".join(filter(str.isalpha, beginning))
    if len(letters.encode("utf-8", "replace")) < LEAST_LETTERS:
        letters = "".join(filter(str.isalpha, text))
    if len(letters.encode("utf-8", "replace")) >= LEAST_LETTERS:
        return ""
    return UNDECIDED if letters else NO_LANGUAGE
