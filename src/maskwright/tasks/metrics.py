"""Numbers for predictions, by scikit-learn and scipy; what is not defined is NaN, never 0 or 1.

Matthews and the correlations have no value where one side never varies, and a class that is never
predicted has no precision. scikit-learn is imported where it is asked: it takes a second, and who
predicts needs none of it. An interval resamples the rows by keys (`randomness.py`), so that two
models are resampled alike and their difference has an interval of its own.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.errors import DataError, UsageError, near
from maskwright.randomness import integers, key

LEVEL = 0.95
SEED = 20_260_000
RESAMPLES = 1000
# With fewer resamples that have a value than this share, there is no interval.
DEFINED = 0.5
AT_ONCE = 1_000_000  # numbers of resamples that are looked at together
TINY = 1e-300
Values = NDArray[Any]
Metric = Callable[[Values, Values], float]
# (R, K) sums over rows of R resamples -> (R,) their figures
OfSums = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Estimate:
    """A figure and its interval; NaN where it is not defined, as of rows that are all alike."""

    value: float
    low: float
    high: float

    def render(self) -> str:
        """The figure and its interval; a dash where it is not defined, as of answers all alike."""
        if not math.isfinite(self.value):
            return "–"
        if not math.isfinite(self.low):
            return f"{self.value:.4f}"
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


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
    return float(_sklearn().accuracy_score(*_checked(truth, predicted)))


def macro_f1(truth: Values, predicted: Values) -> float:
    """The mean over the classes that occur on either side; of several labels (N, C), over all C. An
    answer below 0 is none of them."""
    truth, predicted = _checked(truth, predicted)
    here = None
    if truth.ndim == 1 and len(predicted) and predicted.min() < 0:
        here = [name for name in np.union1d(truth, predicted) if name >= 0]
    return float(
        _sklearn().f1_score(truth, predicted, labels=here, average="macro", zero_division=0.0)
    )


def micro_f1(truth: Values, predicted: Values) -> float:
    """F1 of all decisions together; of one label for each row this is the accuracy."""
    return float(
        _sklearn().f1_score(*_checked(truth, predicted), average="micro", zero_division=0.0)
    )


def matthews(truth: Values, predicted: Values) -> float:
    """Matthews' correlation of two columns of classes (N,)."""
    truth, predicted = _checked(truth, predicted)
    if _is_constant(truth) or _is_constant(predicted):
        return math.nan
    return float(_sklearn().matthews_corrcoef(truth, predicted))


def pearson(truth: Values, predicted: Values) -> float:
    """Pearson's correlation of two columns of numbers (N,)."""
    truth, predicted = _checked(truth, predicted)
    if _is_constant(truth) or _is_constant(predicted):
        return math.nan
    with warnings.catch_warnings():  # nearly constant: the figure is what it is
        warnings.simplefilter("ignore", scipy.stats.NearConstantInputWarning)
        return float(scipy.stats.pearsonr(truth, predicted).statistic)


def spearman(truth: Values, predicted: Values) -> float:
    """Spearman's correlation of two columns of numbers (N,); ties share their rank."""
    truth, predicted = _checked(truth, predicted)
    if _is_constant(truth) or _is_constant(predicted):
        return math.nan
    return float(scipy.stats.spearmanr(truth, predicted).statistic)


def squared_error(truth: Values, predicted: Values) -> float:
    """The mean squared difference of two columns of numbers (N,)."""
    return float(_sklearn().mean_squared_error(*_checked(truth, predicted)))


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "squared_error": squared_error,
}
# The first of a kind is the one to choose by.
USUAL: Mapping[str, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "pair-classification": ("accuracy", "macro_f1", "matthews"),
    "multiple-choice": ("accuracy",),
    "multi-label": ("micro_f1", "macro_f1", "accuracy"),
    "regression": ("spearman", "pearson", "squared_error"),
    "similarity": ("spearman", "pearson", "squared_error"),
}


def estimates(
    kind: str, truth: Values, predicted: Values, *, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """The usual figures of a kind of task, each with its 95 % interval.

    Raises:
        UsageError: a kind without figures here.  DataError: no rows, or not the same number.
    """
    if kind not in USUAL:
        raise UsageError("no figures for this task here", found=repr(kind),
                         wanted=near(kind, USUAL))  # fmt: skip
    truth, predicted = _checked(truth, predicted)
    chosen = [METRICS[name] for name in USUAL[kind]]
    drawn = _drawn(chosen, truth, predicted, resamples)
    return {
        name: _estimate(metric, truth, predicted, drawn[metric], LEVEL)
        for name, metric in zip(USUAL[kind], chosen, strict=True)
    }


def estimate(
    metric: Metric,
    truth: Values,
    predicted: Values,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A figure and the percentiles of it over keyed resamples of the rows.

    Raises:
        DataError: no rows, or not the same number.
    """
    truth, predicted = _checked(truth, predicted)
    drawn = _drawn([metric], truth, predicted, resamples)[metric]
    return _estimate(metric, truth, predicted, drawn, level)


def estimate_of_sums(
    figure: OfSums, counts: NDArray[Any], *, level: float = LEVEL, resamples: int = RESAMPLES
) -> Estimate:
    """A figure that is made of sums over the rows of `counts` (N, K), such as an F1 of entities or
    a mean, and the percentiles of it over keyed resamples of the rows.

    Raises:
        DataError: no rows.
    """
    if not len(counts):
        raise DataError("there is nothing to compare", found="0 rows", wanted="at least one")
    drawn = np.concatenate(
        [counts[places].sum(1) for places in _resampled(len(counts), resamples, counts.shape[1])]
    )
    whole = counts.sum(0, keepdims=True)
    return Estimate(float(figure(whole)[0]), *_spread(figure(drawn).astype(float), level))


def estimates_of_means(names: Sequence[str], each: NDArray[Any]) -> dict[str, Estimate]:
    """The means of the columns of `each` (N, K), by name, with their intervals.

    Raises:
        DataError: no rows.
    """
    return {
        name: estimate_of_sums(lambda sums: sums[:, 0] / len(each), each[:, [place]])
        for place, name in enumerate(names)
    }


def per_class(truth: Values, predicted: Values, names: Sequence[str]) -> list[ClassFigures]:
    """Precision, recall and F1 of each class, in their order."""
    truth, predicted = _checked(truth, predicted)
    precision, recall, f1, rows = _sklearn().precision_recall_fscore_support(
        truth, predicted, labels=range(len(names)), zero_division=np.nan
    )
    return [
        ClassFigures(name, float(precision[i]), float(recall[i]), float(f1[i]), int(rows[i]))
        for i, name in enumerate(names)
    ]


def confusion(truth: Values, predicted: Values, classes: int) -> NDArray[np.int64]:
    """(C, C) counts: row the true class, column the predicted one."""
    truth, predicted = _checked(truth, predicted)
    counts = _sklearn().confusion_matrix(truth, predicted, labels=range(classes))
    return np.asarray(counts, np.int64)


# ------------------------------------------------------------------------------ what they share
def _sklearn() -> Any:
    from sklearn import metrics

    return metrics


def _checked(truth: Values, predicted: Values) -> tuple[Values, Values]:
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if len(truth) == 0 or truth.shape != predicted.shape:
        raise DataError(
            "nothing to score" if len(truth) == 0 else "predictions and labels differ in number",
            found=f"{predicted.shape} predictions for {truth.shape} labels",
            wanted="one prediction for each label, at least one",
        )
    for name, values in (("label", truth), ("prediction", predicted)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"a {name} is not a finite number", where=f"row {place + 1}",
                            found=values.ravel()[place], wanted="finite numbers")  # fmt: skip
    return truth, predicted


def _is_constant(values: Values) -> bool:
    return bool((values == values[0]).all())


def of_counts(
    counts: NDArray[np.int64], known: NDArray[np.bool_] | Literal[True] = True
) -> dict[Metric, NDArray[np.float64]]:
    """Accuracy, macro F1 and Matthews of many tables of counts (R, C, C), row the true class;
    `known` (C,) are classes, and the others answers that are none.

    The same figures as above, for the thousand resamples of an interval: scikit-learn looks at
    every row each time, which takes seconds.
    """
    right = np.diagonal(counts, axis1=1, axis2=2).astype(np.float64)  # (R, C)
    true, told = counts.sum(axis=2), counts.sum(axis=1)
    total = true.sum(axis=1).astype(np.float64)
    here = ((true + told) > 0) & known
    f1 = 2 * right / np.maximum(1, true + told)
    spread = (total**2 - (true**2).sum(axis=1)) * (total**2 - (told**2).sum(axis=1))
    agreed = right.sum(axis=1) * total - (true * told).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(spread > 0, agreed / np.sqrt(spread), np.nan)
    return {
        accuracy: right.sum(axis=1) / total,
        macro_f1: (f1 * here).sum(axis=1) / here.sum(axis=1),
        matthews: correlation,
    }


def _estimate(
    metric: Metric, truth: Values, predicted: Values, drawn: NDArray[np.float64], level: float
) -> Estimate:
    """The figure with its interval from that of each resample, `drawn`."""
    value = metric(truth, predicted)
    if metric is accuracy and value in (0.0, 1.0):
        return Estimate(value, *wilson(value, len(truth), level))
    return Estimate(value, *_spread(drawn, level))


# Metrics that are known for many resamples at a time: of one class, several labels, a number a row.
OF_CLASSES = (accuracy, macro_f1, matthews)
OF_LABELS = (accuracy, macro_f1, micro_f1)
OF_NUMBERS = (pearson, spearman, squared_error)
# (R, rows) places of such resamples -> (R,) the values of each metric.
OfResamples = Callable[[NDArray[np.int64]], dict[Metric, NDArray[np.float64]]]


def _drawn(
    chosen: Sequence[Metric], truth: Values, predicted: Values, resamples: int
) -> dict[Metric, NDArray[np.float64]]:
    """(resamples,) each of the metrics of the same resamples."""
    width, of = 1, cast(OfResamples, partial(_one_by_one, chosen, truth, predicted))
    if truth.ndim > 1 and truth.shape[1] > 1 and {*chosen} <= {*OF_LABELS}:
        of = _of_labels(truth, predicted)
    elif truth.ndim == 1 and {*chosen} <= {*OF_NUMBERS}:
        of = partial(_of_numbers, chosen, truth.astype(np.float64), predicted.astype(np.float64))
    elif truth.ndim == 1 and truth.dtype.kind == "i" and {*chosen} <= {*OF_CLASSES}:
        width, of = _of_classes(truth, predicted)
    parts = [of(places) for places in _resampled(len(truth), resamples, width)]
    return {metric: np.concatenate([part[metric] for part in parts]) for metric in chosen}


def _one_by_one(
    chosen: Sequence[Metric], truth: Values, predicted: Values, places: NDArray[np.int64]
) -> dict[Metric, NDArray[np.float64]]:
    return {m: np.array([m(truth[i], predicted[i]) for i in places]) for m in chosen}


def _of_classes(truth: Values, predicted: Values) -> tuple[int, OfResamples]:
    """Of one class for each row, by how often each was taken for each; beside it how many numbers
    that is for each row."""
    names, cells = np.unique(np.stack([truth, predicted]), return_inverse=True)
    size = len(names)
    pairs = cells.reshape(2, -1)[0] * size + cells.reshape(2, -1)[1]
    return -(-(size**2) // len(truth)), lambda places: of_counts(
        _counts(pairs[places], size**2).reshape(-1, size, size), names >= 0
    )


def _of_labels(truth: Values, predicted: Values) -> OfResamples:
    """Of several labels (N, C): from sums over the rows, which every resample weighs."""
    rows, size = truth.shape
    right, both = truth * predicted, truth + predicted
    each = np.concatenate([right, both, (truth == predicted).all(1, keepdims=True)], axis=1)
    each = each.astype(np.float64)

    def of(places: NDArray[np.int64]) -> dict[Metric, NDArray[np.float64]]:
        sums = _counts(places, rows) @ each  # (R, 2C + 1)
        right, both = sums[:, :size], sums[:, size : 2 * size]
        return {
            accuracy: sums[:, -1] / rows,
            micro_f1: 2 * right.sum(1) / np.maximum(1, both.sum(1)),
            macro_f1: (2 * right / np.maximum(1, both)).mean(1),
        }

    return of


def _of_numbers(
    chosen: Sequence[Metric], truth: Values, predicted: Values, places: NDArray[np.int64]
) -> dict[Metric, NDArray[np.float64]]:
    """Of one number for each row."""
    true, told = truth[places], predicted[places]  # (R, N)
    found: dict[Metric, NDArray[np.float64]] = {}
    for metric in chosen:
        if metric is squared_error:
            found[metric] = np.square(true - told).mean(1)
        elif metric is spearman:
            ranks = (scipy.stats.rankdata(side, axis=1) for side in (true, told))
            found[metric] = _correlations(*ranks)
        else:
            found[metric] = _correlations(true, told)
    return found


def _correlations(true: Values, told: Values) -> NDArray[np.float64]:
    """(R,) Pearson's correlation of the rows of two tables; none where one is constant."""
    constant = (true == true[:, :1]).all(1) | (told == told[:, :1]).all(1)
    sides = []
    for side in (true, told):
        apart = side - side.mean(1, keepdims=True)
        sides.append(apart / np.maximum(TINY, np.abs(apart).max(1, keepdims=True)))
    lengths = np.sqrt(np.square(sides[0]).sum(1) * np.square(sides[1]).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(constant, np.nan, (sides[0] * sides[1]).sum(1) / lengths)


def _resampled(rows: int, resamples: int, width: int = 1) -> Iterator[NDArray[np.int64]]:
    """(R, rows) places drawn with replacement, a row for each resample; so many resamples at a
    time that tables of `width` numbers for each place stay small."""
    at_once = max(1, AT_ONCE // (rows * max(1, width)))
    for begin in range(0, resamples, at_once):
        numbers = np.arange(begin, min(resamples, begin + at_once))
        yield integers(key("bootstrap", SEED, numbers), rows, rows)


def _counts(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """(R, size) how often each of the numbers below `size` stands in each row of `values`."""
    begins = np.arange(len(values))[:, None] * size
    return np.bincount((values + begins).ravel(), minlength=len(values) * size).reshape(-1, size)


def wilson(share: float, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a share by Wilson's score (1927): where all rows are right, so are all
    resamples of them, and yet the next one may be wrong. The share may be of halves, too."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    whole = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / whole
    half = z / whole * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return max(0.0, middle - half), min(1.0, middle + half)


def _spread(drawn: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Percentiles; none where all resamples are alike, which says nothing of other rows."""
    known = drawn[~np.isnan(drawn)]
    alike = not len(known) or _is_constant(known)
    return (math.nan, math.nan) if alike else _percentiles(drawn, level)


def _percentiles(drawn: NDArray[np.float64], level: float) -> tuple[float, float]:
    values = drawn[~np.isnan(drawn)]
    if len(values) < max(1, DEFINED * len(drawn)):
        return math.nan, math.nan
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
