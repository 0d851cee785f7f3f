"""Two predictors on the same rows: differences, and the verdict on a model.

Tests and intervals are paired by row:

    of_shares    right or wrong in each row: McNemar's test (mid-p; Fagerland et al. 2013, doi
                 10.1186/1471-2288-13-91) and the interval of Bonett & Price (2012, doi
                 10.3102/1076998611411915)
    of_metric    any metric of rows: a randomisation test, which exchanges the two predictions of a
                 row (Noreen 1989), and percentiles of the paired bootstrap
    of_sums      the same for a function of sums over rows, such as the F1 of entities
    of_groups    one predictor between two groups of rows

Two intervals that overlap do not show that two predictors are equal: rows that are hard for both
widen both intervals, and cancel in the difference. Whether a difference is significant is decided
by its interval, with which a p close to 0.05 may disagree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.metrics import intervals
from maskwright.base.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Estimate,
    OfResamples,
    OfSums,
    interval_of_rows,
    of_rows,
    p_of_draws,
)
from maskwright.base.metrics.metrics import (
    Metric,
    Values,
    accuracy,
    check_arrays,
    pearson,
    spearman,
)
from maskwright.base.metrics.seeds import by_student
from maskwright.base.terminal import counted, decimals

# ------------------------------------------------------------------------------ differences
# How predictions on different scales are made comparable, which leaves a correlation as it is.
COMPARABLE: dict[Metric, Callable[[Values], Values]] = {
    spearman: lambda values: scipy.stats.rankdata(values),  # `scipy.stats` is loaded on use
    pearson: lambda values: (values - values.mean()) / max(values.std(), 1e-300),
}


@dataclass(frozen=True)
class PairedDifference:
    """The first predictor's value minus the second's, its interval (NaN: unknown), the two-sided p
    of no difference, and the number of rows."""

    value: float
    low: float
    high: float
    p: float
    rows: int

    def __neg__(self) -> PairedDifference:
        return replace(self, value=-self.value, low=-self.high, high=-self.low)

    def estimate(self) -> Estimate:
        """Return value and interval."""
        return Estimate(self.value, self.low, self.high)

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def of_shares(ours: NDArray[Any], theirs: NDArray[Any], level: float = LEVEL) -> PairedDifference:
    """Compare the shares of rows (N,) that each of two predictors has right."""
    rows, gained = len(ours), int((ours & ~theirs).sum())
    lost = int((theirs & ~ours).sum())
    gained_share, lost_share = (gained + 1) / (rows + 2), (lost + 1) / (rows + 2)
    middle = gained_share - lost_share
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    half = z * math.sqrt((gained_share + lost_share - middle**2) / (rows + 2))
    fewer = (min(gained, lost), gained + lost, 0.5)
    p = min(1.0, float(2 * scipy.stats.binom.cdf(*fewer) - scipy.stats.binom.pmf(*fewer)))
    low, high = max(-1.0, middle - half), min(1.0, middle + half)
    return PairedDifference((gained - lost) / rows, low, high, p, rows)


def with_seeds(
    gap: PairedDifference, ours: Sequence[float], theirs: Sequence[float]
) -> PairedDifference:
    """Return the mean difference `gap` of two predictors with an interval and a p that also count
    how much the metric of each varies over its seeds; one seed does not vary.

    The variances of the mean by rows, from the interval of `gap`, and by seeds add up.
    """
    z = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)
    parts = [(((gap.high - gap.low) / (2 * z)) ** 2, gap.rows - 1)]
    for values in (side for side in (ours, theirs) if len(side) > 1):
        parts.append((statistics.variance(values) / len(values), len(values) - 1))
    if not math.fsum(variance for variance, _ in parts) > 0:  # the same answers, or unknown
        return gap
    return PairedDifference(gap.value, *by_student(gap.value, parts), gap.rows)


def of_metric(
    metric: Metric,
    truth: Values,
    ours: Values,
    theirs: Values,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> PairedDifference:
    """Compare two predictors by a metric of `METRICS`. For a correlation their predictions may have
    different scales, so ranks (Spearman) or standardised values (Pearson) are exchanged.

    Raises:
        DataError: no rows, or not the same number.
    """
    truth, ours = check_arrays(truth, ours)
    truth, theirs = check_arrays(truth, theirs)
    if metric is accuracy:
        ours, theirs = ((side == truth).reshape(len(truth), -1).all(1) for side in (ours, theirs))
        return of_shares(ours, theirs, level)
    if metric in COMPARABLE:
        ours, theirs = map(COMPARABLE[metric], (ours, theirs))
    width, of = of_rows(metric, np.concatenate([truth] * 2), np.concatenate([ours, theirs]))
    value = metric(truth, ours) - metric(truth, theirs)
    return _resampled(value, of, len(truth), width, level, resamples)


def of_sums(statistic: OfSums, ours: NDArray[Any], theirs: NDArray[Any]) -> PairedDifference:
    """Compare a function of the sums over the rows of the counts (N, K) of two predictors."""
    totals = statistic(np.stack([ours.sum(0), theirs.sum(0)])).astype(float)
    width, of = intervals.of_sums(statistic, np.concatenate([ours, theirs]))
    return _resampled(float(totals[0] - totals[1]), of, len(ours), width, LEVEL, RESAMPLES)


def _resampled(
    value: float, of: OfResamples, rows: int, width: int, level: float, resamples: int
) -> PairedDifference:
    """Return the difference with percentiles of the bootstrap. The interval contains 0 unless the
    randomisation test rejects that the two predictors are exchangeable. `of` takes indices into the
    rows of the first predictor followed by those of the second."""
    low, high = interval_of_rows(
        width, lambda indices: of(indices) - of(indices + rows), rows, resamples, level
    )
    row_numbers = np.arange(rows)

    def of_exchanged(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        exchanged = (numbers < 0.5) * rows
        return of(row_numbers + exchanged) - of(row_numbers + rows - exchanged)

    p = p_of_draws(value, of_exchanged, rows, resamples, 1, width=width)
    if p > 1 - level and math.isfinite(low):
        low, high = min(low, 0.0), max(high, 0.0)
    return PairedDifference(value, low, high, p if math.isfinite(value) else math.nan, rows)


# ------------------------------------------------------------------------------ groups of rows
def of_groups_of_shares(
    right: NDArray[np.bool_], selected: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the share of the selected rows that are right minus that of the others, and the
    two-sided p of Fisher's exact test."""
    inside, outside = right[selected], right[~selected]
    counts = [[int(side.sum()), int((~side).sum())] for side in (inside, outside)]
    p = float(scipy.stats.fisher_exact(counts).pvalue)
    return float(inside.mean() - outside.mean()), p


def of_groups(
    width: int, of: OfResamples, selected: NDArray[np.bool_], resamples: int
) -> tuple[float, float]:
    """Return a metric of the selected rows (N,) minus that of the others, and the two-sided p of a
    permutation test: of which rows the metric differs so much if as many are selected at random.
    `width` and `of` are what `of_rows` returns."""
    inside = int(selected.sum())
    value = float((of(np.flatnonzero(selected)[None]) - of(np.flatnonzero(~selected)[None]))[0])

    def of_permuted(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        order = numbers.argsort(1)
        return of(order[:, :inside]) - of(order[:, inside:])

    p = p_of_draws(value, of_permuted, len(selected), resamples, 2, width=width)
    return value, p if math.isfinite(value) else math.nan


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for being a family of tests (Holm 1979): below a level with at
    most that probability for any true null hypothesis among them. NaN stays NaN and counts as no
    test."""
    adjusted = [math.nan] * len(p_values)
    tests = sorted((p, number) for number, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, number) in enumerate(tests):
        largest = adjusted[number] = max(largest, min(1.0, p * (len(tests) - rank)))
    return adjusted


# ------------------------------------------------------------------------------ the verdict
State = Literal["good", "no better", "unusable"]


@dataclass(frozen=True)
class Rival:
    """A baseline on the rows of the model.

    Attributes:
        name: as in "no better than NAME".
        value: its metric; NaN if it is not defined.
        gap: the metric of the model minus that of the baseline, paired by row; positive where the
            model is better, also for errors.
        is_constant: whether it gives the same answer to every row, or answers drawn at random.
    """

    name: str
    value: float
    gap: PairedDifference
    is_constant: bool = False


@dataclass(frozen=True)
class Verdict:
    """A state and a sentence.

    Attributes:
        rival: the baseline that decided; "" if there is none.
        is_usable: whether the model is worth predicting with: it is significantly better than the
            same answer for every row, and no baseline is significantly better than it.
    """

    state: State
    sentence: str
    rival: str = ""
    is_usable: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict(
    measure: str,
    value: float,
    rivals: Sequence[Rival],
    rows: int,
    unit: tuple[str, str] = ("row", "rows"),
) -> Verdict:
    """Judge the metric `value` of a model on some rows, or other units such as queries.

    The model is good if it is significantly better than every baseline, unusable if it is not
    better than the same answer for every row, and otherwise no better than the baseline with which
    the difference is least.
    """
    result = f"{measure} {decimals(value)} on {counted(rows, *unit)}"
    if not math.isfinite(value):
        sentence = f"Unusable: {measure} is not defined, as all answers are the same."
        return Verdict("unusable", sentence, is_usable=False)
    if not rivals:
        return Verdict("no better", f"Not judged: {result}, and no baseline is compared.")
    best = min(rivals, key=lambda rival: rival.gap.value)
    constant = next((r for r in rivals if r.is_constant and not r.gap.value > 0), None)

    def beside(rival: Rival) -> str:
        return f"{result}; {rival.name} {decimals(rival.value)} ({_interval(rival.gap)})."

    if constant is not None:
        sentence = f"Unusable: {beside(constant)}"
        if best.gap.high < 0 and best is not constant:
            sentence += f" {best.name.capitalize()} reaches {decimals(best.value)}."
        return Verdict("unusable", sentence, constant.name, is_usable=False)
    if best.gap.high < 0:
        values = f"{decimals(best.value)} against {decimals(value)} of the model"
        sentence = f"{best.name.capitalize()} is better: {values} ({_interval(best.gap)})."
        return Verdict("no better", sentence, best.name, is_usable=False)
    unproved = [rival for rival in rivals if not rival.gap.low > 0]
    if unproved:
        least = min(unproved, key=lambda rival: rival.gap.value)
        sentence = f"No better than {least.name}, as far as these {unit[1]} show: {beside(least)}"
        is_usable = not any(rival.is_constant for rival in unproved)
        return Verdict("no better", sentence, least.name, is_usable)
    return Verdict("good", f"Good: {beside(best)}", best.name)


def compare(
    measure: str, names: tuple[str, str], values: tuple[float, float], gap: PairedDifference
) -> Verdict:
    """Compare a model with another on the same rows; `gap` is positive where the first is better.
    The state is that of the first: good if it is better."""
    shown = [decimals(value) if math.isfinite(value) else "undefined" for value in values]
    figures = f"{measure} {shown[0]} against {shown[1]} on {counted(gap.rows, 'row')}"
    figures += f" ({_interval(gap)})"
    if not gap.is_significant:
        sentence = f"No difference is shown by these rows between {names[0]} and {names[1]}"
        return Verdict("no better", f"{sentence}: {figures}.", names[1])
    better = gap.low > 0
    sentence = f"{names[0]} is {'better' if better else 'worse'} than {names[1]}: {figures}."
    return Verdict("good" if better else "no better", sentence, names[1], is_usable=better)


def _interval(gap: PairedDifference) -> str:
    if not math.isfinite(gap.value):
        return "difference unknown"
    gap = gap if gap.value >= 0 else -gap
    interval = f"95 % interval {decimals(gap.low)} to {decimals(gap.high)}"
    interval = interval if math.isfinite(gap.low) else "interval unknown"
    return f"difference {decimals(abs(gap.value))}, {interval}"
