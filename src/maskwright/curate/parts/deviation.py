"""How far numbers are from the median, in robust standard deviations, group by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAD = 1.4826  # the standard deviation of a normal distribution, in median absolute deviations
FEWEST = 20  # numbers of a group that a median is taken from
NARROWEST = 0.1  # the least standard deviation, so that equal texts do not make all others odd


def robust(values: NDArray[np.float64]) -> tuple[float, float]:
    """Median and robust standard deviation of numbers that are no NaN."""
    middle = float(np.median(values))
    return middle, max(NARROWEST, MAD * float(np.median(np.abs(values - middle))))


def deviations(
    values: NDArray[np.float64],
    groups: Sequence[str],
    reference: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """(N,) how many deviations each of `values` is from the median of its group, or of the
    `reference`; NaN in groups of fewer than 20 numbers."""
    found = np.full(len(values), np.nan)
    if reference is not None:
        known = reference[~np.isnan(reference)]
        if len(known) >= FEWEST:
            middle, width = robust(known)
            found = (values - middle) / width
        return found.round(6)
    _, numbers, counts = np.unique(
        np.array(groups, dtype=object).astype(str), return_inverse=True, return_counts=True
    )
    ends = np.cumsum(counts)
    order = np.argsort(numbers, kind="stable")
    for number in np.flatnonzero(counts >= FEWEST).tolist():
        here = order[ends[number] - counts[number] : ends[number]]
        known = values[here][~np.isnan(values[here])]
        if len(known) >= FEWEST:
            middle, width = robust(known)
            found[here] = (values[here] - middle) / width
    return found.round(6)
