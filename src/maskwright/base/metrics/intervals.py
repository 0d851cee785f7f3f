"""Metrics with 95 % intervals, and the resamples of rows that these need.

Accuracy has Wilson's interval, other metrics the percentiles of the bootstrap, whose rows are drawn
by keys (`randomness.py`). The interval is unknown if a metric has the same value in all resamples,
or is undefined in some, as a correlation on few rows. An interval of a correlation contains 0
unless a permutation test rejects that labels and predictions are independent; percentiles alone
would exclude 0 too often on few rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.base.metrics.metrics import (
    Metric,
    Values,
    accuracy,
    check_arrays,
    macro_f1,
    matthews,
    micro_f1,
    pearson,
    spearman,
    squared_error,
)
from maskwright.base.randomness import integers, key, uniforms
from maskwright.base.terminal import decimals

# ------------------------------------------------------------------------------ resampling
SEED = 20_260_000
AT_ONCE = 1_000_000  # numbers in a chunk of resamples
TINY = 1e-300
# Vectorised metrics: of one class, of several labels, and of one number for each row.
OF_CLASSES = (accuracy, macro_f1, matthews)
OF_LABELS = (accuracy, macro_f1, micro_f1)
OF_NUMBERS = (pearson, spearman, squared_error)
# (R, rows) indices of R resamples -> (R,) values of a metric.
OfResamples = Callable[[NDArray[np.int64]], NDArray[np.float64]]
# (R, K) sums over the rows of R resamples -> (R,) values
OfSums = Callable[[NDArray[Any]], NDArray[Any]]


def of_rows(metric: Metric, truth: Values, predicted: Values) -> tuple[int, OfResamples]:
    """Return (numbers in memory for each index, the metric of (R, rows) indices of rows)."""
    if truth.ndim > 1 and truth.shape[1] > 1 and metric in OF_LABELS:
        return 1, _of_labels(metric, truth, predicted)
    if truth.ndim == 1 and metric in OF_NUMBERS:
        sides = truth.astype(np.float64), predicted.astype(np.float64)
        return 1, partial(_of_numbers, metric, *sides)
    if truth.ndim == 1 and truth.dtype.kind == "i" and metric in OF_CLASSES:
        return _of_classes(metric, truth, predicted)
    return 1, lambda indices: np.array([metric(truth[i], predicted[i]) for i in indices])


def _of_classes(metric: Metric, truth: Values, predicted: Values) -> tuple[int, OfResamples]:
    """A metric of one class for each row, from confusion matrices; before it the numbers that a
    matrix has for each row."""
    names, cells = np.unique(np.stack([truth, predicted]), return_inverse=True)
    size = len(names)
    pairs = cells.reshape(2, -1)[0] * size + cells.reshape(2, -1)[1]
    return (
        -(-(size**2) // len(truth)),
        lambda indices: of_counts(
            _counts(pairs[indices], size**2).reshape(-1, size, size), names >= 0
        )[metric],
    )


def of_counts(
    counts: NDArray[np.int64], is_class: NDArray[np.bool_] | Literal[True] = True
) -> dict[Metric, NDArray[np.float64]]:
    """Return accuracy, macro F1 and Matthews' correlation of confusion matrices (R, C, C) whose
    rows are true classes. Answers that are no class are False in `is_class` (C,).

    The values are those of metrics.py; scikit-learn would take seconds for a thousand resamples.
    """
    right = np.diagonal(counts, axis1=1, axis2=2).astype(np.float64)  # (R, C)
    true, predictions = counts.sum(axis=2), counts.sum(axis=1)
    total = true.sum(axis=1).astype(np.float64)
    occurring = ((true + predictions) > 0) & is_class
    f1 = 2 * right / np.maximum(1, true + predictions)
    spread = (total**2 - (true**2).sum(axis=1)) * (total**2 - (predictions**2).sum(axis=1))
    agreed = right.sum(axis=1) * total - (true * predictions).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(spread > 0, agreed / np.sqrt(spread), np.nan)
    return {
        accuracy: right.sum(axis=1) / total,
        macro_f1: (f1 * occurring).sum(axis=1) / occurring.sum(axis=1),
        matthews: correlation,
    }


def _of_labels(metric: Metric, truth: Values, predicted: Values) -> OfResamples:
    """A metric of several labels (N, C), from weighted sums over the rows."""
    rows, size = truth.shape
    right = (truth == predicted).all(1, keepdims=True)
    statistics = np.concatenate([truth * predicted, truth + predicted, right], axis=1)
    statistics = statistics.astype(np.float64)

    def of(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        sums = _counts(indices, rows) @ statistics  # (R, 2C + 1)
        hits, totals = sums[:, :size], sums[:, size : 2 * size]
        if metric is accuracy:
            return np.asarray(sums[:, -1] / indices.shape[1])
        if metric is micro_f1:
            return np.asarray(2 * hits.sum(1) / np.maximum(1, totals.sum(1)))
        occurring = np.maximum(1, (totals > 0).sum(1))
        return np.asarray((2 * hits / np.maximum(1, totals)).sum(1) / occurring)

    return of


def of_sums(statistic: OfSums, counts: NDArray[Any]) -> tuple[int, OfResamples]:
    """As `of_rows`, for a function of the sums over the rows of `counts` (N, K)."""
    return counts.shape[1], lambda indices: statistic(counts[indices].sum(1)).astype(float)


def _of_numbers(
    metric: Metric, truth: Values, predicted: Values, indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A metric of one number for each row."""
    sides = truth[indices], predicted[indices]  # (R, N)
    if metric is squared_error:
        return np.asarray(np.square(sides[0] - sides[1]).mean(1))
    if metric is spearman:
        sides = tuple(scipy.stats.rankdata(side, axis=1) for side in sides)
    return _correlations(*sides)


def _correlations(true: Values, predictions: Values) -> NDArray[np.float64]:
    """Return (R,) Pearson's correlation of the rows of two tables; NaN where one is constant."""
    constant = (true == true[:, :1]).all(1) | (predictions == predictions[:, :1]).all(1)
    sides = []
    for side in (true, predictions):
        apart = side - side.mean(1, keepdims=True)
        sides.append(apart / np.maximum(TINY, np.abs(apart).max(1, keepdims=True)))
    lengths = np.sqrt(np.square(sides[0]).sum(1) * np.square(sides[1]).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(constant, np.nan, (sides[0] * sides[1]).sum(1) / lengths)


def resample_indices(rows: int, resamples: int, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """Yield (R, rows) indices drawn with replacement, a row for each resample, in chunks for which
    tables of `width` numbers for each index stay small."""
    at_once = max(1, AT_ONCE // (rows * max(1, width)))
    for begin in range(0, resamples, at_once):
        numbers = np.arange(begin, min(resamples, begin + at_once))
        yield integers(key("bootstrap", SEED, numbers), rows, rows)


def p_of_draws(
    value: float,
    values_of: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    rows: int,
    resamples: int,
    *purpose: int,
    width: int = 1,
) -> float:
    """Return the two-sided p of `value`: how many values are as far from 0, or not defined.

    Args:
        values_of: (R, rows) keyed uniform numbers -> (R,) values where there is no effect.
        purpose: distinguishes the numbers of different tests.
    """
    drawn = []
    for chunk in np.array_split(np.arange(resamples), -(-resamples * rows * width // AT_ONCE)):
        drawn.append(values_of(uniforms(key("bootstrap", SEED, *purpose, chunk), rows)))
    values = np.concatenate(drawn)
    at_least = (np.abs(values) >= abs(value) - 1e-12) | np.isnan(values)
    return (1 + int(at_least.sum())) / (1 + resamples)


def permutation_p(metric: Metric, truth: Values, predicted: Values, resamples: int) -> float:
    """Return the two-sided p of a permutation test that labels and predictions are independent,
    for a correlation of one class or one number per row (`matthews`, `pearson`, `spearman`)."""
    _, labels = np.unique(truth, return_inverse=True)
    _, answers = np.unique(predicted, return_inverse=True)
    size = max(labels.max(), answers.max()) + 1
    sides = truth.astype(float), predicted.astype(float)
    if metric is spearman:
        sides = scipy.stats.rankdata(sides[0]), scipy.stats.rankdata(sides[1])

    def of_permuted(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        order = numbers.argsort(1)
        if metric is not matthews:
            return _correlations(np.broadcast_to(sides[0], order.shape), sides[1][order])
        counts = _counts(labels * size + answers[order], size**2).reshape(-1, size, size)
        return of_counts(counts)[matthews]

    return p_of_draws(metric(truth, predicted), of_permuted, len(truth), resamples)


def _counts(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return (R, size) counts of the numbers below `size` in each row of `values`."""
    begins = np.arange(len(values))[:, None] * size
    return np.bincount((values + begins).ravel(), minlength=len(values) * size).reshape(-1, size)


# ------------------------------------------------------------------------------ intervals
LEVEL = 0.95
RESAMPLES = 1000
ROUNDING = 1e-12  # relative; a correlation of 1 varies in its last bits
DEFINED = 0.99  # least share of resamples with a defined value
CORRELATIONS = (matthews, pearson, spearman)


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; NaN if not defined, for example for equal rows."""

    value: float
    low: float
    high: float

    def render(self) -> str:
        """Return value and interval as text; a dash if the value is not defined."""
        if not math.isfinite(self.value):
            return "–"
        if not math.isfinite(self.low):
            return decimals(self.value)
        return f"{decimals(self.value)} ({decimals(self.low)} to {decimals(self.high)})"

    def to_json(self) -> dict[str, float | None]:
        """Return the three numbers; None where one is not defined."""
        return {name: n if math.isfinite(n) else None for name, n in vars(self).items()}

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference to a value of other, independent rows, with an interval from both
        intervals (MOVER; Zou & Donner 2008, doi 10.1002/sim.3095)."""
        value = self.value - other.value
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        return Estimate(value, value - below, value + above)


def estimate(
    metric: Metric, truth: Values, predicted: Values, *, resamples: int = RESAMPLES
) -> Estimate:
    """Return a metric with its 95 % interval, from keyed resamples of the rows.

    Raises:
        DataError: no rows, or not the same number.
    """
    truth, predicted = check_arrays(truth, predicted)
    value = metric(truth, predicted)
    if metric is accuracy:
        return Estimate(value, *wilson(value, len(truth)))
    low, high = interval_of_rows(*of_rows(metric, truth, predicted), len(truth), resamples)
    excludes_0 = metric in CORRELATIONS and (low > 0 or high < 0)
    if excludes_0 and permutation_p(metric, truth, predicted, RESAMPLES) > 1 - LEVEL:
        low, high = min(low, 0.0), max(high, 0.0)
    return Estimate(value, low, high)


def estimate_of_sums(
    statistic: OfSums, counts: NDArray[Any], *, resamples: int = RESAMPLES
) -> Estimate:
    """Return a function of the sums over the rows of `counts` (N, K), such as the F1 of entities or
    a mean, with its 95 % interval from keyed resamples of the rows.

    Raises:
        DataError: no rows.
    """
    if not len(counts):
        raise DataError("there is nothing to compare", found="0 rows", wanted="at least one")
    value = float(statistic(counts.sum(0, keepdims=True))[0])
    return Estimate(value, *interval_of_rows(*of_sums(statistic, counts), len(counts), resamples))


def wilson(share: float, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval (1927) of a share, which has a width even if all rows are
    right. The rows may also count as halves."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    denominator = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / denominator
    half = z / denominator * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    # Exact at 0 and 1, where rounding would leave 1e-17.
    return (0.0 if share == 0 else middle - half), (1.0 if share == 1 else middle + half)


def interval_of_rows(
    width: int, of: OfResamples, rows: int, resamples: int, level: float = LEVEL
) -> tuple[float, float]:
    """Return the percentiles of a metric over resamples of the rows; NaN if they are equal, which
    says nothing of other rows. `width` and `of` are what `of_rows` returns."""
    drawn = np.concatenate([of(indices) for indices in resample_indices(rows, resamples, width)])
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < max(1, DEFINED * len(drawn)):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]).tolist()
    alike = high - low <= ROUNDING * max(abs(low), abs(high))
    return (math.nan, math.nan) if alike else (low, high)
