"""Fault catalogue F79: the numbers against a slow reference, and where there is no number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled.tables import refusal
from maskwright.base.errors import DataError
from maskwright.base.metrics import intervals, metrics, row_metrics
from maskwright.base.metrics.intervals import Estimate, estimate, estimate_of_sums

CLASSES = st.integers(0, 3)
PAIRS = st.lists(st.tuples(CLASSES, CLASSES), min_size=1, max_size=40)
NUMBERS = st.integers(-50, 50).map(lambda n: n / 4)
NUMBER_PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30)


def apart(pairs: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    truth, predicted = zip(*pairs, strict=True)
    return np.array(truth), np.array(predicted)


# ------------------------------------------------------------------------------ slow references
def slow_f1(pairs: Sequence[tuple[int, int]], name: int) -> float:
    right = sum(t == p == name for t, p in pairs)
    told = sum(p == name for _, p in pairs) + sum(t == name for t, _ in pairs)
    return 2 * right / told if told else 0.0


def slow_matthews(pairs: Sequence[tuple[int, int]]) -> float:
    """As a correlation of indicators, summed over the classes."""

    def covariance(side: int, other: int) -> float:
        indicators = np.array(pairs)[:, :, None] == np.arange(4)
        x, y = indicators[:, side].astype(float), indicators[:, other].astype(float)
        return float(((x * y).mean(0) - x.mean(0) * y.mean(0)).sum())

    below = math.sqrt(covariance(0, 0) * covariance(1, 1))
    return covariance(0, 1) / below if below else math.nan


def slow_ranks(values: Sequence[float]) -> list[float]:
    return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]


def slow_pearson(x: Sequence[float], y: Sequence[float]) -> float:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    cross = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    below = math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
    return cross / below if below else math.nan


@given(PAIRS)
def test_F79_classes_against_the_reference(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = apart(pairs)
    present = set(truth.tolist()) | set(predicted.tolist())
    assert metrics.accuracy(truth, predicted) == pytest.approx(
        sum(t == p for t, p in pairs) / len(pairs)
    )
    f1 = [slow_f1(pairs, name) for name in present]
    assert metrics.macro_f1(truth, predicted) == pytest.approx(sum(f1) / len(f1))
    assert metrics.micro_f1(truth, predicted) == pytest.approx(metrics.accuracy(truth, predicted))
    assert metrics.matthews(truth, predicted) == pytest.approx(
        slow_matthews(pairs), nan_ok=True, abs=1e-9
    )
    counts = metrics.confusion(truth, predicted, 4)
    assert counts.sum() == len(pairs) and counts.trace() == sum(t == p for t, p in pairs)
    for figures in metrics.per_class(truth, predicted, "abcd"):
        name = "abcd".index(figures.name)
        assert figures.rows == counts[name].sum()
        if figures.rows:
            assert figures.recall == pytest.approx(counts[name, name] / figures.rows)
        else:
            assert math.isnan(figures.recall)


@given(NUMBER_PAIRS)
def test_F79_numbers_against_the_reference(pairs: list[tuple[float, float]]) -> None:
    truth, predicted = apart(pairs)
    assert metrics.pearson(truth, predicted) == pytest.approx(
        slow_pearson(truth, predicted), nan_ok=True, abs=1e-9
    )
    assert metrics.spearman(truth, predicted) == pytest.approx(
        slow_pearson(slow_ranks(truth), slow_ranks(predicted)), nan_ok=True, abs=1e-9
    )
    assert metrics.squared_error(truth, predicted) == pytest.approx(
        sum((t - p) ** 2 for t, p in pairs) / len(pairs)
    )


def test_F79_what_is_not_defined_is_nan() -> None:
    ones, mixed = np.ones(5), np.array([1.0, 2, 3, 4, 5])
    for metric in (metrics.matthews, metrics.pearson, metrics.spearman):
        for pair in ((ones, mixed), (mixed, ones), (ones, ones)):
            undefined = estimate(metric, *pair, resamples=20)
            assert np.isnan([undefined.value, undefined.low, undefined.high]).all()
    (_, figures) = metrics.per_class(np.zeros(3, int), np.zeros(3, int), ["a", "b"])
    assert math.isnan(figures.precision) and math.isnan(figures.f1) and figures.rows == 0


def test_F79_nothing_to_score_is_an_error() -> None:
    for metric in metrics.METRICS.values():
        refusal(DataError, lambda metric=metric: metric(np.array([]), np.array([])))
        error = refusal(DataError, lambda metric=metric: metric(np.ones(3), np.ones(2)))
        assert error.found == "(2,) predictions for (3,) labels"
    error = refusal(DataError, lambda: metrics.pearson(np.ones(2), np.array([1.0, np.nan])))
    assert error.where == "row 2" and error.found == "nan"


def test_several_labels_at_once() -> None:
    truth = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    predicted = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    assert metrics.accuracy(truth, predicted) == pytest.approx(1 / 3)
    assert metrics.micro_f1(truth, predicted) == pytest.approx(2 * 2 / (3 + 3))
    assert metrics.macro_f1(truth, predicted) == pytest.approx((1 + 1 + 0) / 3)


# ------------------------------------------------------------------------------ intervals
def drawn(metric: metrics.Metric, truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The metric of six resamples, together; a `partial` of it is computed one by one."""
    _, of = intervals.of_rows(metric, truth, predicted)
    return np.concatenate([of(indices) for indices in intervals.resample_indices(len(truth), 6)])


@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_figures_of_counts_are_those_of_the_rows(tables: list[list[tuple[int, int]]]) -> None:
    counts = np.stack([metrics.confusion(*apart(pairs), 4) for pairs in tables])
    for metric, values in intervals.of_counts(counts).items():
        assert values == pytest.approx([metric(*apart(p)) for p in tables], nan_ok=True, abs=1e-12)


def test_resamples_in_portions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    one, several = draw.integers(0, 5, (2, 40)), draw.integers(0, 2, (2, 40, 3))
    numbers = draw.random((2, 40))
    inputs = {
        **dict.fromkeys(("accuracy", "macro_f1", "matthews"), one),
        **dict.fromkeys(("spearman", "squared_error"), numbers),
        "micro_f1": several,
    }

    def estimates() -> list[Estimate]:
        of_labels = estimate(metrics.macro_f1, *several)
        ratio = intervals.estimate_of_sums(lambda sums: sums[:, 0] / sums[:, 1], several[0] + 1)
        by_name = [estimate(metrics.METRICS[name], *rows) for name, rows in inputs.items()]
        return [of_labels, ratio, *by_name]

    whole = estimates()
    monkeypatch.setattr("maskwright.base.metrics.intervals.AT_ONCE", 7 * 40)
    assert estimates() == whole


NUMBERS = st.lists(
    st.tuples(*[st.floats(-1e6, 1e6) | st.integers(0, 3)] * 2), min_size=2, max_size=12
)


def same_one_by_one(names: Sequence[str], truth: np.ndarray, predicted: np.ndarray) -> None:
    for name in names:
        metric = metrics.METRICS[name]
        together, one_by_one = (drawn(m, truth, predicted) for m in (metric, partial(metric)))
        assert together == pytest.approx(one_by_one, nan_ok=True, rel=1e-6, abs=1e-6)


@given(NUMBERS)
def test_resamples_of_numbers_together_are_those_one_by_one(pairs: list[tuple[float, ...]]) -> None:
    same_one_by_one(("pearson", "spearman", "squared_error"), *np.array(pairs, np.float64).T)


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(0, 4), st.integers(0, 2**32))
def test_resamples_of_classes_or_labels_together_are_those_one_by_one(
    rows: int, labels: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    if labels == 0:
        names = ("accuracy", "macro_f1", "matthews")
        same_one_by_one(names, *draw.integers(0, 3, (2, 6 * rows)))
    else:
        names = ("accuracy", "macro_f1", "micro_f1")
        same_one_by_one(names, *draw.integers(0, 2, (2, rows, labels)))


def test_an_interval_holds_the_figure_and_is_the_same_each_time() -> None:
    truth = np.arange(400) % 2
    predicted = np.where(np.arange(400) % 10 == 0, 1 - truth, truth)
    one, other = (estimate(metrics.accuracy, truth, predicted, resamples=200) for _ in range(2))
    assert one == other and one.value == 0.9
    error = math.sqrt(0.9 * 0.1 / 400)
    assert one.low == pytest.approx(0.9 - 1.96 * error, abs=0.01)
    assert one.high == pytest.approx(0.9 + 1.96 * error, abs=0.01)


def test_all_right_is_not_certain() -> None:
    """Eight of eight: Wilson's interval begins at 8 / (8 + 1.96²) = 0.676."""
    right = np.arange(8) % 2
    perfect = estimate(metrics.accuracy, right, right)
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(0.6756, abs=1e-3)
    assert math.isnan(estimate(metrics.matthews, right, right).low), "its resamples say nothing"
    none = estimate(metrics.accuracy, right, 1 - right, resamples=50)
    assert (none.value, none.low) == (0.0, 0.0) and none.high == pytest.approx(0.3244, abs=1e-3)
    mean = row_metrics.means(["f1"], np.ones((5, 1)))["f1"].estimate()
    assert mean.value == 1.0 and math.isnan(mean.low)
    for least, is_unknown in ((4, True), (1, False)):  # 1 in few, or in many, of the resamples
        some = estimate_of_sums(lambda sums, n=least: (sums[:, 0] > n) * 1.0, np.eye(7)[:, :1])
        assert math.isnan(some.low) is is_unknown
    assert Estimate(-0.0, math.nan, math.nan).render() == "0.0000"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_correlations_do_not_depend_on_the_unit(scale: float) -> None:
    draw = np.random.default_rng(0)
    truth, noise = draw.random(60), draw.random(60)
    for metric in (metrics.pearson, metrics.spearman):
        plain = estimate(metric, truth, truth + noise)
        other = estimate(metric, scale * truth, scale * (truth + noise))
        for name in ("value", "low", "high"):
            assert getattr(other, name) == pytest.approx(getattr(plain, name), abs=1e-12)
        assert plain.low < plain.value - 0.01, "a control: there is something to be found"
        # A perfect correlation is 1 in every resample but for its last bits: that is no interval.
        perfect = estimate(metric, truth, scale * (2 * truth + 1))
        assert perfect.value == pytest.approx(1.0) and math.isnan(perfect.low)
