"""A metric with the rows that it is computed from: its value, its interval, its difference from the
same metric of another predictor on the same rows, and from the same metric of other rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.metrics import paired
from maskwright.base.metrics.intervals import (
    CORRELATIONS,
    RESAMPLES,
    Estimate,
    OfSums,
    estimate,
    estimate_of_sums,
    of_rows,
    of_sums,
    permutation_p,
)
from maskwright.base.metrics.metrics import METRICS, Values, accuracy, squared_error
from maskwright.base.metrics.paired import PairedDifference

ERRORS = (squared_error,)  # metrics that are better when they are lower


@dataclass(frozen=True)
class ArrayMetric:
    """A metric of `METRICS` for labels and predictions, by row."""

    name: str
    truth: Values
    predicted: Values

    @property
    def rows(self) -> int:
        return len(self.truth)

    @property
    def value(self) -> float:
        return METRICS[self.name](self.truth, self.predicted)

    def estimate(self) -> Estimate:
        return estimate(METRICS[self.name], self.truth, self.predicted)

    def select(self, rows: NDArray[np.int64]) -> ArrayMetric:
        """Return the metric of some of the rows."""
        return ArrayMetric(self.name, self.truth[rows], np.asarray(self.predicted)[rows])

    def gain_over(self, rival: RowMetric) -> PairedDifference:
        """Return how much better this predictor is than the rival, also for errors. If only one has
        a correlation, as the predictions of the other are all the same, that one counts as 0."""
        assert isinstance(rival, ArrayMetric)
        metric, sides = METRICS[self.name], (self.predicted, rival.predicted)
        if metric in CORRELATIONS and math.isfinite(self.value) != math.isfinite(rival.value):
            if math.isfinite(rival.value):
                return -rival.gain_over(self)
            interval = self.estimate()
            p = permutation_p(metric, self.truth, self.predicted, RESAMPLES)
            return PairedDifference(interval.value, interval.low, interval.high, p, len(self.truth))
        return paired.of_metric(
            metric, self.truth, *(reversed(sides) if metric in ERRORS else sides)
        )

    def gain_inside(self, selected: NDArray[np.bool_], resamples: int) -> tuple[float, float]:
        """Return how much better the metric is on the selected rows (N,) than on the others, and
        the two-sided p of no difference: Fisher's exact test for accuracy, else a permutation test
        of which rows are selected."""
        metric = METRICS[self.name]
        if metric is accuracy:
            right = (self.truth == self.predicted).reshape(len(self.truth), -1).all(1)
            return paired.of_groups_of_shares(right, selected)
        by_row = of_rows(metric, self.truth, self.predicted)
        value, p = paired.of_groups(*by_row, selected, resamples)
        return (-value if metric in ERRORS else value), p


@dataclass(frozen=True)
class SumMetric:
    """A function of the sums over the rows of `counts` (N, K), such as the F1 of entities."""

    statistic: OfSums
    counts: NDArray[Any]

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def value(self) -> float:
        return float(self.statistic(self.counts.sum(0, keepdims=True))[0])

    def estimate(self) -> Estimate:
        return estimate_of_sums(self.statistic, self.counts)

    def select(self, rows: NDArray[np.int64]) -> SumMetric:
        """Return the metric of some of the rows."""
        return SumMetric(self.statistic, self.counts[rows])

    def gain_over(self, rival: RowMetric) -> PairedDifference:
        """Return how much better this predictor is than the rival."""
        assert isinstance(rival, SumMetric)
        return paired.of_sums(self.statistic, self.counts, rival.counts)

    def gain_inside(self, selected: NDArray[np.bool_], resamples: int) -> tuple[float, float]:
        """As of `ArrayMetric`, by a permutation test."""
        return paired.of_groups(*of_sums(self.statistic, self.counts), selected, resamples)


@dataclass(frozen=True)
class RepeatedMetric:
    """The mean of a metric over several predictions of the same rows, as those of a repeated
    cross-validation.

    Its interval is the mean of the intervals of the repetitions, which is at least as wide as an
    interval of the mean: the deviation of a mean is at most the mean deviation.
    """

    repetitions: Sequence[ArrayMetric | SumMetric | RepeatedMetric]

    @property
    def rows(self) -> int:
        return self.repetitions[0].rows

    @property
    def value(self) -> float:
        return float(np.mean([metric.value for metric in self.repetitions]))

    def estimate(self) -> Estimate:
        parts = [metric.estimate() for metric in self.repetitions]
        return Estimate(*np.mean([[p.value, p.low, p.high] for p in parts], axis=0).tolist())

    def gain_over(self, rival: RowMetric) -> PairedDifference:
        """Return how much better this predictor is than the rival, paired within repetitions."""
        assert isinstance(rival, RepeatedMetric)
        pairs = zip(self.repetitions, rival.repetitions, strict=True)
        parts = [ours.gain_over(theirs) for ours, theirs in pairs]
        value, low, high, p, _ = np.mean([astuple(part) for part in parts], axis=0).tolist()
        return PairedDifference(value, low, high, p, parts[0].rows)


RowMetric = ArrayMetric | SumMetric | RepeatedMetric


def means(names: Sequence[str], scores: NDArray[Any]) -> dict[str, RowMetric]:
    """Return the means of the columns of `scores` (N, K), by name."""
    weights = np.ones(len(scores))
    return {
        name: SumMetric(ratio, np.column_stack([scores[:, column], weights]))
        for column, name in enumerate(names)
    }


def ratio(sums: NDArray[Any]) -> NDArray[Any]:
    """Return the first of each two sums (R, 2) divided by the second; NaN where that is 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[:, 0] / sums[:, 1])
