"""Intervals of means over items and over seeds.

Items (sentence pairs, questions) come in strata, and the estimate is the mean of the strata's
means; `bootstrap` resamples items within strata by keys. Intervals over few seeds use Student's t;
the values of the same seeds are compared as pairs, those of other seeds by Welch's test, which does
not assume equal variances (Welch 1947, doi 10.1093/biomet/34.1-2.28).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.metrics.intervals import LEVEL, RESAMPLES, SEED
from maskwright.base.randomness import integers, key

ROUNDING = 1e-15  # of a difference, relative to the larger number
AT_ONCE = 1 << 22  # items drawn in one chunk
Interval = tuple[float, float]
Strata = Sequence[NDArray[np.float64]]


def mean(strata: Strata) -> float:
    """Return the mean of the strata's means."""
    return float(np.mean([values.mean() for values in strata]))


def bootstrap(strata: Strata, resamples: int = RESAMPLES) -> Interval | None:
    """Return 95 % percentiles of the mean over keyed resamples of the items within each stratum;
    None if a stratum has a single item, or the items of every stratum are equal."""
    if min(map(len, strata)) < 2 or not any(float(np.ptp(values)) for values in strata):
        return None
    total = np.zeros(resamples)
    for number, values in enumerate(strata):
        for chunk in np.array_split(np.arange(resamples), -(-resamples * len(values) // AT_ONCE)):
            keys = key("bootstrap", SEED, number, chunk)
            drawn = integers(keys, len(values), len(values))
            total[chunk] += values[drawn].mean(axis=1)
    low, high = np.quantile(total / len(strata), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


# ------------------------------------------------------------------------------ over seeds
@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation and t-interval over seeds; for one seed the last two are NaN."""

    mean: float
    deviation: float
    low: float
    high: float
    count: int


def over_seeds(values: Sequence[float], level: float = LEVEL) -> Spread:
    """Return mean and interval of the values of several seeds; NaN if one of them is NaN."""
    middle, count = statistics.fmean(values), len(values)
    if count == 1 or not math.isfinite(middle):
        return Spread(middle, math.nan, math.nan, math.nan, count)
    deviation = statistics.stdev(values)
    half = float(scipy.stats.t.ppf((1 + level) / 2, count - 1)) * deviation / math.sqrt(count)
    return Spread(middle, deviation, middle - half, middle + half, count)


@dataclass(frozen=True)
class Difference:
    """Mean of the first minus mean of the second, its interval, and the two-sided p of no
    difference: of Student's test `paired` by seed, or of Welch's test for different seeds."""

    value: float
    low: float
    high: float
    p: float
    paired: bool


def difference(
    ours: dict[int, float], theirs: dict[int, float], level: float = LEVEL
) -> Difference | None:
    """Compare two values by seed. Values of the same seeds are compared as pairs, unless all pairs
    differ by the same amount. None if one has a single seed or is not defined, or if no seed
    changes either, as on few questions."""
    if min(len(ours), len(theirs)) < 2:
        return None
    a, b = np.array(list(ours.values())), np.array(list(theirs.values()))
    value = float(a.mean() - b.mean())
    # Rounding may make the variance of equal numbers positive.
    parts = [
        (float(side.var(ddof=1)) / len(side) if np.ptp(side) else 0.0, len(side) - 1)
        for side in (a, b)
    ]
    if not math.isfinite(value) or not any(variance for variance, _ in parts):
        return None
    if ours.keys() == theirs.keys():
        gaps = np.array([ours[seed] - theirs[seed] for seed in ours])
        rounding = ROUNDING * max(np.abs(a).max(), np.abs(b).max())
        if np.ptp(gaps) > rounding:
            of_gaps = (float(gaps.var(ddof=1)) / len(gaps), len(gaps) - 1)
            return Difference(value, *by_student(value, [of_gaps], level), paired=True)
        if abs(value) <= rounding:
            return Difference(value, 0.0, 0.0, 1.0, paired=True)
    return Difference(value, *by_student(value, parts, level), paired=False)


def by_student(
    value: float, parts: Sequence[tuple[float, int]], level: float = LEVEL
) -> tuple[float, float, float]:
    """Return the ends of the interval of `value` and the two-sided p of 0, by Student's t.

    Args:
        parts: (variance, degrees of freedom); the variance of `value` is their sum, with the
            degrees of freedom of Satterthwaite (1946, doi 10.2307/3002019).
    """
    total = math.fsum(variance for variance, _ in parts)
    freedom = total**2 / math.fsum(variance**2 / n for variance, n in parts if variance)
    error = math.sqrt(total)
    half = error * float(scipy.stats.t.ppf((1 + level) / 2, freedom))
    return value - half, value + half, 2 * float(scipy.stats.t.sf(abs(value) / error, freedom))


def p_by_seed(values: Mapping[str, Mapping[int, float]], name: str, rival: str) -> float | None:
    """Return the p of no difference between two of several candidates, adjusted for all pairs, by
    Tukey's test in blocks of one seed each (Tukey 1949).

    In at most 5 % of families of equal candidates, any pair has a p below 0.05, also where the pair
    is chosen by the same values. All candidates are assumed to have the same variance. None if
    seeds differ or there is one, a value is not finite, or nothing varies.
    """
    seeds = [sorted(by_seed) for by_seed in values.values()]
    if len(values) < 2 or len(seeds[0]) < 2 or any(names != seeds[0] for names in seeds):
        return None
    table = np.array([[by_seed[seed] for seed in seeds[0]] for by_seed in values.values()])
    count, blocks = table.shape
    means = dict(zip(values, table.mean(1), strict=True))
    residuals = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    freedom = (count - 1) * (blocks - 1)
    error = math.sqrt(float((residuals**2).sum()) / freedom / blocks)
    if not error > ROUNDING * np.abs(table).max():  # also where a value is not finite
        return None
    ranged = abs(means[name] - means[rival]) / error
    return float(scipy.stats.studentized_range.sf(ranged, count, freedom)) if ranged else 1.0
