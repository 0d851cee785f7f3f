"""A PAC-Bayes bound on a linear problem, whose errors are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from maskwright.base.metrics.pac_bayes import DEVIATIONS, PacBayesBound, bound_error, kl_inverse


def test_the_inverse_by_hand() -> None:
    assert kl_inverse(0.0, 0.3) == pytest.approx(1 - math.exp(-0.3))
    for share, limit in ((0.1, 0.05), (0.5, 0.2), (0.9, 1.0)):
        q = kl_inverse(share, limit)
        kl = share * math.log(share / q) + (1 - share) * math.log((1 - share) / (1 - q))
        assert kl == pytest.approx(limit) and q > share
    assert kl_inverse(0.2, 0.0) == pytest.approx(0.2) and kl_inverse(1.0, 0.5) == 1.0


def linear(rows: int, shuffled: bool) -> tuple[PacBayesBound, float]:
    """The bound of a linear model on two normal classes, and the error of its random weights."""
    random = np.random.default_rng(0)
    labels = random.choice([-1.0, 1.0], rows)
    vectors = random.normal(size=(rows, 5)) + np.outer(labels, [2.0, 0, 0, 0, 0])
    if shuffled:
        labels = random.permutation(labels)
    weight = np.linalg.lstsq(vectors, labels, rcond=None)[0]
    norms = np.linalg.norm(vectors, axis=1)

    def error_of(deviation: float, draw: int) -> float:
        drawn = weight + deviation * np.random.default_rng(draw).normal(size=5)
        return float((np.sign(vectors @ drawn) != labels).mean())

    found = bound_error(float(weight @ weight), rows, error_of)
    margins = labels * (vectors @ weight) / (found.deviation * norms)
    return found, float(stats.norm.cdf(-margins).mean())


def test_a_linear_problem_has_a_bound_that_says_something_and_shuffled_labels_none() -> None:
    found, error = linear(2000, shuffled=False)
    assert error < found.value < 0.3 and found.deviation in DEVIATIONS
    assert found.error == pytest.approx(error, abs=0.03)
    assert found.divergence == pytest.approx(0.5 * 0.16 / found.deviation**2, rel=0.2)
    shuffled, error = linear(2000, shuffled=True)
    assert error > 0.4 and shuffled.value > 0.5, "the control: nothing is known of chance"


def test_weights_that_moved_far_for_their_rows_have_a_vacuous_bound() -> None:
    drawn = list[float]()
    found = bound_error(1e9, 100, lambda deviation, _: drawn.append(deviation) or 0.0)
    assert (found.value, found.error, drawn) == (1.0, None, [])
