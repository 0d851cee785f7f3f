"""How precise a score on a number of rows can be, before there is a model.

    half_width(0.8, 120)             0.071   half of the 95 % interval of an accuracy
    smallest_difference(0.8, 120)    0.100   what a paired test finds in 80 % of cases

Two models are compared by McNemar's test; its power depends on the share of rows that exactly one
of them has right. That share is assumed to be p (1 - p), half of what models with independent
errors would have: models of one task fail on the same hard rows.
"""

from __future__ import annotations

import math
import statistics

import scipy

from maskwright.base.metrics.intervals import LEVEL, wilson

POWER = 0.8
QUANTILE = statistics.NormalDist().inv_cdf


def half_width(accuracy: float, rows: int) -> float:
    """Return half of the width of Wilson's interval of an accuracy."""
    low, high = wilson(accuracy, rows)
    return (high - low) / 2


def correlation_half_width(correlation: float, rows: int) -> float:
    """Return half of the width of the interval of Spearman's correlation by Fisher's
    transformation (Bonett & Wright 2000, doi 10.1007/BF02294183); NaN below 5 rows."""
    if rows < 5:
        return math.nan
    error = QUANTILE((1 + LEVEL) / 2) * math.sqrt((1 + correlation**2 / 2) / (rows - 3))
    middle = math.atanh(correlation)
    return (math.tanh(middle + error) - math.tanh(middle - error)) / 2


def smallest_difference(accuracy: float, rows: int) -> float:
    """Return the least difference of two accuracies that McNemar's test finds with a power of 0.8
    (Connor 1987, doi 10.2307/2531961); 1 if there are too few rows for any."""

    def lacking(difference: float) -> float:
        disagreement = max(accuracy * (1 - accuracy), difference)
        needed = QUANTILE((1 + LEVEL) / 2) * math.sqrt(disagreement)
        needed += QUANTILE(POWER) * math.sqrt(disagreement - difference**2)
        return needed - difference * math.sqrt(rows)

    return 1.0 if lacking(1.0) > 0 else float(scipy.optimize.brentq(lacking, 1e-9, 1.0))
