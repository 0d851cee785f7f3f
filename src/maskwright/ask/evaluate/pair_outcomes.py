"""Minimal pairs: which of two sentences that differ in one point of grammar is more likely?

A folder contains one JSON Lines file for each paradigm, with the fields `sentence_good` and
`sentence_bad` (BLiMP, Warstadt et al. 2020, doi 10.1162/tacl_a_00321; 67 paradigms of 1,000 pairs,
or a subset). The outcome of a pair is 1 if the good sentence has the higher score, 0 if the bad one
has, and 0.5 if they tie, that is, differ by less than float32 can resolve.
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
# Relative precision of a sum of some ten float32 terms.
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
    """The outcome of each pair (1, 0 or 0.5), as an array for each paradigm."""

    outcomes: dict[str, NDArray[np.float64]]

    @property
    def accuracies(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self.outcomes.items()}

    @property
    def mean(self) -> float:
        """The unweighted mean over paradigms."""
        return intervals.mean(self._strata)

    @cached_property
    def bootstrap(self) -> Interval | None:
        """95 % bootstrap interval of the mean within paradigms; None where it cannot be
        estimated."""
        return intervals.bootstrap(self._strata)

    @property
    def normal(self) -> Interval | None:
        """95 % interval of the mean by normal approximation; None as for `bootstrap`."""
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
    """Read the paradigms of a folder of `.jsonl` files (also `.gz`, `.zst`), or of one such file.

    Raises:
        UsageError: no such path, a folder without such a file, or a file of another format.
        DataError: a row without two sentences; the message has file, line and field.
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
    if unreadable := [file for file in files if file.is_file() and ".jsonl" not in file.suffixes]:
        raise UsageError(
            "not minimal pairs",
            where=unreadable[0],
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
    """Select a part of the pairs: for model selection ("choosing": floor(share × pairs) of each
    paradigm, by a fixed random permutation), for reporting ("reporting": the others), or "all".

    Raises:
        UsageError: an unknown part.  DataError: a paradigm without a pair in this part.
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
        is_selected = (order < int(share * count)) == (part_name == "choosing")
        pair_indices = np.flatnonzero(is_selected).tolist()
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
    """Evaluate which sentence of each pair gets the higher score; all are scored in one call.

    Raises:
        DataError: a score is not finite.
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
    """Return 1 where `good` is larger, 0 where `bad` is, 0.5 where they tie."""
    tie = np.abs(good - bad) <= TIE * np.maximum(np.abs(good), np.abs(bad))
    return np.where(tie, 0.5, good > bad).astype(np.float64)


def baselines(tokenizer: Tokenizer, counts: NDArray[np.integer] | None) -> Mapping[str, Score]:
    """Return scoring functions without a model, by name: constant, by length, and by unigram
    frequencies unless `counts` (V,) is None."""

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
    """Return the SHA-256 of the pairs."""
    return fingerprint([[p.name, list(p.good), list(p.bad)] for p in paradigms])
