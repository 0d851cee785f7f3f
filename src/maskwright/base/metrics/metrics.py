"""Numbers for predictions, by scikit-learn and scipy; what is not defined is NaN, never 0 or 1.

Matthews and the correlations have no value where one side never varies, and a class that is never
predicted has no precision. scikit-learn is imported where it is asked: it takes a second, and who
predicts needs none of it. How sure a figure is says estimate.py.
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
    """Of one class; NaN where there is nothing to divide by."""

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


def accuracy(truth: Values, predicted: Values) -> float:
    """The share of rows (N,) that are right; of several labels (N, C) all must be."""
    return float(_sklearn().accuracy_score(*check_arrays(truth, predicted)))


def macro_f1(truth: Values, predicted: Values) -> float:
    """The mean over the classes that occur on either side; of several labels (N, C), over all C. An
    answer below 0 is none of them."""
    truth, predicted = check_arrays(truth, predicted)
    classes = None
    if truth.ndim == 1 and len(predicted) and predicted.min() < 0:
        classes = [name for name in np.union1d(truth, predicted) if name >= 0]
    return float(
        _sklearn().f1_score(truth, predicted, labels=classes, average="macro", zero_division=0.0)
    )


def micro_f1(truth: Values, predicted: Values) -> float:
    """F1 of all decisions together; of one label for each row this is the accuracy."""
    return float(
        _sklearn().f1_score(*check_arrays(truth, predicted), average="micro", zero_division=0.0)
    )


def matthews(truth: Values, predicted: Values) -> float:
    """Matthews' correlation of two columns of classes (N,)."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    return float(_sklearn().matthews_corrcoef(truth, predicted))


def pearson(truth: Values, predicted: Values) -> float:
    """Pearson's correlation of two columns of numbers (N,)."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    with warnings.catch_warnings():  # nearly constant: the figure is what it is
        warnings.simplefilter("ignore", scipy.stats.NearConstantInputWarning)
        return float(scipy.stats.pearsonr(truth, predicted).statistic)


def spearman(truth: Values, predicted: Values) -> float:
    """Spearman's correlation of two columns of numbers (N,); ties share their rank."""
    truth, predicted = check_arrays(truth, predicted)
    if is_constant(truth) or is_constant(predicted):
        return math.nan
    return float(scipy.stats.spearmanr(truth, predicted).statistic)


def squared_error(truth: Values, predicted: Values) -> float:
    """The mean squared difference of two columns of numbers (N,)."""
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
    """Precision, recall and F1 of each class, in their order."""
    truth, predicted = check_arrays(truth, predicted)
    precision, recall, f1, rows = _sklearn().precision_recall_fscore_support(
        truth, predicted, labels=range(len(names)), zero_division=np.nan
    )
    return [
        ClassFigures(name, float(precision[i]), float(recall[i]), float(f1[i]), int(rows[i]))
        for i, name in enumerate(names)
    ]


def confusion(truth: Values, predicted: Values, classes: int) -> NDArray[np.int64]:
    """(C, C) counts: row the true class, column the predicted one."""
    truth, predicted = check_arrays(truth, predicted)
    counts = _sklearn().confusion_matrix(truth, predicted, labels=range(classes))
    return np.asarray(counts, np.int64)


# ------------------------------------------------------------------------------ what they share
def _sklearn() -> Any:
    from sklearn import metrics

    return metrics


def check_arrays(truth: Values, predicted: Values) -> tuple[Values, Values]:
    """Both as arrays.

    Raises:
        DataError: no rows, not the same number, or a value that is not finite.
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
    """Whether all are alike."""
    return bool((values == values[0]).all())
