"""Calibration: on scores whose temperature is known, on rows counted by hand, with controls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from maskwright.base.metrics import calibration
from maskwright.base.metrics.calibration import CANDIDATES, Reliability
from maskwright.base.metrics.metrics import METRICS


def classes(rows: int, seed: int = 0, labels: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose softmax is the probability of the classes drawn."""
    draw = np.random.default_rng(seed)
    scores = 2 * draw.normal(size=(rows, labels))
    shares = special.softmax(scores, axis=1)
    return scores, (shares.cumsum(1) < draw.random((rows, 1))).sum(1)


def several(rows: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of six labels, too low by the factor `scale`, and the labels; the last label
    is that of a row or two."""
    draw = np.random.default_rng(seed)
    shares = special.expit(2 * draw.normal(size=(rows, 6)) - 1)
    shares[:, 5] *= 2 / rows
    return shares * scale, (draw.random(shares.shape) < shares).astype(np.int64)


def reliability(scores: np.ndarray, truth: np.ndarray) -> Reliability:
    return Reliability(special.softmax(scores, axis=1).max(1), scores.argmax(1) == truth)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_of_scores_is_found_again(temperature: float) -> None:
    scores, truth = classes(4000)
    fitted = calibration.fit_temperature(scores * temperature, truth)
    assert fitted == pytest.approx(temperature, rel=0.1)
    new_scores, new_truth = classes(4000, seed=1)
    error = reliability(new_scores * temperature / fitted, new_truth)
    assert error.error < 2 * error.error_by_chance
    if temperature != 1.0:
        control = reliability(new_scores * temperature, new_truth)
        assert control.error > 4 * control.error_by_chance, "the control"


def test_several_labels_share_a_temperature() -> None:
    shares, truth = several(3000, 0)
    assert calibration.fit_temperature(2 * special.logit(shares), truth) == pytest.approx(2, 0.1)


def test_the_rows_that_chose_a_temperature_never_get_less_likely() -> None:
    cases = [classes(20, seed) for seed in range(40)]
    cases += [(scores, (truth + 1) % 4) for scores, truth in cases[:20]]
    certain, labels = 50 * np.eye(4)[np.arange(20) % 4], np.arange(20) % 4
    cases += [(certain, labels), (np.zeros((20, 4)), labels)]
    worse = 0
    for scores, truth in cases:
        before = calibration.log_loss(scores, truth)
        temperature = calibration.fit_temperature(scores, truth)
        assert 0.05 <= temperature <= 20
        assert calibration.log_loss(scores / temperature, truth) <= before
        worse += calibration.log_loss(scores / 2.0, truth) > before
    assert worse > 5, "the control: of one temperature for all"


def test_bins_and_coverage_counted_by_hand() -> None:
    """Thirty rows make fifteen bins of two, each with one right: 0.5 for the mean of its two."""
    shares = np.arange(30)[::-1] / 100 + 0.6
    rows = Reliability(shares, np.arange(30) % 2 == 0)
    assert [point.count for point in rows.bins] == [2] * 15
    assert rows.error == pytest.approx(shares.mean() - 0.5)
    whole, *_, least = rows.coverages()
    assert (whole.threshold, whole.coverage, whole.accuracy) == (pytest.approx(0.6), 1.0, 0.5)
    assert (least.rows, least.accuracy) == (3, pytest.approx(2 / 3))
    alike = Reliability(np.full(30, 0.7), rows.right)
    assert [point.rows for point in alike.coverages()] == [30], "equal rows stay together"


def test_a_calibrated_model_has_the_error_of_chance() -> None:
    models = [reliability(*classes(200, seed)) for seed in range(60)]
    error, by_chance = np.mean([(rows.error, rows.error_by_chance) for rows in models], 0)
    assert error == pytest.approx(by_chance, rel=0.1)


@pytest.mark.parametrize("measure", ["micro_f1", "macro_f1", "accuracy"])
def test_thresholds_make_up_for_probabilities_that_are_too_low(measure: str) -> None:
    shares, truth = several(400, 0, scale=0.3)
    thresholds = calibration.select_thresholds(shares, truth, measure)
    new_shares, new_truth = several(2000, 1, scale=0.3)

    def value(limits: np.ndarray | float) -> float:
        return METRICS[measure](new_truth, (new_shares >= limits).astype(np.int64))

    assert set(thresholds) <= set(CANDIDATES)
    assert value(thresholds) > value(0.5) + 0.02
    fair_shares, _ = several(2000, 1)
    fair = METRICS[measure](new_truth, (fair_shares >= 0.5).astype(np.int64))
    assert value(thresholds) > fair - 0.03


def test_a_label_of_few_rows_shares_its_threshold() -> None:
    shares, truth = several(400, 0)
    shares[:, 0] **= 4  # this label needs a threshold of its own
    thresholds = calibration.select_thresholds(shares, truth, "macro_f1")
    assert thresholds[0] < min(thresholds[1:5]), "the control"
    truth[:, 0] = np.arange(400) < calibration.LEAST_OF_LABEL - 1
    thresholds = calibration.select_thresholds(shares, truth, "macro_f1")
    assert thresholds[0] == thresholds[5]


def test_thresholds_are_never_worse_than_a_half_on_their_rows() -> None:
    for seed in range(20):
        shares, truth = several(24, seed, scale=1.0 if seed % 2 else 0.5)
        for measure in ("micro_f1", "macro_f1", "accuracy"):
            limits = calibration.select_thresholds(shares, truth, measure)
            chosen, halves = ((shares >= limit).astype(np.int64) for limit in (limits, 0.5))
            assert METRICS[measure](truth, chosen) >= METRICS[measure](truth, halves)
