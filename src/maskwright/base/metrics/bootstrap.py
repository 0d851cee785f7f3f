"""Resampling: metrics of many selections of rows, vectorised if the metric allows it.

Rows are drawn by keys (`randomness.py`), so that two models get the same resamples and their
difference has an interval of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.metrics.metrics import (
    Metric,
    Values,
    accuracy,
    macro_f1,
    matthews,
    micro_f1,
    pearson,
    spearman,
    squared_error,
)
from maskwright.base.randomness import integers, key, uniforms

SEED = 20_260_000
AT_ONCE = 1_000_000  # numbers in a chunk of resamples
TINY = 1e-300
# Vectorised metrics: of one class, of several labels, and of one number for each row.
OF_CLASSES = (accuracy, macro_f1, matthews)
OF_LABELS = (accuracy, macro_f1, micro_f1)
OF_NUMBERS = (pearson, spearman, squared_error)
# (R, rows) indices of R resamples -> (R,) values of each metric.
OfResamples = Callable[[NDArray[np.int64]], dict[Metric, NDArray[np.float64]]]


def by_resample(
    chosen: Sequence[Metric], truth: Values, predicted: Values, resamples: int
) -> dict[Metric, NDArray[np.float64]]:
    """Return (resamples,) values of each metric on the same resamples."""
    width, of = of_rows(chosen, truth, predicted)
    chunks = [of(indices) for indices in resample_indices(len(truth), resamples, width)]
    return {metric: np.concatenate([chunk[metric] for chunk in chunks]) for metric in chosen}


def of_rows(chosen: Sequence[Metric], truth: Values, predicted: Values) -> tuple[int, OfResamples]:
    """Return (numbers in memory for each index, the metrics of (R, rows) indices of rows)."""
    width, of = 1, cast(OfResamples, partial(_one_by_one, chosen, truth, predicted))
    if truth.ndim > 1 and truth.shape[1] > 1 and {*chosen} <= {*OF_LABELS}:
        of = _of_labels(truth, predicted)
    elif truth.ndim == 1 and {*chosen} <= {*OF_NUMBERS}:
        of = partial(_of_numbers, chosen, truth.astype(np.float64), predicted.astype(np.float64))
    elif truth.ndim == 1 and truth.dtype.kind == "i" and {*chosen} <= {*OF_CLASSES}:
        width, of = _of_classes(truth, predicted)
    return width, of


def _one_by_one(
    chosen: Sequence[Metric], truth: Values, predicted: Values, indices: NDArray[np.int64]
) -> dict[Metric, NDArray[np.float64]]:
    return {m: np.array([m(truth[i], predicted[i]) for i in indices]) for m in chosen}


def _of_classes(truth: Values, predicted: Values) -> tuple[int, OfResamples]:
    """Metrics of one class for each row, from confusion matrices; before them the numbers that a
    matrix has for each row."""
    names, cells = np.unique(np.stack([truth, predicted]), return_inverse=True)
    size = len(names)
    pairs = cells.reshape(2, -1)[0] * size + cells.reshape(2, -1)[1]
    return -(-(size**2) // len(truth)), lambda indices: of_counts(
        _counts(pairs[indices], size**2).reshape(-1, size, size), names >= 0
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


def _of_labels(truth: Values, predicted: Values) -> OfResamples:
    """Metrics of several labels (N, C), from weighted sums over the rows."""
    rows, size = truth.shape
    right, label_counts = truth * predicted, truth + predicted
    statistics = np.concatenate(
        [right, label_counts, (truth == predicted).all(1, keepdims=True)], axis=1
    )
    statistics = statistics.astype(np.float64)

    def of(indices: NDArray[np.int64]) -> dict[Metric, NDArray[np.float64]]:
        sums = _counts(indices, rows) @ statistics  # (R, 2C + 1)
        right, totals = sums[:, :size], sums[:, size : 2 * size]
        return {
            accuracy: sums[:, -1] / indices.shape[1],
            micro_f1: 2 * right.sum(1) / np.maximum(1, totals.sum(1)),
            macro_f1: (2 * right / np.maximum(1, totals)).mean(1),
        }

    return of


def _of_numbers(
    chosen: Sequence[Metric], truth: Values, predicted: Values, indices: NDArray[np.int64]
) -> dict[Metric, NDArray[np.float64]]:
    """Metrics of one number for each row."""
    true, predictions = truth[indices], predicted[indices]  # (R, N)
    by_metric: dict[Metric, NDArray[np.float64]] = {}
    for metric in chosen:
        if metric is squared_error:
            by_metric[metric] = np.square(true - predictions).mean(1)
        elif metric is spearman:
            ranks = (scipy.stats.rankdata(side, axis=1) for side in (true, predictions))
            by_metric[metric] = _correlations(*ranks)
        else:
            by_metric[metric] = _correlations(true, predictions)
    return by_metric


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


def permutation_p(metric: Metric, truth: Values, predicted: Values, resamples: int) -> float:
    """Return the two-sided p of a permutation test that labels and predictions are independent,
    for a correlation of one class or one number per row (`matthews`, `pearson`, `spearman`)."""
    observed, more, total = abs(metric(truth, predicted)) - 1e-12, 1, 1
    _, labels = np.unique(truth, return_inverse=True)
    _, answers = np.unique(predicted, return_inverse=True)
    size = max(labels.max(), answers.max()) + 1
    for chunk in np.array_split(np.arange(resamples), -(-resamples * len(truth) // AT_ONCE)):
        drawn = uniforms(key("bootstrap", SEED, chunk), len(truth)).argsort(1)
        if metric is matthews:
            counts = _counts(labels * size + answers[drawn], size**2).reshape(-1, size, size)
            values = of_counts(counts)[matthews]
        else:
            sides = (truth.astype(float), predicted.astype(float))
            if metric is spearman:
                sides = tuple(scipy.stats.rankdata(side) for side in sides)
            values = _correlations(np.broadcast_to(sides[0], drawn.shape), sides[1][drawn])
        more, total = more + int((np.abs(values) >= observed).sum()), total + len(values)
    return more / total


def _counts(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return (R, size) counts of the numbers below `size` in each row of `values`."""
    begins = np.arange(len(values))[:, None] * size
    return np.bincount((values + begins).ravel(), minlength=len(values) * size).reshape(-1, size)
