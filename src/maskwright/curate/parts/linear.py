"""A linear classifier of texts: hashed words, pairs of words and characters, weighed by TF-IDF.

The features of a text are its words, its pairs of words, and its sequences of `SIZE` characters,
without regard to case, each hashed to one of 2**18 places (Weinberger et al. 2009). A feature
counts by its share of the text's features of its sort, times its inverse document frequency in the
examples; logistic regression weighs them. As a text's score is then a mean of weights, many texts
are scored with one look into a table for each feature, in whole numbers, so that cuts and order do
not matter to the last bit. Its probability is calibrated on examples that the classifier had not
learned from (Platt 1999).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.draw import hashes
from maskwright.curate.parts.words import BASE, mix

BITS = 18
SIZE = 4  # characters of a sequence
FOLDS = 5
SCALE = 10.0  # features are shares; this brings their sums near 1
STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularisation, chosen by cross-validation
# The dual problem: there are fewer examples than features.
SOLVER: dict[str, Any] = dict(solver="liblinear", dual=True, random_state=0, tol=0.01)
FIXED = 1 << 24  # weights as whole numbers


@dataclass(frozen=True)
class Features:
    """Features of B texts, sort by sort: (F,) places, and (B + 1,) where each text's begin."""

    sorts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]


@dataclass(frozen=True)
class Linear:
    """What was learned.

    Attributes:
        weights: (2**18,) int64, in units of 2**-24.
        bias: of the decision.
        slope, shift: the probability is that of the logistic function at slope * decision + shift.
    """

    weights: NDArray[np.int64]
    bias: float
    slope: float
    shift: float

    def probabilities(self, features: Features) -> NDArray[np.float64]:
        """(B,) of the class of good texts, in six decimals."""
        decisions = np.zeros(len(features.sorts[0][1]) - 1)
        for places, starts in features.sorts:
            sums = np.concatenate([[0], np.cumsum(self.weights[places])])
            counts = np.maximum(np.diff(starts), 1)
            decisions += (sums[starts[1:]] - sums[starts[:-1]]) / counts * (SCALE / FIXED)
        return _logistic(self.slope * (decisions + self.bias) + self.shift).round(6)


@dataclass(frozen=True)
class Trial:
    """How the classifier did on examples that it had not learned from.

    Attributes:
        accuracy: the share that was right.
        usual: the share of the more frequent class.
        area: under the ROC curve: 0.5 for chance.
        chance: the probability of an area as large by chance.
    """

    accuracy: float
    usual: float
    area: float
    chance: float


def features_of(batch: Batch) -> Features:
    """The features of the texts of a batch."""
    words, characters = batch.words, batch.characters
    pairs, pair_starts = words.shingles(2)
    folded = characters.points.astype(np.uint64)
    capitals = (folded >= 65) & (folded <= 90)
    folded += capitals.astype(np.uint64) * np.uint64(32)
    count = max(0, len(folded) - SIZE + 1)
    sequence = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for place in range(SIZE):
            sequence = sequence * BASE + folded[place : place + count]
    # A text's last sequence holds its line end; those that reach into the next text are left out.
    whole = np.ones(count, np.bool_)
    for back in range(1, SIZE):
        over = characters.offsets[1:] - back
        whole[over[over < count]] = False
    lengths = np.maximum(np.diff(characters.offsets) - SIZE + 1, 0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return Features(
        (
            (_places(words.hashes), words.starts),
            (_places(pairs), pair_starts),
            (_places(mix(sequence[whole] + BASE)), starts),
        )
    )


def _places(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (numbers >> np.uint64(64 - BITS)).astype(np.int64)


def learned(batch: Batch, good: NDArray[np.bool_]) -> tuple[Linear, Trial]:
    """A classifier of examples, and how it does on those that it has not learned from.

    Args:
        batch: the texts; equal ones are in one fold.
        good: (B,) the class of each.
    """
    from scipy.stats import mannwhitneyu
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # The same in any order of the examples.
    keys = hashes(batch.texts)
    order = np.lexsort((good, keys))
    batch, good, keys = _taken(batch, order), good[order], keys[order]
    shares = _matrix(features_of(batch))
    seen = np.asarray((shares > 0).sum(axis=0)).ravel()
    rarity = np.log((1 + len(good)) / (1 + seen)) + 1
    used = np.flatnonzero(seen)
    matrix = shares.multiply(rarity[None, :]).tocsr()[:, used]
    folds = _folds(keys, good)

    def fit(strength: float, chosen: NDArray[np.bool_]) -> Any:
        # Examples without a pattern do not converge; the trial shows that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LogisticRegression(C=strength, **SOLVER).fit(matrix[chosen], good[chosen])

    best: tuple[float, float, NDArray[np.float64]] | None = None
    for strength in STRENGTHS:
        decisions = np.zeros(len(good))
        for fold in range(FOLDS):
            here = folds == fold
            decisions[here] = fit(strength, ~here).decision_function(matrix[here])
        area = float(mannwhitneyu(decisions[good], decisions[~good]).statistic)
        if best is None or area > best[0]:
            best = (area, strength, decisions)
    assert best is not None
    _, strength, decisions = best
    slope, shift = _calibrated(decisions, good)
    fitted = fit(strength, np.ones(len(good), np.bool_))
    weights = np.zeros(1 << BITS, np.int64)
    weights[used] = np.rint(fitted.coef_[0] * rarity[used] * FIXED).astype(np.int64)
    linear = Linear(weights, float(fitted.intercept_[0]), slope, shift)
    test = mannwhitneyu(decisions[good], decisions[~good], alternative="greater")
    guessed = _logistic(linear.slope * decisions + linear.shift) > 0.5
    share = float(good.mean())
    trial = Trial(
        float((guessed == good).mean()),
        max(share, 1 - share),
        float(test.statistic) / (good.sum() * (~good).sum()),
        float(test.pvalue),
    )
    return linear, trial


def _calibrated(decisions: NDArray[np.float64], good: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and shift of the logistic function; an example counts a little for the other class,
    too, as it does where one sees only so many (Platt 1999, section 2.2)."""
    from sklearn.linear_model import LogisticRegression

    ones, zeros = good.sum(), (~good).sum()
    target = np.where(good, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    fitted = LogisticRegression(C=1e6).fit(
        np.concatenate([decisions, decisions])[:, None],
        np.repeat([True, False], len(good)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def _logistic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -50, 50))))


def _taken(batch: Batch, order: NDArray[np.int64]) -> Batch:
    places = order.tolist()
    return Batch(
        np.arange(len(places)), [batch.ids[n] for n in places], [batch.texts[n] for n in places]
    )


def _matrix(features: Features) -> Any:
    """(B, 2**18) the share of each feature in the text's features of its sort, times `SCALE`."""
    import scipy.sparse

    total: Any = 0
    for places, starts in features.sorts:
        counts = np.diff(starts)
        part = scipy.sparse.csr_matrix(
            (np.repeat(SCALE / np.maximum(counts, 1), counts), places, starts),
            (len(counts), 1 << BITS),
        )
        part.sum_duplicates()
        total = part if isinstance(total, int) else total + part
    return total


def _folds(keys: NDArray[np.uint64], good: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(B,) a fold of each example: every class evenly, equal texts together."""
    folds = np.zeros(len(keys), np.int64)
    for part in (good, ~good):
        _, ranks = np.unique(keys[part], return_inverse=True)
        folds[part] = ranks % FOLDS
    return folds
