"""The planned precision of a score holds in simulated comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from maskwright.base.metrics.intervals import Estimate, wilson
from maskwright.base.metrics.paired import of_shares
from maskwright.base.metrics.power import correlation_half_width, half_width, smallest_difference


def power(accuracy: float, rows: int, difference: float, draws: int = 500) -> float:
    """The share of simulated comparisons in which a difference is found, if the models differ in
    p (1 - p) of the rows."""
    generator = np.random.default_rng(0)
    disagreement = max(accuracy * (1 - accuracy), difference)
    better, worse = (disagreement + difference) / 2, (disagreement - difference) / 2
    hits = 0
    for draw in generator.random((draws, rows)):
        hits += of_shares(draw < better, (draw >= better) & (draw < better + worse)).p < 0.05
    return hits / draws


@pytest.mark.parametrize(("accuracy", "rows"), [(0.8, 120), (0.9, 500), (0.6, 1000)])
def test_the_smallest_difference_is_found_in_four_of_five_cases(accuracy: float, rows: int) -> None:
    difference = smallest_difference(accuracy, rows)
    assert 0.72 < power(accuracy, rows, difference) < 0.88
    assert power(accuracy, rows, difference / 2) < 0.5, "the control"


def test_intervals_of_planned_scores() -> None:
    low, high = wilson(0.8, 120)
    assert half_width(0.8, 120) == (high - low) / 2
    assert smallest_difference(0.8, 480) < smallest_difference(0.8, 120) < 0.2
    assert np.isnan(correlation_half_width(0.8, 4))
    always_right = smallest_difference(1.0, 120)  # once 0
    assert always_right == pytest.approx(2.8016**2 / 120, rel=0.02)
    assert smallest_difference(0.999, 120) == pytest.approx(always_right, rel=0.01)
    generator = np.random.default_rng(0)
    shared, noise = generator.normal(size=(2, 2000, 100))
    ranked = np.argsort(np.argsort(np.stack([shared, 0.8 * shared + 0.6 * noise]))).astype(float)
    drawn = [np.corrcoef(one, two)[0, 1] for one, two in zip(*ranked, strict=True)]
    assert correlation_half_width(float(np.mean(drawn)), 100) == pytest.approx(
        1.96 * np.std(drawn), rel=0.1
    )


def test_differences_of_independent_rows_are_covered() -> None:
    """The control is the interval of one share alone, moved to the difference."""
    generator, truth, covered = np.random.default_rng(0), 0.85 - 0.7, np.zeros(2)
    for _ in range(1_000):
        shares = generator.binomial(60, 0.85) / 60, generator.binomial(40, 0.7) / 40
        ours, theirs = (
            Estimate(share, *wilson(share, n)) for share, n in zip(shares, (60, 40), strict=True)
        )
        difference = ours.minus(theirs)
        covered[0] += difference.low <= truth <= difference.high
        covered[1] += ours.low - theirs.value <= truth <= ours.high - theirs.value
    assert 0.93 <= covered[0] / 1_000 <= 0.97 and covered[1] / 1_000 < 0.85
