"""Metrics with 95 % intervals.

Accuracy has Wilson's interval, other metrics the percentiles of the bootstrap. The interval is
unknown if a metric has the same value in all resamples, or is undefined in some, as a correlation
on few rows. An interval of a correlation contains 0 unless a permutation test rejects that labels
and predictions are independent; percentiles alone would exclude 0 too often on few rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import decimals
from maskwright.base.errors import DataError, UsageError, near
from maskwright.base.metrics.bootstrap import by_resample, permutation_p, resample_indices
from maskwright.base.metrics.metrics import (
    METRICS,
    Metric,
    Values,
    accuracy,
    check_arrays,
    matthews,
    pearson,
    spearman,
)

LEVEL = 0.95
RESAMPLES = 1000
ROUNDING = 1e-12  # relative; a correlation of 1 varies in its last bits
DEFINED = 0.99  # least share of resamples with a defined value
CORRELATIONS = (matthews, pearson, spearman)
# (R, K) sums over the rows of R resamples -> (R,) values
OfSums = Callable[[NDArray[Any]], NDArray[Any]]


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


def estimates(
    names: Sequence[str], truth: Values, predicted: Values, *, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Return the named metrics, each with its 95 % interval.

    Raises:
        UsageError: a name that is not in `METRICS`.  DataError: no rows, or not the same number.
    """
    for name in names:
        if name not in METRICS:
            raise UsageError("no such metric here", found=repr(name), wanted=near(name, METRICS))
    truth, predicted = check_arrays(truth, predicted)
    drawn = by_resample([METRICS[name] for name in names], truth, predicted, resamples)
    return {
        name: _estimate(METRICS[name], truth, predicted, drawn[METRICS[name]], LEVEL)
        for name in names
    }


def estimate(
    metric: Metric,
    truth: Values,
    predicted: Values,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return a metric with its percentiles over keyed resamples of the rows.

    Raises:
        DataError: no rows, or not the same number.
    """
    truth, predicted = check_arrays(truth, predicted)
    drawn = by_resample([metric], truth, predicted, resamples)[metric]
    return _estimate(metric, truth, predicted, drawn, level)


def estimate_of_sums(
    figure: OfSums, counts: NDArray[Any], *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Estimate:
    """Return a function of the sums over the rows of `counts` (N, K), such as an F1 of entities or
    a mean, with its percentiles over keyed resamples of the rows.

    Raises:
        DataError: no rows.
    """
    if not len(counts):
        raise DataError("there is nothing to compare", found="0 rows", wanted="at least one")
    drawn = np.concatenate(
        [
            counts[indices].sum(1)
            for indices in resample_indices(len(counts), resamples, counts.shape[1])
        ]
    )
    totals = counts.sum(0, keepdims=True)
    interval = interval_of_resamples(figure(drawn).astype(float), level)
    return Estimate(float(figure(totals)[0]), *interval)


def estimates_of_means(names: Sequence[str], scores: NDArray[Any]) -> dict[str, Estimate]:
    """Return the means of the columns of `scores` (N, K), by name, with their intervals.

    Raises:
        DataError: no rows.
    """
    return {
        name: estimate_of_sums(lambda sums: sums[:, 0] / len(scores), scores[:, [column]])
        for column, name in enumerate(names)
    }


def wilson(share: float, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval (1927) of a share, which has a width even if all rows are
    right. The rows may also count as halves."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    denominator = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / denominator
    half = z / denominator * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    # Exact at 0 and 1, where rounding would leave 1e-17.
    return (0.0 if share == 0 else middle - half), (1.0 if share == 1 else middle + half)


def _estimate(
    metric: Metric, truth: Values, predicted: Values, drawn: NDArray[np.float64], level: float
) -> Estimate:
    """Return a metric with the interval of its values on the resamples, `drawn`."""
    value = metric(truth, predicted)
    if metric is accuracy:
        return Estimate(value, *wilson(value, len(truth), level))
    low, high = interval_of_resamples(drawn, level)
    excludes_0 = metric in CORRELATIONS and (low > 0 or high < 0)
    if excludes_0 and permutation_p(metric, truth, predicted, RESAMPLES) > 1 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return Estimate(value, low, high)


def interval_of_resamples(drawn: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the percentiles; NaN if all resamples are equal, which says nothing of other rows."""
    defined = drawn[~np.isnan(drawn)]
    alike = not len(defined) or np.ptp(defined) <= ROUNDING * np.abs(defined).max()
    if alike or len(defined) < max(1, DEFINED * len(drawn)):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
