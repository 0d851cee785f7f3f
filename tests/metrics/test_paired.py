"""Paired comparisons: by hand, and by simulation of their false alarms, coverage and power.

Each simulated rate must lie in the band in which a binomial count with the nominal rate lies in
999 of 1000 repetitions; the faults that were once made here, simulated as controls, do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from maskwright.ask.evaluate import slices
from maskwright.ask.evaluate.compare_report import Comparison, Metric, RecipeReport, Run, verdicts
from maskwright.base.metrics import intervals, paired
from maskwright.base.metrics.intervals import estimate, estimate_of_sums, wilson
from maskwright.base.metrics.metrics import accuracy, macro_f1, matthews, pearson, spearman
from maskwright.base.metrics.paired import Rival, verdict
from maskwright.base.metrics.row_metrics import ArrayMetric
from maskwright.base.metrics.seeds import difference, p_by_seed
from maskwright.learn.tasks.base.task_type import TaskMetrics

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def draws_of_its_own() -> None:
    """What a test draws does not depend on the tests before it."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


def band(rate: float, count: int) -> float:
    """The most alarms among `count` that are compatible with this rate."""
    return float(stats.binom.ppf(0.999, count, rate)) / count


def share(count: int, alarm: Callable[[], bool]) -> float:
    return sum(alarm() for _ in range(count)) / count


# ------------------------------------------------------------------------------ by hand
def test_shares_by_hand() -> None:
    first = np.array([True] * 9 + [False] * 3)
    second = np.array([True] * 3 + [False] * 6 + [True] + [False] * 2)  # gains 6, loses 1
    gap = paired.of_shares(first, second)
    binomial = stats.binom(7, 0.5)
    assert gap.value == pytest.approx(5 / 12) and gap.rows == 12
    assert gap.p == pytest.approx(2 * binomial.cdf(1) - binomial.pmf(1))
    assert gap.low < gap.value < gap.high
    every = np.full(12, True)
    assert paired.of_shares(every, ~every).high == 1.0 == -paired.of_shares(~every, every).low
    alike = paired.of_shares(first, first)
    assert (alike.value, alike.p, alike.is_significant) == (0.0, 1.0, False)


def test_accuracy_is_compared_by_its_rows_and_other_metrics_by_resampling() -> None:
    truth = np.tile([0, 1, 2], 40)
    right, half = truth.copy(), np.where(np.arange(120) % 2, truth, 0)
    of_shares = paired.of_shares(right == truth, half == truth)
    assert paired.of_metric(accuracy, truth, right, half) == of_shares
    gap = paired.of_metric(macro_f1, truth, right, half)
    assert gap.value == pytest.approx(1 - macro_f1(truth, half)) and gap.is_significant
    swapped = paired.of_metric(macro_f1, truth, half, right)
    assert swapped.value == -gap.value and swapped.p == gap.p
    counts = [np.stack([x == truth, np.ones(120)], 1).astype(float) for x in (right, half)]
    of_sums = paired.of_sums(lambda sums: sums[:, 0] / sums[:, 1], *counts)
    assert of_sums.value == pytest.approx(of_shares.value) and of_sums.is_significant


def test_holm_by_hand() -> None:
    assert paired.holm([0.01, 0.04, 0.03, math.nan]) == pytest.approx(
        [0.03, 0.06, 0.06, math.nan], nan_ok=True
    )
    assert paired.holm([0.9, 0.8]) == [1.0, 1.0] and paired.holm([]) == []


# ------------------------------------------------------------------------------ simulations
def guesses(rows: int, skill: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    truth = RANDOM.integers(0, 2, rows)
    return truth, np.where(RANDOM.random(rows) < skill, truth, RANDOM.integers(0, 2, rows))


@pytest.mark.parametrize("rows", [4, 20])
def test_no_skill_gives_no_correlation(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: percentiles of the defined resamples, as they are."""

    def alarm() -> bool:
        interval = estimate(matthews, *guesses(rows), resamples=100)
        return interval.low > 0 or interval.high < 0

    assert share(100, alarm) <= band(0.05, 100)
    monkeypatch.setattr(intervals, "DEFINED", 0.5)
    monkeypatch.setattr(intervals, "permutation_p", lambda *_: 0.0)
    assert rows == 20 or share(100, alarm) > band(0.05, 100)


@pytest.mark.parametrize("seeds", [2, 5])
def test_seeds_count_in_a_difference_over_rows(seeds: int) -> None:
    """Two equal methods, whose difference varies by rows and by seeds. The control: rows alone."""
    random = np.random.default_rng(0)

    def alarm(count_seeds: bool) -> bool:
        sides = random.normal(0.8, 0.03, (2, seeds)) + random.normal(0, 0.01, (2, 1))
        value = float(sides[0].mean() - sides[1].mean())
        half = 1.96 * 0.01 * math.sqrt(2)
        gap = paired.PairedDifference(value, value - half, value + half, math.nan, 500)
        return paired.with_seeds(gap, *(sides if count_seeds else sides[:, :1])).p < 0.05

    assert share(500, lambda: alarm(True)) <= band(0.05, 500)
    assert share(500, lambda: alarm(False)) > 0.2


def test_a_permutation_test_rejects_as_often_as_it_says() -> None:
    def p(truth: np.ndarray, predicted: np.ndarray) -> float:
        return intervals.permutation_p(spearman, truth, predicted, 200)

    assert share(150, lambda: p(*RANDOM.normal(size=(2, 12))) < 0.05) <= band(0.05, 150)
    assert p(np.arange(12.0), np.arange(12.0)) == 1 / 201


@pytest.mark.parametrize("rows", [20, 100])
def test_intervals_of_figures_cover_the_truth(rows: int) -> None:
    def misses(interval: tuple[float, float], true: float) -> bool:
        return not interval[0] <= true <= interval[1]

    def of_shares() -> bool:
        return misses(wilson(RANDOM.binomial(rows, 0.8) / rows, rows), 0.8)

    def of_means() -> bool:
        scores = RANDOM.beta(2, 1, size=(rows, 1))
        figure = estimate_of_sums(lambda sums: sums[:, 0] / rows, scores, resamples=300)
        return misses((figure.low, figure.high), 2 / 3)

    assert share(300, of_shares) <= band(0.05, 300)
    assert share(200, of_means) <= band(0.08, 200)  # percentiles are a little short on 20 rows


def test_the_interval_of_rare_labels_holds_their_figure() -> None:
    """Forty labels, most with a row or two, which resamples lack. The control counts a label that
    is in none of the rows as one of F1 0."""

    def misses(*, lacking: bool) -> bool:
        truth = (RANDOM.random((60, 40)) < 0.04).astype(np.int64)
        predicted = np.where(RANDOM.random((60, 40)) < 0.01, 1 - truth, truth)

        def all_labels(truth: np.ndarray, predicted: np.ndarray) -> float:
            return macro_f1(truth, predicted) * float((truth + predicted).any(0).mean())

        figure = estimate(all_labels if lacking else macro_f1, truth, predicted, resamples=100)
        return not figure.low <= figure.value <= figure.high

    assert share(20, lambda: misses(lacking=False)) == 0 < share(20, lambda: misses(lacking=True))


@pytest.mark.parametrize("rows", [10, 120])
@pytest.mark.parametrize("metric", [accuracy, macro_f1])
def test_equal_predictors_are_rarely_told_apart(rows: int, metric: intervals.Metric) -> None:
    def alarm() -> bool:
        truth, first = guesses(rows, 0.5)
        second = np.where(RANDOM.random(rows) < 0.5, truth, RANDOM.integers(0, 2, rows))
        return paired.of_metric(metric, truth, first, second, resamples=200).is_significant

    count = 400 if metric is accuracy else 60
    assert share(count, alarm) <= band(0.05, count)


def test_a_paired_test_sees_what_overlapping_intervals_hide() -> None:
    """0.87 against 0.79 on 120 rows that are mostly hard, or easy, for both."""
    paired_hits = overlap_hits = 0
    for _ in range(300):
        hard = RANDOM.random(120)
        first, second = hard < 0.87, (hard < 0.77) | (RANDOM.random(120) < 0.02 / 0.23)
        paired_hits += paired.of_shares(first, second).is_significant
        low, high = wilson(first.mean(), 120)[0], wilson(second.mean(), 120)[1]
        overlap_hits += bool(low > high)
    assert paired_hits > 200 > 100 > overlap_hits


def test_equal_recipes_are_rarely_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five recipes, whose three seeds differ by chance alone, over four measures; the control takes
    each verdict by itself."""
    names = [f"m{n}" for n in range(4)]

    def run(seed: int) -> Run:
        values = dict(zip(names, RANDOM.normal(size=4), strict=True))
        return Run(seed, 1, 1.0, 1.0, 1, values, [])

    def alarm() -> bool:
        reports = [RecipeReport(f"r{n}", "", 1, "", [*map(run, range(3))]) for n in range(5)]
        comparison = Comparison("1 tokens", reports, [Metric(name, name) for name in names])
        sentences = " ".join(verdicts(comparison))
        return " is better " in sentences or " is worse " in sentences

    assert share(100, alarm) <= band(0.05, 100)
    monkeypatch.setattr("maskwright.ask.evaluate.compare_report.holm", lambda p_values: p_values)
    assert share(100, alarm) > band(0.05, 100)


def test_seeds_that_share_their_difficulty_are_compared_as_pairs() -> None:
    """The control: Welch's test, which sees the difficulty alone."""
    pairs = welch = 0
    for _ in range(100):
        difficulty = RANDOM.normal(size=5)
        ours, theirs = difficulty + 0.5 + RANDOM.normal(size=(2, 5)) * 0.1 - [[0.0], [0.5]]
        gap = difference(dict(enumerate(ours)), dict(enumerate(theirs)))
        pairs += gap is not None and gap.p < 0.05
        welch += stats.ttest_ind(ours, theirs, equal_var=False).pvalue < 0.05
    assert pairs > 90 and welch < 10


def test_the_best_of_equal_methods_is_rarely_told_from_the_rest() -> None:
    """The control: pairs of methods by themselves."""

    def table(gap: float = 0.0) -> dict[str, dict[int, float]]:
        values = RANDOM.normal(size=(4, 3)) + 2 * RANDOM.normal(size=3)
        values[0] += gap
        return {f"m{n}": dict(enumerate(row)) for n, row in enumerate(values.tolist())}

    def alarm() -> bool:
        values = table()
        worst, *_, best = sorted(values, key=lambda name: sum(values[name].values()))
        p = p_by_seed(values, best, worst)
        return p is not None and p < 0.05

    def by_itself() -> bool:
        values = table()
        best = max(values, key=lambda name: sum(values[name].values()))
        gaps = [difference(values[best], values[name]) for name in values if name != best]
        return min(gap.p for gap in gaps if gap) < 0.05

    assert share(100, alarm) <= band(0.05, 100)
    assert share(400, by_itself) > band(0.05, 400)
    first, *others = (p_by_seed(table(gap=9.0), "m0", f"m{n}") for n in range(4))
    assert first == 1.0 and all(p is not None and p < 0.05 for p in others)
    assert p_by_seed({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0}}, "a", "b") is None


def test_an_interval_over_pairs_alone_ignores_the_seeds() -> None:
    """Two equal recipes, whose seeds differ by more than their thousand pairs: the control."""
    tests = pairs_alone = 0
    for _ in range(100):
        skill = 0.7 + 0.03 * RANDOM.normal(size=(2, 3, 1))
        right = RANDOM.random((2, 3, 1000)) < skill
        ours, theirs = (dict(enumerate(side.mean(1))) for side in right)
        gap, gaps = difference(ours, theirs), right[0].mean(0) - right[1].mean(0)
        tests += gap is not None and gap.p < 0.05
        pairs_alone += abs(gaps.mean()) > 1.96 * gaps.std() / math.sqrt(1000)
    assert tests / 100 <= band(0.05, 100) < 0.3 < pairs_alone / 100


# ------------------------------------------------------------------------------ verdicts
def rival(value: float, low: float, high: float, **facts: object) -> Rival:
    gap = paired.PairedDifference((low + high) / 2, low, high, 0.5, 100)
    return Rival("bag of words", value, gap, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "rivals", "state", "usable"),
    [
        (0.9, [rival(0.8, 0.02, 0.18), rival(0.5, 0.3, 0.5, is_constant=True)], "good", True),
        (0.9, [rival(0.88, -0.02, 0.06), rival(0.5, 0.3, 0.5)], "no better", True),
        (0.6, [rival(0.5, -0.1, 0.3, is_constant=True)], "no better", False),
        (0.6, [rival(0.8, -0.3, -0.1), rival(0.5, 0.02, 0.18)], "no better", False),
        (0.5, [rival(0.4, 0.02, 0.18), rival(0.5, -0.1, 0.1, is_constant=True)], "unusable", False),
        (0.4, [rival(0.5, -0.2, 0.0, is_constant=True)], "unusable", False),
        (0.9, [rival(0.8, math.nan, math.nan)], "no better", True),
        (math.nan, [rival(0.8, 0.02, 0.18)], "unusable", False),
        (0.9, [], "no better", True),
    ],
)
def test_a_verdict_says_whether_a_model_is_worth_it(
    value: float, rivals: list[Rival], state: str, usable: bool
) -> None:
    judged = verdict("accuracy", value, rivals, 100)
    assert (judged.state, judged.is_usable) == (state, usable)


def test_a_better_baseline_is_named() -> None:
    better = rival(0.8, -0.3, -0.1)
    judged = verdict("F1", 0.6, [better], 100)
    assert judged.rival == "bag of words" and "0.1000 to 0.3000" in judged.sentence
    judged = verdict("F1", 0.6, [rival(0.6, -0.1, 0.1, is_constant=True), better], 100)
    assert judged.state == "unusable" and "0.8000" in judged.sentence


def test_equal_predictions_have_no_correlation_and_a_regression_is_judged_beside_them() -> None:
    """Once all regressions were called unusable: the mean of the training part has no Spearman."""
    truth = RANDOM.normal(size=100)

    def judged(predicted: np.ndarray) -> str:
        figures = [ArrayMetric("spearman", truth, p) for p in (predicted, np.full(100, 0.5))]
        gap = figures[0].gain_over(figures[1])
        return verdict("spearman", 0.9, [Rival("the mean", 0.0, gap, is_constant=True)], 100).state

    assert judged(truth + RANDOM.normal(size=100)) == "good"
    assert judged(RANDOM.normal(size=100)) != "good" and judged(-truth) == "unusable"
    constant = ArrayMetric("spearman", truth, np.full(100, 0.5))
    good = ArrayMetric("spearman", truth, truth + RANDOM.normal(size=100))
    assert constant.gain_over(good) == -good.gain_over(constant)
    undefined = constant.gain_over(constant)
    assert math.isnan(undefined.value) and math.isnan(undefined.p), "once 1/1001"


@pytest.mark.parametrize("metric", [spearman, pearson])
def test_correlations_are_compared_on_any_scale(
    metric: intervals.Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: raw predictions are exchanged, which are of two ranges."""

    def rejects(skill: float) -> bool:
        truth, *noise = RANDOM.normal(size=(3, 60))
        ours, theirs = 20 + truth + noise[0], skill * truth + noise[1]
        return paired.of_metric(metric, truth, ours, theirs, resamples=200).p < 0.05

    assert share(50, lambda: rejects(1.0)) <= band(0.05, 50)
    power = share(40, lambda: rejects(0.3))
    monkeypatch.setattr(paired, "COMPARABLE", {})
    assert power > 0.6 > share(40, lambda: rejects(0.3)) + 0.1


# ------------------------------------------------------------------------------ groups of rows
def test_groups_by_hand() -> None:
    right, selected = np.arange(40) % 10 > 0, np.arange(40) < 20
    right[:10] = False  # 9 of 20 right inside, 18 of 20 outside
    value, p = paired.of_groups_of_shares(right, selected)
    assert (value, p) == (-9 / 20, pytest.approx(stats.fisher_exact([[9, 11], [18, 2]]).pvalue))
    error = ArrayMetric("squared_error", np.zeros(40), np.where(selected, 3.0, 1.0))
    value, p = error.gain_inside(selected, 1000)
    assert value == -8.0 and p == 1 / 1001, "a larger error is worse"
    assert error.select(np.arange(5)).value == 9.0


@pytest.mark.parametrize("metric", ["accuracy", "squared_error"])
def test_slices_that_mean_nothing_are_rarely_told_apart(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six slices of unequal sizes; the control takes each test by itself."""

    def alarm() -> bool:
        truth, predicted = guesses(200, 0.5)
        if metric != "accuracy":
            truth, predicted = RANDOM.normal(size=(2, 200))
        drawn = RANDOM.choice(6, 200, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])
        figure = ArrayMetric(metric, truth, predicted)
        tests = slices.compare_groups(figure, [drawn == n for n in range(6)], least=200)
        return min(p for _, p in tests if not math.isnan(p)) < 0.05

    count = 100 if metric == "accuracy" else 60
    assert share(count, alarm) <= band(0.05, count)
    monkeypatch.setattr(slices, "holm", lambda p_values: p_values)
    assert share(count, alarm) > band(0.05, count)


def test_rare_values_are_pooled_and_a_bad_slice_is_named() -> None:
    values = ["web"] * 40 + ["print"] * 40 + [f"v{n}" for n in range(12)]
    figure = ArrayMetric("accuracy", np.zeros(92, np.int64), np.where(np.arange(92) < 20, 1, 0))
    table = slices.compare_slices("source", values, TaskMetrics({"accuracy": figure}), "accuracy")
    web, rare, printed = ((row.rows, row.pooled, row.standing) for row in table.slices)
    assert (web, printed) == ((40, 0, "worse"), (40, 0, "better"))
    assert rare == (12, 12, "not significant")
    assert table.slices[0].name == "'web'" and table.slices[0].rest == pytest.approx(1.0)
    assert table.to_json()["slices"][0]["figures"]["accuracy"]["value"] == 0.5
