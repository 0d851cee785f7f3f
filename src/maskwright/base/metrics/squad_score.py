"""Exact match and F1 of answers, as SQuAD scores them (Rajpurkar et al. 2016, 2018).

Both texts are lowercased, stripped of ASCII punctuation and of the words a, an, the, and split at
white space, in this order. Exact match compares the results; F1 is that of the two bags of words.
The best of several gold answers counts. The gold answer of a question without any, or with none
left after this, is the empty text; if one of two texts is empty, both scores are 1 if the other is
too, else 0.

Scores are from 0 to 1.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Return the normalised text that is compared."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact(prediction: str, gold: str) -> float:
    """Return 1 if both texts are equal after `normalise`, else 0."""
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str) -> float:
    """Return the F1 of the bags of words after `normalise`."""
    return words_f1(normalise(prediction).split(), normalise(gold).split())


def words_f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Return the F1 of two bags of words: 1 if both are empty, 0 if one is."""
    if not prediction or not gold:
        return float(len(prediction) == len(gold))
    shared = (Counter(prediction) & Counter(gold)).total()
    return 2 * shared / (len(prediction) + len(gold))


def best(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Return (exact match, F1), each for the best of the gold answers."""
    answers = real(golds)
    return max(exact(prediction, g) for g in answers), max(f1(prediction, g) for g in answers)


def real(golds: Sequence[str]) -> list[str]:
    """Return the gold answers that are not empty after `normalise`, else the empty text."""
    return [gold for gold in golds if normalise(gold)] or [""]


def balanced(with_answer: NDArray[Any], without: NDArray[Any]) -> NDArray[np.float64]:
    """Return the harmonic mean of the scores of questions with and without an answer, elementwise:
    0 if either is 0, as for a model that never or always answers."""
    total = np.asarray(with_answer + without, np.float64)
    return np.divide(2 * with_answer * without, total, out=np.zeros_like(total), where=total > 0)


# ------------------------------------------------------------------------------ no answer
def best_threshold(
    differences: NDArray[np.floating],
    answered: NDArray[np.floating],
    no_answer: NDArray[np.floating],
    has: NDArray[np.bool_] | None = None,
) -> tuple[float, float]:
    """Return the threshold above which "no answer" should be predicted, and its mean score.

    Of equally good thresholds the lowest is taken. Choose it on data that is not reported on.

    Args:
        differences: (Q,) null score minus the best answer's score.
        answered: (Q,) the score of the best answer.
        no_answer: (Q,) the score of "no answer".
        has: (Q,) whether the question has an answer; then the `balanced` mean is maximised. None:
            the mean over all questions is.
    Raises:
        DataError: no questions, or a difference that is no number.
    """
    if not len(differences) or np.isnan(differences).any():
        raise DataError(
            "a threshold needs questions, each with a null score difference",
            found=f"{len(differences)} questions",
        )
    order = np.argsort(differences, kind="stable")
    rising = np.asarray(differences, np.float64)[order]
    answered_score, silent = (
        np.asarray(scores, np.float64)[order] for scores in (answered, no_answer)
    )

    def means(among: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return (Q + 1,) mean scores of the questions `among` if the first k are answered."""
        gains = np.where(among, answered_score - silent, 0.0)
        sums = silent[among].sum() + np.concatenate([[0.0], np.cumsum(gains)])
        return np.asarray(sums / max(1, among.sum()))

    if has is None:
        total = means(np.ones(len(rising), bool))
    else:
        total = balanced(means(has[order]), means(~has[order]))
    # A cut must not part equal differences.
    allowed = np.concatenate([[True], rising[1:] > rising[:-1], [True]])
    cut = int(np.argmax(np.where(allowed, total, -np.inf)))
    return float(rising[cut - 1]) if cut else -math.inf, float(total[cut])
