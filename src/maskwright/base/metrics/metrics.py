"""Metrics of predictions, by scikit-learn and scipy; undefined values are NaN, never 0 or 1.

Correlations are not defined if one side is constant, nor is the precision of a class that is never
predicted. scikit-learn is imported on first use, since the import takes a second. intervals.py adds
intervals.
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
    return float(_sklearn().accuracy_score(*check_arrays(truth, predicted)))


def macro_f1(truth: Values, predicted: Values) -> float:
    """Return the mean F1 of the classes, or of several labels (N, C), that occur on either side; 0
    if none does. A prediction below 0 is no class."""
    truth, predicted = check_arrays(truth, predicted)
    classes = None
    if truth.ndim > 1:
        hits, totals = (truth * predicted).sum(0), (truth + predicted).sum(0)
        return float((2 * hits / np.maximum(1, totals)).sum() / max(1, (totals > 0).sum()))
    if len(predicted) and predicted.min() < 0:
        classes = [name for name in np.union1d(truth, predicted) if name >= 0]
    return float(
        _sklearn().f1_score(truth, predicted, labels=classes, average="macro", zero_division=0.0)
    )


def micro_f1(truth: Values, predicted: Values) -> float:
    """Return the F1 of all decisions together, which is the accuracy for one label per row."""
    return float(
        _sklearn().f1_score(*check_arrays(truth, predicted), average="micro", zero_division=0.0)
    )


def matthews(truth: Values, predicted: Values) -> float:
    """Return Matthews' correlation of two columns of classes (N,)."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    return float(_sklearn().matthews_corrcoef(truth, predicted))


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
    return float(_sklearn().mean_squared_error(*check_arrays(truth, predicted)))


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "squared_error": squared_error,
}


def per_class(truth: Values, predicted: Values, names: Sequence[str]) -> list[ClassFigures]:
    """Return precision, recall and F1 of each class, in the order of `names`."""
    truth, predicted = check_arrays(truth, predicted)
    precision, recall, f1, rows = _sklearn().precision_recall_fscore_support(
        truth, predicted, labels=range(len(names)), zero_division=np.nan
    )
    return [
        ClassFigures(name, float(precision[i]), float(recall[i]), float(f1[i]), int(rows[i]))
        for i, name in enumerate(names)
    ]


def confusion(truth: Values, predicted: Values, classes: int) -> NDArray[np.int64]:
    """Return the confusion matrix (C, C): rows are true classes, columns predicted ones."""
    truth, predicted = check_arrays(truth, predicted)
    counts = _sklearn().confusion_matrix(truth, predicted, labels=range(classes))
    return np.asarray(counts, np.int64)


# ------------------------------------------------------------------------------ what they share
def _sklearn() -> Any:
    from sklearn import metrics

    return metrics


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
