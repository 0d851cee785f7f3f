"""language: note the language of each document, and keep documents in given languages."""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.catalogue import install_command, require_packages
from maskwright.base.errors import ConfigError, DataError, Finding, UsageError, near
from maskwright.base.storage.files import refusal
from maskwright.text.curate.arrays.hashes import is_first, starts_of
from maskwright.text.curate.arrays.segmentation import passages_of
from maskwright.text.curate.step import CurationBatch, Outcome, Removal, RuleMeasure, Step
from maskwright.text.store import FloatArray

SUMMARY = "notes the language of each document, and keeps those in the languages you name"
UNDECIDED, NO_LANGUAGE = "und", "zxx"  # ISO 639-2
DOMINANT = 0.8  # least share of documents for which a first look proposes to keep one language
LEAST_LETTERS = 20  # bytes of letters in UTF-8: 20 Latin letters, 10 Cyrillic, 7 Chinese
# Least difference of log-likelihoods, per square root of the bytes, by which another language must
# exceed a kept one for a document, or that of its document for a passage. Danish and Norwegian
# seldom reach it, German in an English text always does.
MARGIN = 2.0
_WORDS = re.compile(r"[\W\d_]+")
SHORT = 64  # passages of fewer bytes have no second language
LANES = 8192
RESET = 0xFF  # a byte that UTF-8 never has; it resets the automaton to the first state
LEAST = -30.0  # log-probability of languages that fastText does not return


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
        """Keep only the language of at least `DOMINANT` of the documents, if there is one."""
        decided = Counter(
            {name: n for name, n in counts.items() if name not in ("", UNDECIDED, NO_LANGUAGE)}
        )
        if self.keep or not decided:
            return self, None
        name, count = decided.most_common(1)[0]
        share = count / decided.total()
        if share < DOMINANT:
            listed = ", ".join(f"{n} {c / decided.total():.0%}" for n, c in decided.most_common(5))
            remedy = f"name those to keep: --set 'language.keep=[\"{name}\"]'"
            message = "several languages, all are kept"
            return self, Finding("several-languages", message, listed, remedy)
        message = f"only documents in the language {name!r} are kept, that of {share:.1%}"
        remedy = "to keep all: --set 'language.keep=[]'"
        return replace(self, keep=(name,)), Finding("one-language", message, "", remedy)

    def check(self) -> None:
        if self.model != "py3langid" and not self._path:
            raise ConfigError(
                "an unknown model of languages",
                where="model",
                found=repr(self.model),
                wanted='"py3langid" or "fasttext:PATH"',
                do="leave it out for py3langid",
            )
        for name, is_used in (
            ("least", self.least is not None),
            ("keep_undecided", not self.keep_undecided),
        ):
            if is_used and not self.keep:
                raise self.without_effect(name, "where all languages are kept (keep = [])")
        self.check_shares("least", "most_other")
        config.require("passages", self.passages, 1)

    @property
    def _path(self) -> str:
        """The file of a fastText model; empty for py3langid and for a model of another kind."""
        prefix, _, path = self.model.partition("fasttext:")
        return "" if prefix else path.strip()

    def files(self) -> Sequence[Path]:
        return (Path(self._path),) if self._path else ()

    def open(self) -> Identifier:
        """Load the model.

        Raises:
            UsageError: it is not installed, or the file does not exist.
            DataError: the model is damaged.
            ConfigError: the model does not know a language in `keep`.
        """
        model = open_fasttext(Path(self._path)) if self._path else open_py3langid()
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

    def apply(self, batch: CurationBatch, opened: Identifier, gathered: Any = None) -> Outcome:
        languages = identify(batch.texts, opened, self.passages, self.keep)
        decided = languages.probabilities > 0
        measures, removals = [], []
        if self.keep:
            for index, code in enumerate(languages.codes):
                if code in self.keep or (self.keep_undecided and not decided[index]):
                    continue
                removals.append(Removal(index, "language", code, None, ", ".join(self.keep)))
            if self.least is not None:
                values = np.where(decided, languages.probabilities, np.nan)
                measures.append(RuleMeasure("language_probability", values, low=self.least))
        if self.most_other is not None:
            shares = languages.other_shares
            measures.append(RuleMeasure("other_language_share", shares, high=self.most_other))
        numbers = [f"{p:.4f}" if p else None for p in languages.probabilities.tolist()]
        second = [
            f"{code} {share:.2f}" if code else None
            for code, share in zip(languages.second, languages.other_shares.tolist(), strict=True)
        ]
        notes = {
            "language": languages.codes,
            "language_probability": numbers,
            "second_language": second,
        }
        return Outcome(measures=measures, removals=removals, notes=notes)


@dataclass(frozen=True)
class NaiveBayes:
    """The tables of py3langid.

    Attributes:
        languages: L language codes.
        rows: (R * 256,) int32, by row + byte, the offset of the row of the next state.
        features: (R * 256,) int32, by row + byte, the n-gram that the next state completes, or -1.
        depth: the length of the longest n-gram.
        weights: (F, L) log-probabilities of the n-grams; priors: (L,) of the languages.
    """

    languages: Sequence[str]
    rows: NDArray[np.int32]
    features: NDArray[np.int32]
    depth: int
    weights: NDArray[np.float32]
    priors: NDArray[np.float32]

    def scores(self, passages: Sequence[bytes]) -> NDArray[np.float32]:
        """Return (P, L) log-likelihoods of each passage in each language, without priors; they are
        comparable within a passage, and may be added over the passages of a text."""
        import scipy.sparse

        data = np.frombuffer(b"\xff".join(passages) + b"\xff", np.uint8)
        lengths = np.fromiter(map(len, passages), np.int64, len(passages)) + 1
        completed = self._walk(data)
        gram_ends = np.flatnonzero(completed >= 0)
        gram_counts = np.diff(np.searchsorted(gram_ends, starts_of(lengths)))
        passage_of = np.repeat(np.arange(len(passages)), gram_counts)
        # By n-gram, so that the large table of weights is read once, in order.
        bits = len(passages).bit_length()
        pairs = np.sort(completed[gram_ends].astype(np.int64) << bits | passage_of)
        begins = np.flatnonzero(is_first(pairs))
        frequencies = np.diff(np.append(begins, len(pairs))).astype(np.float32)
        pairs = pairs[begins]
        grams, rows = pairs >> bits, (pairs & ((1 << bits) - 1)).astype(np.int32)
        begins = starts_of(np.bincount(grams, minlength=len(self.weights))).astype(np.int32)
        counts = scipy.sparse.csc_matrix(
            (np.log1p(frequencies), rows, begins), (len(passages), len(self.weights))
        )
        return np.asarray(counts @ self.weights, np.float32)

    def _walk(self, data: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return (N,) the n-gram that ends at each byte, or -1, walking many lanes at once."""
        lanes = min(LANES, max(1, len(data) // 64))
        length = -(-len(data) // lanes)
        padded = np.full(lanes * length + self.depth, RESET, np.uint8)
        padded[self.depth : self.depth + len(data)] = data
        windows = np.lib.stride_tricks.sliding_window_view(padded, length + self.depth)[::length]
        columns = np.ascontiguousarray(windows.T)  # (length + depth, lanes)
        completed = np.empty((length, lanes), np.int32)
        rows, moves = np.zeros(lanes, np.int32), np.empty(lanes, np.int64)
        for step, column in enumerate(columns):
            np.add(rows, column, out=moves)
            if step >= self.depth:
                np.take(self.features, moves, out=completed[step - self.depth], mode="clip")
            np.take(self.rows, moves, out=rows, mode="clip")
        return completed.T.ravel()[: len(data)]


@functools.cache
def open_py3langid() -> NaiveBayes:
    """Load the model inside the package py3langid, once per process.

    Raises:
        UsageError: the package is not installed.
        DataError: the model has an unknown format.
    """
    langid = require_packages(
        "identifying languages",
        "py3langid.langid",
        where="language.model",
        otherwise="; or --set language.model=fasttext:PATH",
    )
    try:
        model = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        moves = np.asarray(model.tk_nextmove)
        features = np.asarray(model.tk_output, np.int32)
        rows = np.asarray(model.tk_row, np.int32) << 8
        weights, priors = model.nb_ptc.astype(np.float32), model.nb_pc.astype(np.float32)
        names = list(model.nb_classes)
        if moves.reshape(-1, 256)[:, RESET].any():
            raise ValueError("the byte 0xff does not lead to the first state")
    except OSError as error:  # it is unpacked into a temporary file
        raise refusal(error, Path(tempfile.gettempdir())) from error
    except (AttributeError, ValueError, TypeError) as error:
        raise DataError(
            "this release of py3langid keeps its model in a form that is not known",
            where="language.model",
            found=error,
            wanted="py3langid 0.4",
            do=install_command("py3langid==0.4.0"),
        ) from error
    # Tables that give the next row and n-gram with one look-up each per byte.
    next_rows, completed = rows[moves], features[moves]
    return NaiveBayes(names, next_rows, completed, _depth(moves, rows), weights, priors)


def _depth(moves: NDArray[np.uint32], rows: NDArray[np.int32]) -> int:
    """Return the largest distance of a state from the first one: the length of its memory."""
    table = moves.reshape(-1, 256)
    reached = np.zeros(len(rows), np.bool_)
    reached[0], frontier, depth = True, np.zeros(1, np.int64), 0
    while frontier.size:
        successors = np.zeros(len(rows), np.bool_)
        successors[table[np.unique(rows[frontier] >> 8)].ravel()] = True
        frontier = np.flatnonzero(successors & ~reached)
        reached[frontier] = True
        depth += bool(frontier.size)
    return depth


@dataclass(frozen=True)
class FastText:
    """A fastText model that predicts labels such as `__label__en`; as `NaiveBayes`."""

    languages: Sequence[str]
    model: Any
    priors: NDArray[np.float32]

    def scores(self, passages: Sequence[bytes]) -> NDArray[np.float32]:
        texts = [" ".join(p.decode("utf-8", "replace").split()) for p in passages]
        labels, numbers = self.model.predict(texts, k=8)
        columns = {name: column for column, name in enumerate(self.languages)}
        scores = np.full((len(texts), len(columns)), LEAST, np.float32)
        for n, (names, values) in enumerate(zip(labels, numbers, strict=True)):
            for name, value in zip(names, values, strict=True):
                scores[n, columns[_code(name)]] = np.log(max(float(value), 1e-12))
        # Probabilities do not grow with the passage; scale them like those of naive Bayes.
        return scores * np.sqrt([[max(1, len(p))] for p in passages]).astype(np.float32)


Identifier = NaiveBayes | FastText


def open_fasttext(path: Path) -> FastText:
    """Load a fastText model.

    Raises:
        UsageError: fastText is not installed, or the file does not exist.
        DataError: the file is no fastText model.
    """
    if not path.is_file():
        raise UsageError(
            "no such model",
            where="language.model",
            found=str(path),
            wanted="a file of fastText, such as lid.176.ftz",
            do="correct the path behind fasttext:",
        )
    fasttext = require_packages(
        "a model of fastText",
        "fasttext",
        where="language.model",
        otherwise="; or leave `model` out, as py3langid comes with its model",
    )
    try:
        model = fasttext.load_model(str(path))
        languages = sorted({_code(name) for name in model.get_labels()})
    except (ValueError, RuntimeError) as error:
        raise DataError(
            "not a model of fastText", where=path, found=error, do="give the .bin or .ftz file"
        ) from error
    return FastText(languages, model, np.zeros(len(languages), np.float32))


def _code(label: str) -> str:
    """Return `en` for `__label__en`, `eng` for `__label__eng_Latn`."""
    return label.removeprefix("__label__").partition("_")[0]


@dataclass(frozen=True)
class Languages:
    """The languages of B documents.

    Attributes:
        codes: B language codes, `und` or `zxx`.
        probabilities: (B,) the probability of each language; 0 for `und` and `zxx`.
        other_shares: (B,) the share of bytes in languages other than its own and preferred ones.
        second: B codes of the most frequent of these other languages, or "".
    """

    codes: Sequence[str]
    probabilities: FloatArray
    other_shares: FloatArray
    second: Sequence[str]


def identify(
    texts: Sequence[str], model: Identifier, most: int, preferred: Sequence[str] = ()
) -> Languages:
    """Identify the languages of texts, from at most `most` passages of each.

    The scores of passages are added and divided by the square root of the bytes, which calibrates
    them (the rule of py3langid); their softmax is the probability. A text that cannot be
    distinguished from one of the `preferred` languages by `MARGIN` is assigned to it.
    """
    passages, owners = passages_of(texts, most)
    sizes = np.fromiter(map(len, passages), np.int64, len(passages))
    scores = model.scores(passages)  # (P, L)
    starts = np.searchsorted(owners, np.arange(len(texts)))
    text_bytes = np.add.reduceat(sizes, starts)
    total = np.add.reduceat(scores, starts, axis=0, dtype=np.float64) + model.priors
    logits = total / np.sqrt(text_bytes)[:, None]
    names, columns, duplicates = _merged(model.languages)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    for first_column, other_column in duplicates:
        odds[:, first_column] += odds[:, other_column]
    merged = odds[:, columns]
    merged /= merged.sum(axis=1, keepdims=True)
    best = merged.argmax(axis=1)
    columns_wanted = [names.index(code) for code in preferred if code in names]
    if columns_wanted:
        nearest = np.array(columns_wanted)[merged[:, columns_wanted].argmax(axis=1)]
        rows = np.arange(len(texts))
        is_close = merged[rows, nearest] * math.exp(MARGIN) >= merged[rows, best]
        best = np.where(is_close, nearest, best)
    codes = [names[n] for n in best]
    # Rounded: the last bits depend on how many texts are computed at once.
    probabilities = merged[np.arange(len(texts)), best].round(6)
    for n, text in enumerate(texts):
        if undecided := _without_language(text):
            codes[n], probabilities[n] = undecided, 0.0

    # Find passages that are by a margin in another language.
    for first_column, other_column in duplicates:
        scores[:, first_column] = np.maximum(scores[:, first_column], scores[:, other_column])
    passage_scores = scores[:, columns]
    own_scores = passage_scores[np.arange(len(passages)), best[owners]]
    for code in preferred:
        if code in names:
            own_scores = np.maximum(own_scores, passage_scores[:, names.index(code)])
    best_columns = passage_scores.argmax(axis=1)
    excess = passage_scores.max(axis=1) - own_scores
    foreign = (excess > MARGIN * np.sqrt(sizes)) & (sizes >= SHORT) & (probabilities[owners] > 0)
    other_shares = np.add.reduceat(np.where(foreign, sizes, 0), starts) / text_bytes
    second = [""] * len(texts)
    for n in np.flatnonzero(other_shares).tolist():
        span = slice(starts[n], starts[n + 1] if n + 1 < len(texts) else len(passages))
        foreign_sizes = np.where(foreign[span], sizes[span], 0)
        by_language = np.bincount(best_columns[span], foreign_sizes, len(names))
        second[n] = names[int(by_language.argmax())]
    return Languages(codes, probabilities, other_shares, second)


def _merged(languages: Sequence[str]) -> tuple[list[str], list[int], list[tuple[int, int]]]:
    """Return the distinct languages, the first column of each, and pairs (first, further column)
    for languages with two columns, such as Serbian for its two scripts."""
    firsts: dict[str, int] = {}
    duplicates = []
    for column, name in enumerate(languages):
        if name in firsts:
            duplicates.append((firsts[name], column))
        else:
            firsts[name] = column
    return list(firsts), list(firsts.values()), duplicates


def _without_language(text: str) -> str:
    """Return `zxx` for a text without letters, `und` for one with too few, "" for others."""
    beginning = text[: 2 * LEAST_LETTERS]
    if len(_WORDS.sub("", beginning)) >= LEAST_LETTERS and beginning.isascii():
        return ""
    letters = "".join(filter(str.isalpha, beginning))
    if len(letters.encode("utf-8", "replace")) < LEAST_LETTERS:
        letters = "".join(filter(str.isalpha, text))
    if len(letters.encode("utf-8", "replace")) >= LEAST_LETTERS:
        return ""
    return UNDECIDED if letters else NO_LANGUAGE
