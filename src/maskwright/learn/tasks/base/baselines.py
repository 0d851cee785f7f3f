"""What a model must beat on the same parts: the commonest class, and a bag of words.

The words are TF-IDF of words and pairs of words with logistic regression (numbers: ridge). Of two
texts the bag holds each text's words, the words they share and those of one only, and how alike the
two are by the angle between them. The strength of the regression is chosen on the validation part.
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
from maskwright.text.tables.split_files import TEST, TRAIN, VALIDATION

STRENGTHS = (1.0, 10.0, 100.0)
# A word is anything between blanks and signs, one letter too: 'I' and 'a' tell languages apart.
WORD = r"(?u)\b\w+\b"
STEPS = 300
# Of features times classes, at some 160 bytes each while it learns: of many classes the commonest
# words alone are read.
WEIGHTS = 10_000_000


@dataclass(frozen=True)
class Baseline:
    """Predictions for one part, and how they came about.

    Attributes:
        name: `majority` (of numbers: `mean`) or `words`.
        eval_part: the part predicted.
        predicted: (rows,) classes or numbers, or (rows, C) 0 and 1 of several labels each.
        description: settings, for the report.
    """

    name: str
    eval_part: str
    predicted: NDArray[Any]
    description: str


def baselines(examples: Dataset) -> list[Baseline]:
    """Both baselines on the test part, or on validation where there is no test part.

    Raises:
        UsageError: a task without such labels, or no part to predict.
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
    simple = _constant(examples, eval_part)
    return [simple, _words(examples, eval_part, choosing)]


def targets(rows: Sequence[Example], classes: int = 0) -> NDArray[Any]:
    """(rows,) the classes, or the numbers, of examples with one label each; of several labels each
    (rows, classes) 0 and 1."""
    labels = [e.label for e in rows if isinstance(e, TextExample | PairExample)]
    if not isinstance(labels[0], tuple):
        return np.array(labels)
    indicators = np.zeros((len(labels), classes), np.int64)
    for row, classes_of_row in enumerate(labels):
        assert isinstance(classes_of_row, tuple)
        indicators[row, list(classes_of_row)] = 1
    return indicators


def _classes(examples: Dataset) -> int:
    return 0 if examples.labels is None else len(examples.labels)


def _constant(examples: Dataset, eval_part: str) -> Baseline:
    truth = targets(examples.parts[TRAIN], _classes(examples))
    count = len(examples.parts[eval_part])
    if truth.ndim > 1:  # each label by itself; where none has half the rows, the commonest
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


def _words(examples: Dataset, eval_part: str, choosing: Sequence[Example]) -> Baseline:
    train = examples.parts[TRAIN]
    classes = _classes(examples)
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
    """A model for each label."""

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

    if len(np.unique(truth)) < 2:  # so few rows that all are alike
        return DummyClassifier(strategy="most_frequent").fit(features, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if numbers:
            return Ridge(alpha=10.0 / strength).fit(features, truth)
        return LogisticRegression(C=strength, max_iter=STEPS).fit(features, truth)


def fitted(texts: Sequence[str], **options: Any) -> Any:
    """A TF-IDF of the words of `texts`, however short; `options` of scikit-learn's. Of all words
    where none comes as often as `min_df` says, and of signs where there is no word."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    usual = {"token_pattern": WORD, "sublinear_tf": True, **options}
    for change in ({}, {"min_df": 1}, {"min_df": 1, "token_pattern": r"\S"}):
        with contextlib.suppress(ValueError):  # nothing is left
            return TfidfVectorizer(**{**usual, **change}).fit(texts)
    return TfidfVectorizer(vocabulary=["a"]).fit(texts)  # of blank texts alone


class _BagOfWords:
    """Texts as rows of word weights; learned from the training part only."""

    def __init__(self, train: Sequence[Example], most: int) -> None:
        texts = [text for e in train for text in _texts(e)]
        once = 2 if len(train) > 200 else 1
        self.weigh = fitted(texts, ngram_range=(1, 2), min_df=once, max_features=most)

    def features(self, rows: Sequence[Example]) -> Any:
        """(rows, features), sparse."""
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
