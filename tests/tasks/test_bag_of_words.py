"""A bag of words against scikit-learn, before and after it was saved."""

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

from labelled.tables import sentence
from maskwright.base.errors import CheckpointError
from maskwright.learn.tasks.base import bag_of_words
from maskwright.learn.tasks.base.bag_of_words import BagOfWords
from maskwright.text.tables.rows import Example, PairExample, TextExample

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
