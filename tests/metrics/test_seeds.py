"""Intervals and tests against scipy's and against plain simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from maskwright.base.metrics import seeds
from maskwright.base.metrics.intervals import wilson

RANDOM = np.random.default_rng(0)


def test_the_bootstrap_agrees_with_the_normal_interval_where_items_are_many() -> None:
    strata = [(RANDOM.random(400) < p).astype(float) for p in (0.5, 0.8, 0.9)]
    error = math.sqrt(sum(values.var(ddof=1) / 400 for values in strata)) / 3
    middle = seeds.mean(strata)
    normal = (middle - 1.959964 * error, middle + 1.959964 * error)
    assert seeds.bootstrap(strata) == pytest.approx(normal, abs=0.006)


def test_items_that_are_all_alike_say_nothing_of_others() -> None:
    alike = [np.full(50, 0.5), np.full(3, 1.0)]
    assert seeds.bootstrap(alike) is None
    found = seeds.bootstrap([*alike, np.array([0.0, 1.0, 1.0])])  # the control
    assert found is not None and found[0] < found[1]
    assert seeds.bootstrap([np.array([1.0]), np.array([0.0, 1.0, 1.0])]) is None


def test_resamples_are_the_same_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    strata = [(RANDOM.random(40) < 0.5).astype(float)]
    whole = seeds.bootstrap(strata)
    monkeypatch.setattr(seeds, "AT_ONCE", 100)
    assert seeds.bootstrap(strata) == whole


def test_about_one_interval_in_twenty_misses() -> None:
    """Coverage over 400 draws: between 91 and 98 of a hundred."""
    hits = 0
    for _ in range(400):
        found = seeds.bootstrap([(RANDOM.random(80) < 0.7).astype(float)], resamples=200)
        assert found is not None
        hits += found[0] <= 0.7 <= found[1]
    assert 0.91 < hits / 400 < 0.985


def test_seeds_by_hand() -> None:
    spread = seeds.over_seeds([1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert (spread.mean, spread.deviation) == (2.0, 1.0)
    assert (spread.low, spread.high) == pytest.approx((2 - half, 2 + half))
    assert math.isnan(seeds.over_seeds([1.0]).deviation)
    undefined = seeds.over_seeds([0.5, math.nan, 0.25])  # a correlation of answers all alike
    assert math.isnan(undefined.mean) and math.isnan(undefined.deviation) and undefined.count == 3


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_spread_over_seeds_equals_scipys_interval(count: int) -> None:
    values = RANDOM.normal(0.8, 0.01, count)
    found = seeds.over_seeds(values.tolist())
    theirs = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize(("right", "count"), [(0, 4), (0, 500), (3, 7), (70, 100), (500, 500)])
def test_wilsons_interval_equals_scipys(right: int, count: int) -> None:
    theirs = stats.binomtest(right, count).proportion_ci(0.95, "wilson")
    found = wilson(right / count, count)
    assert found == pytest.approx(tuple(theirs), abs=1e-12)
    assert (found[0] == 0) == (right == 0) and (found[1] == 1) == (right == count)


def test_the_bootstrap_agrees_with_scipys() -> None:
    """Other draws: the ends differ by what resamples of a percentile differ."""
    items = (RANDOM.random(300) < 0.7).astype(float)
    theirs = stats.bootstrap(
        (items,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert seeds.bootstrap([items]) == pytest.approx(tuple(theirs), abs=0.012)


@pytest.mark.parametrize("counts", [(2, 2), (3, 3), (5, 3)])
def test_differences_equal_scipys_tests(counts: tuple[int, int]) -> None:
    a, b = (RANDOM.normal(size=n) for n in counts)
    found = seeds.difference(dict(enumerate(a)), dict(enumerate(b)))
    assert found is not None
    theirs = stats.ttest_ind(a, b, equal_var=False)
    if found.paired:
        theirs = stats.ttest_rel(a, b)
    interval = theirs.confidence_interval()
    assert found.paired == (counts[0] == counts[1]) and found.p == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_figures_without_spread_and_single_seeds() -> None:
    assert seeds.difference({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}) is None  # not known, not alike
    assert seeds.difference({0: math.nan, 1: 1.0}, {0: 1.0, 1: 2.0}) is None
    assert seeds.difference({0: 2.0, 1: 2.0}, {0: 1.0, 1: 1.0}) is None
    beside = seeds.difference({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.5})  # as far apart by seed
    assert beside is not None and not beside.paired and 0.0 < beside.p < 1.0
    assert seeds.difference({0: 1.0}, {0: 2.0, 1: 1.0}) is None


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
