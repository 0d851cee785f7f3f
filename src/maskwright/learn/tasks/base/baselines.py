"""Baselines on the same parts as a model: the most frequent class, and a bag of words.

The latter is logistic regression (for numbers: ridge) on TF-IDF of words and pairs of words. For
two texts the features are the words of each, their products and differences, and the cosine
similarity. The strength of the regression is chosen on the validation part.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError
from maskwright.base.metrics import metrics
from maskwright.text.tables.examples import Example, PairExample, TextExample
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

STRENGTHS = (1.0, 10.0, 100.0)
# Words may have a single letter: 'I' and 'a' distinguish languages.
WORD = r"(?u)\b\w+\b"
STEPS = 300
# Maximum of features times classes, at about 160 bytes each in training: with many classes only the
# most frequent words are used.
WEIGHTS = 10_000_000


@dataclass(frozen=True)
class Baseline:
    """Predictions of a baseline for one part.

    Attributes:
        name: `majority` (for numbers: `mean`) or `words`.
        eval_part: the part that is predicted.
        predicted: (rows,) classes or numbers; for several labels (rows, C) of 0 and 1.
        description: settings, for the report.
    """

    name: str
    eval_part: str
    predicted: NDArray[Any]
    description: str


def baselines(examples: Dataset) -> list[Baseline]:
    """Return both baselines on the test part, or on the validation part if there is no test part.

    Raises:
        UsageError: the task has no such labels, or there is no part to predict.
    """
    rows_by_part = examples.parts
    if not isinstance(
        next((row for rows in rows_by_part.values() for row in rows), None),
        TextExample | PairExample,
    ):
        raise UsageError(
            "no baseline for this task",
            found=examples.task.name,
            wanted="a label for each text, or for two",
        )
    if TRAIN not in rows_by_part or not {TEST, VALIDATION} & set(rows_by_part):
        raise UsageError(
            "the baseline needs a part to learn from and one to predict",
            found=", ".join(rows_by_part),
            wanted="train and validation or test",
            do="divide the table first (splits.complete)",
        )
    eval_part = TEST if TEST in rows_by_part else VALIDATION
    choosing = rows_by_part.get(VALIDATION, []) if eval_part == TEST else []
    simple = _constant_baseline(examples, eval_part)
    return [simple, _word_baseline(examples, eval_part, choosing)]


def targets(rows: Sequence[Example], classes: int = 0) -> NDArray[Any]:
    """Return the labels of examples as an array: (rows,) classes or numbers; for several labels
    (rows, classes) of 0 and 1."""
    labels = [e.label for e in rows if isinstance(e, TextExample | PairExample)]
    if not isinstance(labels[0], tuple):
        return np.array(labels)
    indicators = np.zeros((len(labels), classes), np.int64)
    for row, classes_of_row in enumerate(labels):
        assert isinstance(classes_of_row, tuple)
        indicators[row, list(classes_of_row)] = 1
    return indicators


def _num_classes(examples: Dataset) -> int:
    return 0 if examples.labels is None else len(examples.labels)


def _constant_baseline(examples: Dataset, eval_part: str) -> Baseline:
    truth = targets(examples.parts[TRAIN], _num_classes(examples))
    count = len(examples.parts[eval_part])
    if truth.ndim > 1:  # labels of most rows; if there are none, the most frequent
        usual = (truth.mean(0) > 0.5).astype(np.int64)
        usual[truth.sum(0).argmax()] = 1
        assert examples.labels is not None
        labels_text = ", ".join(repr(examples.labels.names[n]) for n in np.flatnonzero(usual))
        return Baseline("majority", eval_part, np.tile(usual, (count, 1)), f"{labels_text} for all")
    if examples.labels is None:
        return Baseline(
            "mean", eval_part, np.full(count, truth.mean()), f"{truth.mean():.3f} for all"
        )
    counts = Counter(truth.tolist())
    commonest = min(counts, key=lambda c: (-counts[c], c))
    name = examples.labels.names[commonest]
    return Baseline("majority", eval_part, np.full(count, commonest), f"{name!r} for all")


def _word_baseline(examples: Dataset, eval_part: str, choosing: Sequence[Example]) -> Baseline:
    train = examples.parts[TRAIN]
    classes = _num_classes(examples)
    bag = _BagOfWords(train, WEIGHTS // max(1, classes))
    learned, truth = bag.features(train), targets(train, classes)
    metric = metrics.METRICS[examples.task.shape.metrics[0]]
    chosen, best = STRENGTHS[1], -np.inf
    models = {}
    for strength in STRENGTHS if choosing else (chosen,):
        models[strength] = _fitted(learned, truth, strength, examples.labels is None)
        if choosing:
            predicted = models[strength].predict(bag.features(choosing))
            score = metric(targets(choosing, classes), predicted)
            if score > best:
                chosen, best = strength, score
    description = f"TF-IDF of {learned.shape[1]:,} words and pairs of words, strength {chosen:g}"
    description += " (chosen on validation)" if choosing else ""
    return Baseline(
        "words",
        eval_part,
        models[chosen].predict(bag.features(examples.parts[eval_part])),
        description,
    )


class _ModelPerLabel:
    """One model for each of several labels."""

    def __init__(self, features: Any, truth: NDArray[Any], strength: float) -> None:
        self.models = [_fitted(features, column, strength, False) for column in truth.T]

    def predict(self, features: Any) -> NDArray[Any]:
        return np.stack([model.predict(features) for model in self.models], axis=1)


def _fitted(features: Any, truth: NDArray[Any], strength: float, numbers: bool) -> Any:
    if truth.ndim > 1:
        return _ModelPerLabel(features, truth, strength)
    # Imported where it is used, as in `metrics.py`.
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    if len(np.unique(truth)) < 2:  # all rows have the same label
        return DummyClassifier(strategy="most_frequent").fit(features, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if numbers:
            return Ridge(alpha=10.0 / strength).fit(features, truth)
        return LogisticRegression(C=strength, max_iter=STEPS).fit(features, truth)


def fitted(texts: Sequence[str], **options: Any) -> Any:
    """Fit a TF-IDF vectorizer with these `options` of scikit-learn. If no word reaches `min_df`, it
    uses all words; if there are no words, all characters."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    usual = {"token_pattern": WORD, "sublinear_tf": True, **options}
    for change in ({}, {"min_df": 1}, {"min_df": 1, "token_pattern": r"\S"}):
        with contextlib.suppress(ValueError):  # nothing is left
            return TfidfVectorizer(**{**usual, **change}).fit(texts)
    return TfidfVectorizer(vocabulary=["a"]).fit(texts)  # all texts are blank


class _BagOfWords:
    """Features of texts: TF-IDF weights, fitted on the training part."""

    def __init__(self, train: Sequence[Example], most: int) -> None:
        texts = [text for e in train for text in _texts(e)]
        once = 2 if len(train) > 200 else 1
        self.weigh = fitted(texts, ngram_range=(1, 2), min_df=once, max_features=most)

    def features(self, rows: Sequence[Example]) -> Any:
        """Return a sparse matrix (rows, features)."""
        first_weights = self.weigh.transform([_texts(e)[0] for e in rows])
        if not isinstance(rows[0], PairExample):
            return first_weights
        second_weights = self.weigh.transform([_texts(e)[1] for e in rows])
        from scipy import sparse

        shared = first_weights.multiply(second_weights)
        angle = sparse.csr_matrix(shared.sum(axis=1))
        return sparse.hstack(
            [first_weights, second_weights, shared, abs(first_weights - second_weights), angle]
        ).tocsr()


def _texts(example: Example) -> tuple[str, ...]:
    if isinstance(example, PairExample):
        return example.first, example.second
    assert isinstance(example, TextExample)
    return (example.text,)
