"""Metrics of predictions, equal to those of scikit-learn; undefined values are NaN, never 0 or 1.

Correlations are not defined if one side is constant, nor is the precision of a class that is never
predicted. intervals.py adds intervals.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.errors import DataError

Values = NDArray[Any]
Metric = Callable[[Values, Values], float]


@dataclass(frozen=True)
class ClassFigures:
    """Metrics of one class; NaN where the denominator is 0."""

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


def accuracy(truth: Values, predicted: Values) -> float:
    """Return the share of rows (N,) that are right; of several labels (N, C) all must be."""
    is_right = np.equal(*check_arrays(truth, predicted))
    return float((is_right if is_right.ndim == 1 else is_right.all(1)).mean())


def macro_f1(truth: Values, predicted: Values) -> float:
    """Return the mean F1 of the classes, or of several labels (N, C), that occur on either side; 0
    if none does. A prediction below 0 is no class."""
    truth, predicted = check_arrays(truth, predicted)
    if truth.ndim > 1:
        hits, totals = (truth * predicted).sum(0), (truth + predicted).sum(0)
        return float((2 * hits / np.maximum(1, totals)).sum() / max(1, (totals > 0).sum()))
    classes, counts = _confusion(truth, predicted)
    f1 = 2.0 * counts.diagonal() / (counts.sum(0) + counts.sum(1))
    return float(f1[classes >= 0].sum() / max(1, (classes >= 0).sum()))


def micro_f1(truth: Values, predicted: Values) -> float:
    """Return the F1 of all decisions together, which is the accuracy for one label per row."""
    truth, predicted = check_arrays(truth, predicted)
    if truth.ndim == 1:
        return accuracy(truth, predicted)
    total = int(np.count_nonzero(truth) + np.count_nonzero(predicted))
    return float(2 * np.count_nonzero(truth & predicted) / max(1, total))


def matthews(truth: Values, predicted: Values) -> float:
    """Return Matthews' correlation of two columns of classes (N,)."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    _, counts = _confusion(truth, predicted)
    of_truth, of_predictions = counts.sum(1, dtype=float), counts.sum(0, dtype=float)
    variances = [len(truth) ** 2 - of @ of for of in (of_predictions, of_truth)]
    covariance = counts.trace() * len(truth) - of_truth @ of_predictions
    return float(covariance / np.sqrt(math.prod(variances)))


def pearson(truth: Values, predicted: Values) -> float:
    """Return Pearson's correlation of two columns of numbers (N,)."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    with warnings.catch_warnings():  # nearly constant values are accepted
        warnings.simplefilter("ignore", scipy.stats.NearConstantInputWarning)
        return float(scipy.stats.pearsonr(truth, predicted).statistic)


def spearman(truth: Values, predicted: Values) -> float:
    """Return Spearman's correlation of two columns of numbers (N,); ties share their rank."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    return float(scipy.stats.spearmanr(truth, predicted).statistic)


def squared_error(truth: Values, predicted: Values) -> float:
    """Return the mean squared difference of two columns of numbers (N,)."""
    return float(np.square(np.subtract(*check_arrays(truth, predicted))).mean())


_METRICS = (accuracy, macro_f1, micro_f1, matthews, pearson, spearman, squared_error)
METRICS: Mapping[str, Metric] = {metric.__name__: metric for metric in _METRICS}


def per_class(truth: Values, predicted: Values, names: Sequence[str]) -> list[ClassFigures]:
    """Return precision, recall and F1 of each class, in the order of `names`."""
    truth, predicted = check_arrays(truth, predicted)
    rows, predictions, hits = (
        np.array([np.count_nonzero(values == index) for index in range(len(names))])
        for values in (truth, predicted, np.where(truth == predicted, truth, -1))
    )
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        precision, recall, f1 = hits / predictions, hits / rows, 2 * hits / (predictions + rows)
    return [
        ClassFigures(name, float(precision[i]), float(recall[i]), float(f1[i]), int(rows[i]))
        for i, name in enumerate(names)
    ]


def confusion(truth: Values, predicted: Values, classes: int) -> NDArray[np.int64]:
    """Return the confusion matrix (C, C): rows are true classes, columns predicted ones."""
    truth, predicted = check_arrays(truth, predicted)
    counts = np.zeros((classes, classes), np.int64)
    is_known = np.minimum(truth, predicted) >= 0
    np.add.at(counts, (truth[is_known], predicted[is_known]), 1)
    return counts


def _confusion(truth: Values, predicted: Values) -> tuple[Values, NDArray[np.int64]]:
    """Return the classes that occur on either side, and their confusion matrix."""
    classes, codes = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    return classes, confusion(codes[: len(truth)], codes[len(truth) :], len(classes))


def check_arrays(truth: Values, predicted: Values) -> tuple[Values, Values]:
    """Return both as arrays.

    Raises:
        DataError: no rows, different numbers of rows, or a value that is not finite.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if len(truth) == 0 or truth.shape != predicted.shape:
        raise DataError(
            "nothing to score" if len(truth) == 0 else "predictions and labels differ in number",
            found=f"{predicted.shape} predictions for {truth.shape} labels",
            wanted="one prediction for each label, at least one",
        )
    for name, values in (("label", truth), ("prediction", predicted)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            index = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(
                f"a {name} is not a finite number",
                where=f"row {index + 1}",
                found=values.ravel()[index],
                wanted="finite numbers",
            )
    return truth, predicted


def is_constant(values: Values) -> bool:
    """Return whether all values are equal."""
    return bool((values == values[0]).all())
