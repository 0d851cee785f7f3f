"""Minimal pairs: of two sentences that differ in one point of grammar, which one is likelier?

A folder holds one file of JSON Lines for each paradigm, with the fields `sentence_good` and
`sentence_bad` (BLiMP, Warstadt et al. 2020, doi 10.1162/tacl_a_00321; 67 paradigms of 1,000 pairs,
or any part of them). A pair counts 1 when the good sentence has the higher score, 0 when the bad
one has, and one half when the scores tie, so that a model that says nothing gets one half. Scores
tie when they differ by less than float32 can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import DataError, UsageError, near
from maskwright.base.metrics import seeds as intervals
from maskwright.base.metrics.intervals import wilson
from maskwright.base.metrics.seeds import Interval
from maskwright.base.randomness import key, permute
from maskwright.base.terminal import shell_word
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tokenizer.tokenizer import Tokenizer

FIELDS = ("sentence_good", "sentence_bad")
# Sums of some ten float32 terms are right to about this share of their size.
TIE = 1e-6
PARTS = ("all", "choosing", "reporting")
CHOOSING = 0.1
SPLIT_SEED = 0
Score = Callable[[Sequence[str]], NDArray[np.float64]]


@dataclass(frozen=True)
class Paradigm:
    """The pairs of one grammatical phenomenon; good[i] and bad[i] belong together."""

    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


@dataclass(frozen=True)
class PairEvaluation:
    """The outcome of each pair, by paradigm: 1, 0 or one half."""

    outcomes: dict[str, NDArray[np.float64]]

    @property
    def accuracies(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self.outcomes.items()}

    @property
    def mean(self) -> float:
        """The mean over paradigms, each counted once."""
        return intervals.mean(self._strata)

    @cached_property
    def bootstrap(self) -> Interval | None:
        """95 % bootstrap interval of the mean within paradigms; None where it cannot be
        estimated."""
        return intervals.bootstrap(self._strata)

    @property
    def normal(self) -> Interval | None:
        """95 % interval of the mean by the normal distribution; None as for `bootstrap`."""
        interval = intervals.normal(self._strata)
        return interval and (max(0.0, interval[0]), min(1.0, interval[1]))

    def interval(self, name: str) -> Interval:
        """95 % interval of one paradigm's accuracy, by Wilson's score."""
        return wilson(float(self.outcomes[name].mean()), len(self.outcomes[name]))

    def ties(self, name: str) -> int:
        return int((self.outcomes[name] == 0.5).sum())

    @property
    def _strata(self) -> list[NDArray[np.float64]]:
        return list(self.outcomes.values())


def read(path: Path | str) -> list[Paradigm]:
    """The paradigms in a folder of `.jsonl` files (also `.gz`, `.zst`), or in one such file.

    Raises:
        UsageError: no such path, a folder without such a file, or a file of another kind.
        DataError: a row without two sentences; the message names file, line and field.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = [p for p in sorted(path.iterdir()) if ".jsonl" in p.suffixes]
    if not files:
        raise UsageError(
            "the folder has no minimal pairs",
            where=path,
            wanted="a .jsonl file for each paradigm",
        )
    if other := [file for file in files if file.is_file() and ".jsonl" not in file.suffixes]:
        raise UsageError(
            "not minimal pairs",
            where=other[0],
            found="a file of another kind",
            wanted=f"a .jsonl file with {' and '.join(FIELDS)}",
            do="labelled rows tell how good a fine-tuned model is: first "
            f"maskwright finetune MODEL --data {shell_word(path)}",
        )
    paradigms = [_paradigm(file) for file in files]
    names = [paradigm.name for paradigm in paradigms]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(
            "two files of one paradigm",
            where=path,
            found=twice[0],
            wanted="a file for each",
            do="take one of them away",
        )
    return paradigms


def _paradigm(file: Path) -> Paradigm:
    good, bad = ({d.id: d.text for d in Reader(file, ReadingOptions(column=c))} for c in FIELDS)
    unpaired_ids = good.keys() ^ bad.keys()
    if unpaired_ids:
        raise DataError(
            "a pair with one empty sentence", where=min(unpaired_ids), wanted=" and ".join(FIELDS)
        )
    return Paradigm(file.name.split(".jsonl")[0], tuple(good.values()), tuple(bad.values()))


def part(paradigms: Sequence[Paradigm], part_name: str, share: float = CHOOSING) -> list[Paradigm]:
    """The pairs to choose by ("choosing": exactly floor(share × pairs) of each paradigm, drawn by
    key), those to report on ("reporting": the others), or "all".

    Raises:
        UsageError: no such part.  DataError: a paradigm with no pair in it.
    """
    if part_name not in PARTS:
        raise UsageError(
            "no such part of the pairs", found=repr(part_name), wanted=near(part_name, PARTS)
        )
    if part_name == "all":
        return list(paradigms)
    chosen = []
    for p in paradigms:
        count = len(p.good)
        order = permute(key("split", SPLIT_SEED), count, np.arange(count))
        drawn = (order < int(share * count)) == (part_name == "choosing")
        pair_indices = np.flatnonzero(drawn).tolist()
        if not pair_indices:
            raise DataError(
                "a paradigm has no pair in this part",
                where=p.name,
                found=f"{count} pairs",
                do="use all of them",
            )
        good, bad = (tuple(side[i] for i in pair_indices) for side in (p.good, p.bad))
        chosen.append(Paradigm(p.name, good, bad))
    return chosen


def judge(paradigms: Sequence[Paradigm], score: Score) -> PairEvaluation:
    """Which sentence of each pair `score` prefers; all sentences are scored in one call.

    Raises:
        DataError: a score is not a finite number.
    """
    sentences = [s for p in paradigms for s in (*p.good, *p.bad)]
    sentence_scores = score(sentences)
    if not np.isfinite(sentence_scores).all():
        index = int(np.flatnonzero(~np.isfinite(sentence_scores))[0])
        raise DataError(
            "the score of a sentence is not a finite number",
            where=sentences[index][:60],
            found=sentence_scores[index],
        )
    outcomes_by_paradigm, start = {}, 0
    for p in paradigms:
        good, bad = sentence_scores[start:][: 2 * len(p.good)].reshape(2, -1)
        outcomes_by_paradigm[p.name] = outcomes(good, bad)
        start += 2 * len(p.good)
    return PairEvaluation(outcomes_by_paradigm)


def outcomes(good: NDArray[np.float64], bad: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where `good` is larger, 0 where `bad` is, one half where they tie."""
    tie = np.abs(good - bad) <= TIE * np.maximum(np.abs(good), np.abs(bad))
    return np.where(tie, 0.5, good > bad).astype(np.float64)


def difference(ours: PairEvaluation, theirs: PairEvaluation) -> tuple[float, Interval | None]:
    """Our mean minus theirs, and its 95 % bootstrap interval, paired over items; None for that
    where items do not say it, as for `PairEvaluation.bootstrap`.

    Raises:
        DataError: the results are of other pairs.
    """
    shapes = [{name: len(v) for name, v in r.outcomes.items()} for r in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise DataError("the results are not of the same pairs", found=shapes[0], wanted=shapes[1])
    gaps = [ours.outcomes[name] - theirs.outcomes[name] for name in ours.outcomes]
    return intervals.mean(gaps), intervals.bootstrap(gaps)


def baselines(tokenizer: Tokenizer, counts: NDArray[np.integer] | None) -> Mapping[str, Score]:
    """Scores without a model: constant, by length, and by unigram frequencies if `counts` (V,) is
    known."""

    def shorter(sentences: Sequence[str]) -> NDArray[np.float64]:
        return -np.array([len(ids) for ids in tokenizer.encode_batch(sentences)], dtype=np.float64)

    score_functions: dict[str, Score] = {
        "constant": lambda texts: np.zeros(len(texts)),
        "length": shorter,
    }
    if counts is not None:
        logs = np.log((counts + 1) / (counts.sum() + len(counts)))
        score_functions["unigram"] = lambda texts: np.array(
            [float(logs[ids].sum()) for ids in tokenizer.encode_batch(texts)]
        )
    return score_functions


def identity(paradigms: Sequence[Paradigm]) -> str:
    """SHA-256 of the pairs: equal exactly when the questions are."""
    return fingerprint([[p.name, list(p.good), list(p.bad)] for p in paradigms])
