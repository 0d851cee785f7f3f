"""Intervals and tests against scipy's and against plain simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from maskwright.base.metrics import seeds
from maskwright.base.metrics.intervals import wilson

RANDOM = np.random.default_rng(0)


def test_the_bootstrap_agrees_with_the_normal_interval_and_with_scipys() -> None:
    """Other draws: the ends differ by what resamples of a percentile differ."""
    strata = [(RANDOM.random(400) < p).astype(float) for p in (0.5, 0.8, 0.9)]
    error = math.sqrt(sum(values.var(ddof=1) / 400 for values in strata)) / 3
    normal = stats.norm.interval(0.95, seeds.mean(strata), error)
    assert seeds.bootstrap(strata) == pytest.approx(normal, abs=0.006)
    options = {"n_resamples": 2000, "method": "percentile", "rng": np.random.default_rng(1)}
    theirs = stats.bootstrap(strata[1:2], np.mean, **options).confidence_interval
    assert seeds.bootstrap(strata[1:2]) == pytest.approx(tuple(theirs), abs=0.012)


def test_items_that_are_all_alike_say_nothing_of_others() -> None:
    alike = [np.full(50, 0.5), np.full(3, 1.0)]
    assert seeds.bootstrap(alike) is None
    ends = seeds.bootstrap([*alike, np.array([0.0, 1.0, 1.0])])  # the control
    assert ends is not None and ends[0] < ends[1]
    assert seeds.bootstrap([np.array([1.0]), np.array([0.0, 1.0, 1.0])]) is None


def test_resamples_are_the_same_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    strata = [(RANDOM.random(40) < 0.5).astype(float)]
    whole = seeds.bootstrap(strata)
    monkeypatch.setattr(seeds, "AT_ONCE", 100)
    assert seeds.bootstrap(strata) == whole


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_spread_over_seeds_equals_scipys_interval(count: int) -> None:
    values = RANDOM.normal(0.8, 0.01, count)
    spread = seeds.over_seeds(values.tolist())
    assert (spread.mean, spread.deviation) == pytest.approx((values.mean(), values.std(ddof=1)))
    theirs = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert (spread.low, spread.high) == pytest.approx(theirs, rel=1e-12)
    assert math.isnan(seeds.over_seeds([1.0]).deviation)
    undefined = seeds.over_seeds([0.5, math.nan, 0.25])  # a correlation of answers all alike
    assert np.isnan([undefined.mean, undefined.deviation]).all() and undefined.count == 3


@pytest.mark.parametrize(("right", "count"), [(0, 4), (0, 500), (3, 7), (70, 100), (500, 500)])
def test_wilsons_interval_equals_scipys(right: int, count: int) -> None:
    theirs = stats.binomtest(right, count).proportion_ci(0.95, "wilson")
    low, high = wilson(right / count, count)
    assert (low, high) == pytest.approx(tuple(theirs), abs=1e-12)
    assert (low == 0) == (right == 0) and (high == 1) == (right == count)


@pytest.mark.parametrize("counts", [(2, 2), (3, 3), (5, 3)])
def test_differences_equal_scipys_tests(counts: tuple[int, int]) -> None:
    a, b = (RANDOM.normal(size=n) for n in counts)
    gap = seeds.difference(dict(enumerate(a)), dict(enumerate(b)))
    assert gap is not None and gap.paired == (len(a) == len(b))
    theirs = stats.ttest_rel(a, b) if gap.paired else stats.ttest_ind(a, b, equal_var=False)
    interval = theirs.confidence_interval()
    assert (gap.p, gap.low, gap.high) == pytest.approx((theirs.pvalue, interval.low, interval.high))


def test_figures_without_spread_and_single_seeds() -> None:
    for ours, theirs in (
        ({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}),  # not known, not alike
        ({0: math.nan, 1: 1.0}, {0: 1.0, 1: 2.0}),
        ({0: 2.0, 1: 2.0}, {0: 1.0, 1: 1.0}),
        ({0: 1.0}, {0: 2.0, 1: 1.0}),
    ):
        assert seeds.difference(ours, theirs) is None
    beside = seeds.difference({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.5})  # as far apart by seed
    assert beside is not None and not beside.paired and 0.0 < beside.p < 1.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_figures_that_are_alike_but_for_rounding_are_alike(scale: float) -> None:
    """0.86 three times has a variance of 1e-32 as computers add, and no spread."""
    same = seeds.difference(
        dict.fromkeys(range(3), 0.1 * scale), dict.fromkeys(range(3), 0.7 * scale)
    )
    assert same is None
    a, b = ({n: (value + n / 10) * scale for n in range(3)} for value in (0.7, 0.6))
    beside = seeds.difference(a, b)
    assert beside is not None and not beside.paired and beside.p > 0.1
    alike = seeds.difference(a, {n: value + 1e-17 * scale for n, value in a.items()})
    assert alike is not None and alike.p == 1.0
    # A control: gaps that differ by more than rounding are told apart, and alike at every scale.
    gaps = {n: value + (0.1 + 1e-9 * n) * scale for n, value in b.items()}
    told = seeds.difference(gaps, b)
    assert told is not None and told.paired and 0.0 < told.p < 1e-9
