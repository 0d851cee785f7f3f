"""Linear models on fixed vectors: logistic and ridge regression with a cross-validated penalty.

    classes     multinomial logistic regression; the penalty with the least log loss out of fold
    labels      a logistic regression for each label, each with its own penalty
    numbers     ridge regression; the penalty with the least squared error, leave-one-out

Vectors are centred, and divided by one number, their root mean square deviation: the penalty then
has the same meaning for every network, and directions with little variance are not inflated. Both
are folded into the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from maskwright.base.randomness import key

Problem = Literal["single", "multi", "number"]
FloatArray = NDArray[np.floating[Any]]
# Inverse penalties of logistic regression, from the strongest penalty, and penalties of ridge
# regression, for vectors whose dimensions have a mean variance of 1.
STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-8, 3))
PENALTIES = tuple(10.0 ** (n / 2) for n in range(-4, 13))
USUAL_STRENGTH = 0.1  # with too few rows to select one
FOLDS = 5
# With more rows the penalty is selected on a random sample of this size.
SAMPLE = 4_000
STEPS = 500
LEAST = 1e-12  # probability, in a log loss


def fit_linear(
    vectors: FloatArray,
    targets: NDArray[Any],
    problem: Problem,
    outputs: int,
    seed: int = 0,
    class_weights: Sequence[float] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Fit a linear model, whose scores `vectors @ weight.T + bias` are logits, or numbers.

    Args:
        vectors: (N, D).
        targets: (N,) classes, or (N, L) zeros and ones or numbers.
        outputs: number of scores L.
        seed: of the folds.
        class_weights: factor on the loss of each class, or of the rows that have each label.

    Returns:
        weight (L, D) and bias (L,), float64.
    """
    vectors = vectors.astype(np.float64)
    centre = vectors.mean(0)
    spread = float(np.sqrt(np.square(vectors - centre).mean())) or 1.0
    scaled = (vectors - centre) / spread
    factors = np.ones(outputs) if class_weights is None else np.asarray(class_weights)
    if problem == "number":
        from sklearn.linear_model import RidgeCV

        numbers = targets.astype(np.float64).reshape(len(targets), outputs)
        model = RidgeCV(alphas=PENALTIES).fit(scaled, numbers)
        weight, bias = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    elif problem == "multi":
        fits = [
            _logistic(scaled, column.astype(np.int64), np.array([1.0, factor]), seed)
            for column, factor in zip(targets.T, factors, strict=True)
        ]
        weight = np.stack([weights[1] - weights[0] for weights, _ in fits])
        bias = np.array([biases[1] - biases[0] for _, biases in fits])
    else:
        weight, bias = _logistic(scaled, targets.astype(np.int64), factors, seed)
    weight = weight / spread
    return weight, bias - weight @ centre


def _logistic(
    vectors: FloatArray, classes: NDArray[np.int64], factors: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Fit a multinomial logistic regression with the `factors` of each class on its loss; classes
    without a row get the log-odds of half a row. Return weight and bias."""
    count = len(factors)
    present = np.unique(classes)
    weight = np.zeros((count, vectors.shape[1]))
    bias = np.full(count, np.log(0.5 / len(classes)))
    if len(present) == 1:
        bias[present] = np.log((len(classes) - 0.5) / len(classes))
        return weight, bias
    strength = _select_strength(vectors, classes, factors, seed)
    model = _regressions(vectors, classes, factors, [strength])[0]
    if len(present) == 2:
        weight[present] = np.concatenate([-model.coef_, model.coef_]) / 2
        bias[present] = np.concatenate([-model.intercept_, model.intercept_]) / 2
    else:
        weight[present], bias[present] = model.coef_, model.intercept_
    return weight, bias


def _select_strength(
    vectors: FloatArray, classes: NDArray[np.int64], factors: FloatArray, seed: int
) -> float:
    """Return the inverse penalty with the least log loss out of fold, on at most `SAMPLE` rows; the
    usual one if fewer than two classes have two rows there."""
    from sklearn.model_selection import StratifiedKFold

    random_state = int(key("split", seed)) % (1 << 32)
    if len(classes) > SAMPLE:
        chosen = np.random.default_rng(random_state).permutation(len(classes))[:SAMPLE]
        vectors, classes = vectors[chosen], classes[chosen]
    counts = np.sort(np.unique(classes, return_counts=True)[1])
    folds = min(FOLDS, int(counts[-2])) if len(counts) > 1 else 1
    if folds < 2:
        return USUAL_STRENGTH
    losses = np.zeros(len(STRENGTHS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer rows than folds
        splits = list(
            StratifiedKFold(folds, shuffle=True, random_state=random_state).split(vectors, classes)
        )
    for train, held_out in splits:
        models = _regressions(vectors[train], classes[train], factors, STRENGTHS)
        for number, model in enumerate(models):
            shares = np.full((len(held_out), int(classes.max()) + 1), LEAST)
            shares[:, model.classes_] = model.predict_proba(vectors[held_out])
            right = shares[np.arange(len(held_out)), classes[held_out]]
            losses[number] -= factors[classes[held_out]] @ np.log(np.maximum(right, LEAST))
    return STRENGTHS[int(losses.argmin())]


@threadpool_limits.wrap(limits=1)  # several threads would wait for each other most of the time
def _regressions(
    vectors: FloatArray, classes: NDArray[np.int64], factors: FloatArray, strengths: Sequence[float]
) -> list[Any]:
    """Fit a logistic regression for each inverse penalty, each from the solution before it."""
    import copy

    from sklearn.linear_model import LogisticRegression

    model, models = LogisticRegression(max_iter=STEPS, warm_start=True), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not converged; many classes of few rows
        for strength in strengths:
            model.set_params(C=strength).fit(vectors, classes, sample_weight=factors[classes])
            models.append(copy.deepcopy(model))
    return models
