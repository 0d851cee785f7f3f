"""The baselines on data that words decide, and on data that they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from labelled.tables import sentence, table_of, understood
from maskwright.base.metrics import metrics
from maskwright.base.metrics.calibration import select_thresholds
from maskwright.base.metrics.row_metrics import ArrayMetric
from maskwright.base.randomness import integers, key
from maskwright.learn.tasks.base import bag_of_words, baselines
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.splits import SplitOptions, split_dataset


def divided(rows: list[dict[str, object]]) -> Dataset:
    return split_dataset(understood(table_of(*rows))[1], SplitOptions(validation=0.2, test=0.3))


def scores(examples: Dataset, metric: metrics.Metric = metrics.accuracy) -> list[float]:
    truth = bag_of_words.targets(examples.parts["test"])
    return [metric(truth, predicted) for _, predicted in baselines.baselines(examples, "test")]


def test_words_beat_the_majority_where_words_decide() -> None:
    labels = [int(n % 3 > 0) for n in range(240)]
    rows = [
        {"text": f"{('bad', 'good')[y]} {sentence(n)}", "label": y} for n, y in enumerate(labels)
    ]
    majority, words = scores(divided(rows))
    assert majority == pytest.approx(2 / 3, abs=0.03) and words == 1.0
    again = [baselines.baselines(divided(rows), "test") for _ in range(2)]
    assert all((a == b).all() for (_, a), (_, b) in zip(*again, strict=True)), "the same each time"


def test_shuffled_labels_give_chance() -> None:
    labels = integers(key("draw", 7), 300, 2).tolist()
    rows = [{"text": sentence(n), "label": label} for n, label in enumerate(labels)]
    assert scores(divided(rows))[1] < 0.65


def test_pairs_are_told_by_the_words_they_share() -> None:
    rows = [
        {"sentence1": sentence(n), "sentence2": sentence(n if n % 2 else n + 333), "label": n % 2}
        for n in range(240)
    ]
    majority, words = scores(divided(rows))
    assert majority < 0.6 and words > 0.9


def test_numbers_have_a_mean_and_a_ridge() -> None:
    rows = [{"text": "good " * (n % 5) + sentence(n), "score": n % 5 + 0.5} for n in range(200)]
    examples = divided(rows)
    (name, mean), (_, words) = baselines.baselines(examples, "test")
    assert name == "mean" and len(set(mean.tolist())) == 1
    truth = bag_of_words.targets(examples.parts["test"])
    assert metrics.spearman(truth, words) > 0.5


def test_of_several_labels_each_has_its_words() -> None:
    rows = []
    for n in range(240):
        some = [name for name, every in (("cat", 2), ("dog", 3), ("cow", 5)) if n % every == 0]
        rows.append({"text": " ".join([sentence(n), *some]), "label": some})
    examples = divided(rows)
    (_, majority), (_, words) = baselines.baselines(examples, "test")
    assert examples.labels is not None and majority.shape[1] == 3
    truth = bag_of_words.targets(examples.parts["test"], 3)
    assert (majority == [1 * (name != "cow") for name in examples.labels.names]).all()
    assert metrics.micro_f1(truth, words) > 0.95
    assert metrics.micro_f1(truth, majority) < 0.7


@pytest.mark.parametrize("measure", ["micro_f1", "macro_f1", "accuracy"])
def test_labels_without_skill_are_not_better_than_the_usual_ones(measure: str) -> None:
    """Low thresholds give every row all labels. The control: the most frequent label alone."""
    draw, alarms = np.random.default_rng(0), np.zeros(2)
    for _ in range(10):
        truth = (draw.random((300, 6)) < [0.3, 0.3, 0.2, 0.2, 0.2, 0.2]).astype(np.int64)
        shares = draw.random((300, 6))
        thresholds = select_thresholds(shares[:150], truth[:150], measure)
        predicted, truth = (shares[150:] >= thresholds).astype(np.int64), truth[150:]
        usual = baselines._usual_labels(truth, measure), np.eye(6, dtype=np.int64)[0]
        figures = [ArrayMetric(measure, truth, np.tile(labels, (150, 1))) for labels in usual]
        gains = [ArrayMetric(measure, truth, predicted).gain_over(figure) for figure in figures]
        alarms += [gain.low > 0 for gain in gains]
    assert alarms[0] <= 1
    assert alarms[1] > 5 or measure == "accuracy"


def test_chance_is_beside_the_macro_f1_of_classes() -> None:
    """Answers without skill reach 1/4 of four classes, the most frequent one 1/10."""
    examples = divided([{"text": sentence(n), "label": n % 4} for n in range(240)])
    answers = dict(baselines.baselines(examples, "test", "macro_f1"))
    truth = bag_of_words.targets(examples.parts["test"])
    assert list(answers) == ["majority", "chance", "words"]
    majority, chance, _ = (metrics.macro_f1(truth, labels) for labels in answers.values())
    assert majority < 0.12 < 0.15 < chance < 0.4


def test_rows_that_are_all_alike_are_answered_alike() -> None:
    """So few labels that there is one class only, as the beginning of a curve may have."""
    features, truth = np.eye(3), np.full(3, 2)
    scores = bag_of_words._scores(features, *bag_of_words._fit_linear(features, truth, 1.0, 4))
    assert bag_of_words.decided(scores, truth).tolist() == [2, 2, 2]
