"""A metric with the rows that it is computed from: its value, its interval, and its difference from
the same metric of another predictor on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.metrics import paired
from maskwright.base.metrics.intervals import Estimate, OfSums, estimate, estimate_of_sums
from maskwright.base.metrics.metrics import METRICS, Values, squared_error
from maskwright.base.metrics.paired import PairedDifference

ERRORS = (squared_error,)  # metrics that are better when they are lower


@dataclass(frozen=True)
class ArrayMetric:
    """A metric of `METRICS` for labels and predictions, by row."""

    name: str
    truth: Values
    predicted: Values

    @property
    def value(self) -> float:
        return METRICS[self.name](self.truth, self.predicted)

    def estimate(self) -> Estimate:
        return estimate(METRICS[self.name], self.truth, self.predicted)

    def gain_over(self, rival: RowMetric) -> PairedDifference:
        """Return how much better this predictor is than the rival, also for errors."""
        assert isinstance(rival, ArrayMetric)
        metric, sides = METRICS[self.name], (self.predicted, rival.predicted)
        return paired.of_metric(
            metric, self.truth, *(reversed(sides) if metric in ERRORS else sides)
        )


@dataclass(frozen=True)
class SumMetric:
    """A function of the sums over the rows of `counts` (N, K), such as the F1 of entities."""

    figure: OfSums
    counts: NDArray[Any]

    @property
    def value(self) -> float:
        return float(self.figure(self.counts.sum(0, keepdims=True))[0])

    def estimate(self) -> Estimate:
        return estimate_of_sums(self.figure, self.counts)

    def gain_over(self, rival: RowMetric) -> PairedDifference:
        """Return how much better this predictor is than the rival."""
        assert isinstance(rival, SumMetric)
        return paired.of_sums(self.figure, self.counts, rival.counts)


RowMetric = ArrayMetric | SumMetric


def means(names: Sequence[str], scores: NDArray[Any]) -> dict[str, RowMetric]:
    """Return the means of the columns of `scores` (N, K), by name."""
    ones = np.ones(len(scores))
    return {
        name: SumMetric(_ratio, np.column_stack([scores[:, column], ones]))
        for column, name in enumerate(names)
    }


def _ratio(sums: NDArray[Any]) -> NDArray[Any]:
    return sums[:, 0] / sums[:, 1]
