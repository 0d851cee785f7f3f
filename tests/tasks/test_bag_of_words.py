"""A bag of words against scikit-learn, before and after it was saved; the baselines of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union

from labelled.tables import sentence, table_of, understood
from maskwright.base.errors import CheckpointError
from maskwright.base.metrics import metrics
from maskwright.base.metrics.calibration import select_thresholds
from maskwright.base.metrics.row_metrics import ArrayMetric
from maskwright.base.randomness import integers, key
from maskwright.learn.tasks.base import bag_of_words
from maskwright.learn.tasks.base.bag_of_words import BagOfWords
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import Example, PairExample, TextExample
from maskwright.text.tables.splits import SplitOptions, split_dataset

PROBLEMS = {"two": 2, "classes": 3, "several": 3, "number": 0}


def rows_of(problem: str, count: int = 60) -> list[Example]:
    labels: dict[str, Any] = {
        "two": lambda n: n % 2,
        "classes": lambda n: n % 3,
        "several": lambda n: tuple(label for label in range(3) if n % (label + 2) == 0),
        "number": lambda n: n % 5 + 0.5,
    }
    words = ["good", "bad", "GOOD", "naïve", "Bad"]
    texts = [f"{words[n % 5]} {sentence(n)} {words[n % 3]}" for n in range(count)]
    return [TextExample(text, labels[problem](n), f"line {n}") for n, text in enumerate(texts)]


def by_scikit_learn(rows: list[Example], problem: str, strength: float, **change: Any) -> Any:
    """The same model in scikit-learn's own words, fitted on `rows`."""
    words = TfidfVectorizer(
        **{"token_pattern": r"(?u)\b\w+\b", "ngram_range": (1, 2), "sublinear_tf": True} | change
    )
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    linear: Any = LogisticRegression(C=strength, max_iter=300)
    if problem == "several":
        linear = OneVsRestClassifier(linear)
    elif problem == "number":
        linear = Ridge(alpha=10.0 / strength)
    model = make_pipeline(make_union(words, characters), linear)
    return model.fit(texts_of(rows), bag_of_words.targets(rows, PROBLEMS[problem]))


def texts_of(rows: list[Example]) -> list[str]:
    return [row.text for row in rows if isinstance(row, TextExample)]


def shares(scores: np.ndarray, problem: str) -> np.ndarray:
    wide = scores.astype(np.float64)
    if problem == "number":
        return wide[:, 0]
    return expit(wide) if problem == "several" else softmax(wide, axis=1)


def saved(bag: BagOfWords, folder: Path) -> Path:
    folder.mkdir()
    for name, data in bag.files({}).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_saved_model_gives_the_probabilities_of_scikit_learn(
    problem: str, tmp_path: Path
) -> None:
    rows, new = rows_of(problem)[:45], rows_of(problem, 75)[45:]
    bag = BagOfWords.fit(rows, PROBLEMS[problem], "spearman" if problem == "number" else "accuracy")
    read = BagOfWords.load(saved(bag, tmp_path / "model"))
    assert (read.scores(new) == bag.scores(new)).all() and read.strength == bag.strength
    found = shares(read.scores(new), problem)

    def theirs(**change: Any) -> np.ndarray:
        model = by_scikit_learn(rows, problem, bag.strength, **change)
        return getattr(model, "predict" if problem == "number" else "predict_proba")(texts_of(new))

    assert np.abs(found - theirs()).max() < 1e-6
    # Control: a setting of the vectorizer that was not restored would be seen.
    for change in ({"lowercase": False}, {"sublinear_tf": False, "norm": None}):
        assert np.abs(found - theirs(**change)).max() > 1e-4


def test_the_features_of_a_pair() -> None:
    rows: list[Example] = [
        PairExample(sentence(n), sentence(n if n % 2 else n + 99), n % 2, "") for n in range(40)
    ]
    bag = BagOfWords.fit(rows, 2, "accuracy")
    model = LogisticRegression(C=bag.strength, max_iter=300)
    blocks = []
    for vectorizer in bag.vectorizers:
        first, second = (
            vectorizer.transform([getattr(row, name) for row in rows])
            for name in ("first", "second")
        )
        shared = first.multiply(second)
        blocks += [first, second, shared, abs(first - second), sparse.csr_matrix(shared.sum(1))]
    features = sparse.hstack(blocks).tocsr()
    wanted = model.fit(features, [row.label for row in rows]).predict_proba(features)
    assert np.abs(shares(bag.scores(rows), "two") - wanted).max() < 1e-6


def test_a_class_without_rows_is_never_predicted() -> None:
    bag = BagOfWords.fit(rows_of("two"), 4, "accuracy")
    found = shares(bag.scores(rows_of("two")), "classes")
    assert found.shape[1] == 4 and found[:, 2:].max() < 1e-30


def test_the_strength_is_chosen_on_enough_validation_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(bag_of_words, "_folds", lambda truth: calls.append(1) or [truth == 0])
    rows = rows_of("two")
    BagOfWords.fit(rows[:40], 2, "accuracy", rows[40:])
    assert not calls
    BagOfWords.fit(rows[:40], 2, "accuracy", rows[41:])
    assert calls


@pytest.mark.parametrize("change", ["nothing", "pattern", "terms", "twice", "pair", "missing"])
def test_a_damaged_folder_is_refused(change: str, tmp_path: Path) -> None:
    folder = saved(BagOfWords.fit(rows_of("two"), 2, "accuracy"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    terms = json.loads((folder / "vocabulary.json").read_text())["terms"]
    if change == "pattern":
        config["vectorizers"][0]["pattern"] = "(a+)+$"
    elif change == "terms":
        terms[0] = terms[0][1:]
    elif change == "twice":
        terms[0][1] = terms[0][0]
    elif change == "pair":
        config["is_pair"] = True
    elif change == "missing":
        (folder / "bag_of_words.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocabulary.json").write_text(json.dumps({"terms": terms}))
    if change == "nothing":
        assert BagOfWords.load(folder)
        return
    with pytest.raises(CheckpointError) as caught:
        BagOfWords.load(folder)
    assert str(folder) in str(caught.value.where)


# ------------------------------------------------------------------------------ baselines
def divided(rows: list[dict[str, object]]) -> Dataset:
    return split_dataset(understood(table_of(*rows))[1], SplitOptions(validation=0.2, test=0.3))


def scores(examples: Dataset, metric: metrics.Metric = metrics.accuracy) -> list[float]:
    truth = bag_of_words.targets(examples.parts["test"])
    return [metric(truth, predicted) for _, predicted in bag_of_words.baselines(examples, "test")]


def test_words_beat_the_majority_where_words_decide() -> None:
    labels = [int(n % 3 > 0) for n in range(240)]
    rows = [
        {"text": f"{('bad', 'good')[y]} {sentence(n)}", "label": y} for n, y in enumerate(labels)
    ]
    majority, words = scores(divided(rows))
    assert majority == pytest.approx(2 / 3, abs=0.03) and words == 1.0
    again = [bag_of_words.baselines(divided(rows), "test") for _ in range(2)]
    assert all((a == b).all() for (_, a), (_, b) in zip(*again, strict=True)), "the same each time"


def test_shuffled_labels_give_chance() -> None:
    labels = integers(key("draw", 7), 300, 2).tolist()
    rows = [{"text": sentence(n), "label": label} for n, label in enumerate(labels)]
    assert scores(divided(rows))[1] < 0.65


def test_of_several_labels_each_has_its_words() -> None:
    rows = []
    for n in range(240):
        some = [name for name, every in (("cat", 2), ("dog", 3), ("cow", 5)) if n % every == 0]
        rows.append({"text": " ".join([sentence(n), *some]), "label": some})
    examples = divided(rows)
    (_, majority), (_, words) = bag_of_words.baselines(examples, "test")
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
        usual = bag_of_words._usual_labels(truth, measure), np.eye(6, dtype=np.int64)[0]
        figures = [ArrayMetric(measure, truth, np.tile(labels, (150, 1))) for labels in usual]
        gains = [ArrayMetric(measure, truth, predicted).gain_over(figure) for figure in figures]
        alarms += [gain.low > 0 for gain in gains]
    assert alarms[0] <= 1
    assert alarms[1] > 5 or measure == "accuracy"


def test_chance_is_beside_the_macro_f1_of_classes() -> None:
    """Answers without skill reach 1/4 of four classes, the most frequent one 1/10."""
    examples = divided([{"text": sentence(n), "label": n % 4} for n in range(240)])
    answers = dict(bag_of_words.baselines(examples, "test", "macro_f1"))
    truth = bag_of_words.targets(examples.parts["test"])
    assert list(answers) == ["majority", "chance", "words"]
    majority, chance, _ = (metrics.macro_f1(truth, labels) for labels in answers.values())
    assert majority < 0.12 < 0.15 < chance < 0.4


def test_rows_that_are_all_alike_are_answered_alike() -> None:
    """So few labels that there is one class only, as the beginning of a curve may have."""
    features, truth = np.eye(3), np.full(3, 2)
    scores = bag_of_words._scores(features, *bag_of_words._fit_linear(features, truth, 1.0, 4))
    assert bag_of_words.decided(scores, truth).tolist() == [2, 2, 2]
