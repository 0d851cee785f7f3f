"""Probabilities that can be used: temperature scaling, calibration error, abstention, thresholds.

    temperature         one number by which all scores are divided (Guo et al. 2017, section 4.2,
                        arXiv:1706.04599); the best class stays the same
    calibration error   of bins of equally many predictions, the mean distance between probability
                        and share of right ones (Guo et al. 2017, section 2; Nguyen & O'Connor 2015)
    coverage            the share of rows that are answered if those below a probability are not
                        (El-Yaniv & Wiener 2010, doi 10.5555/1756006.1859904)
    thresholds          of several labels, from which probability on each is an answer

All are chosen on rows that the model was not trained on, of which there must be `LEAST_ROWS`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.terminal import counted, decimals

BINS = 15
LEAST_ROWS = 20
LARGEST_TEMPERATURE = 20.0
LEAST_GAIN = 1.0  # nats, by which one parameter pays for itself (Akaike 1974)
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
# Thresholds that are tried, evenly spaced in the logit; rows that must have a label, and that must
# lack it, so that the label gets a threshold of its own.
CANDIDATES = (1 / (1 + np.exp(-np.arange(-5.0, 5.01, 0.25)))).round(6)
LEAST_OF_LABEL = 20


# ------------------------------------------------------------------------------ temperature
def log_loss(scores: NDArray[Any], truth: NDArray[np.int64]) -> float:
    """Return the negative log-likelihood, in nats and summed over rows, of classes (N,) by a
    softmax of `scores` (N, L), or of several labels (N, L) of 0 and 1 by logistic functions."""
    scores = scores.astype(np.float64)
    if truth.ndim == 1:
        logs = scipy.special.log_softmax(scores, axis=1)
        return float(-logs[np.arange(len(truth)), truth].sum())
    return float(np.logaddexp(0.0, np.where(truth > 0, -scores, scores)).sum())


def fit_temperature(scores: NDArray[Any], truth: NDArray[np.int64]) -> float:
    """Return the temperature by which `scores` (N, L) are best divided.

    It maximises the likelihood with a standard normal prior of its logarithm, which bounds it where
    all rows are right. It is 1 unless the `log_loss` of these rows falls by more than `LEAST_GAIN`,
    so that scores which are calibrated already stay as they are; the loss never rises.
    """

    def penalised(log_temperature: float) -> float:
        return log_loss(scores / np.exp(log_temperature), truth) + log_temperature**2 / 2

    bound = np.log(LARGEST_TEMPERATURE)
    best = scipy.optimize.minimize_scalar(penalised, bounds=(-bound, bound), method="bounded")
    temperature = float(np.exp(best.x))
    gain = log_loss(scores, truth) - log_loss(scores / temperature, truth)
    return temperature if gain > LEAST_GAIN else 1.0


# ------------------------------------------------------------------------------ reliability
@dataclass(frozen=True)
class Bin:
    """Predictions of similar probability: their mean probability, share of right ones, number."""

    probability: float
    share: float
    count: int


@dataclass(frozen=True)
class Coverage:
    """What remains if predictions below `threshold` are left out: their share of all, the share of
    right ones among them, and their number."""

    threshold: float
    coverage: float
    accuracy: float
    rows: int


@dataclass(frozen=True)
class Reliability:
    """Predictions with their probabilities.

    Attributes:
        probabilities: (N,) float64, of the predicted class of each row; of several labels, of each
            label of each row.
        right: (N,) whether the row has this class or label.
        answers: whether each row has one answer, from which the model can abstain.
    """

    probabilities: NDArray[np.float64]
    right: NDArray[np.bool_]
    answers: bool = True

    @cached_property
    def bins(self) -> list[Bin]:
        """At most `BINS` bins of equally many predictions, by rising probability."""
        order = np.argsort(self.probabilities, kind="stable")
        return [
            Bin(float(self.probabilities[rows].mean()), float(self.right[rows].mean()), len(rows))
            for rows in np.array_split(order, min(BINS, len(order)))
        ]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        distances = sum(point.count * abs(point.share - point.probability) for point in self.bins)
        return distances / len(self.right)

    @property
    def error_by_chance(self) -> float:
        """The calibration error to expect of a perfectly calibrated model with these probabilities,
        which is above 0 on few rows: the mean absolute value of normal deviates with the variance
        of each bin."""
        ordered = np.sort(self.probabilities)
        bins = np.array_split(ordered * (1 - ordered), min(BINS, len(ordered)))
        deviations = sum(np.sqrt(variances.sum()) for variances in bins)
        return float(np.sqrt(2 / np.pi) * deviations / len(ordered))

    def coverages(self) -> list[Coverage]:
        """Return the accuracy at each of `COVERAGES`; rows of equal probability stay together."""
        descending = -np.sort(-self.probabilities)
        curve: dict[float, Coverage] = {}
        for share in COVERAGES:
            threshold = float(descending[max(1, round(share * len(descending))) - 1])
            answered = self.probabilities >= threshold
            curve[threshold] = Coverage(
                threshold,
                float(answered.mean()),
                float(self.right[answered].mean()),
                int(answered.sum()),
            )
        return list(curve.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "ece": self.error,
            "ece_by_chance": self.error_by_chance,
            "bins": [asdict(point) for point in self.bins],
            **({"coverage": [asdict(point) for point in self.coverages()]} if self.answers else {}),
        }


@dataclass(frozen=True)
class CalibrationEffect:
    """What a temperature changed on rows that did not choose it; None: there were too few `rows` to
    choose one."""

    temperature: float | None
    rows: int
    before: Reliability
    after: Reliability

    @property
    def sentence(self) -> str:
        rows, after = counted(self.rows, "held-out row"), self.after
        error = f"calibration error {decimals(after.error)}"
        if self.temperature is None:
            return f"not calibrated: there are {rows}, and it takes {LEAST_ROWS}; {error}"
        chance = f"{decimals(after.error_by_chance)} is expected by chance"
        if self.temperature == 1.0:
            return f"no temperature is better than 1 on {rows}: {error}; {chance}"
        return (
            f"calibrated by a temperature of {decimals(self.temperature)} from {rows}: "
            f"{error}, {decimals(self.before.error)} before; {chance}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "rows": self.rows,
            "ece_before": self.before.error,
            **self.after.to_json(),
        }


# ------------------------------------------------------------------------------ thresholds
def select_thresholds(
    probabilities: NDArray[np.float64], truth: NDArray[np.int64], measure: str
) -> NDArray[np.float64]:
    """Return a threshold for each label (L,) that is good for `measure` of the labels (N, L) of 0
    and 1: "micro_f1", "macro_f1" or "accuracy" of whole rows.

    All labels share the best threshold, but those with at least `LEAST_OF_LABEL` rows on either
    side, of which each in turn gets the best one of its own. Where several are as good, or nearly,
    it is one in their middle. The metric of these rows is never below that of 0.5.
    """
    decided = probabilities >= CANDIDATES[:, None, None]  # C, N, L
    right, labels = (decided & (truth > 0)).sum(1), np.arange(truth.shape[1])
    total, positive = decided.sum(1), truth.sum(0)

    def values(choices: NDArray[np.int64]) -> NDArray[np.float64]:
        """The metric (K,) of K choices of a candidate for each label (K, L)."""
        if measure == "accuracy":
            return np.array([(truth == decided[row, :, labels].T).all(1).mean() for row in choices])
        hits, counts = right[choices, labels], total[choices, labels] + positive
        if measure == "micro_f1":
            return 2 * hits.sum(1) / np.maximum(1, counts.sum(1))
        return (2 * hits / np.maximum(1, counts)).mean(1)

    def best(choices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choice with the best metric, averaged over neighbouring ones."""
        padded = np.pad(values(choices), 1, mode="edge")
        return choices[int((padded[:-2] + 2 * padded[1:-1] + padded[2:]).argmax())]

    numbers, middle = np.arange(len(CANDIDATES)), len(CANDIDATES) // 2
    chosen = best(np.repeat(numbers[:, None], len(labels), axis=1))
    fewest = np.minimum(positive, len(truth) - positive)
    for label in np.flatnonzero(fewest >= LEAST_OF_LABEL):
        choices = np.tile(chosen, (len(CANDIDATES), 1))
        choices[:, label] = numbers
        chosen = best(choices)
    usual = np.full(len(labels), middle)
    before, after = values(np.stack([usual, chosen]))
    return CANDIDATES[chosen if after >= before else usual]
