"""Baselines on the same parts as a model: the most frequent class, and a bag of words.

The latter is logistic regression (for numbers: ridge) on TF-IDF of words and pairs of words. For
two texts the features are the words of each, their products and differences, and the cosine
similarity. The strength of the regression is chosen on the validation part.

For retrieval: `KeywordSearch`, without training.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.metrics.metrics import METRICS
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
# Saturation of repeated words and normalisation by length in BM25, as of Anserini on BEIR.
SATURATION, BY_LENGTH = 0.9, 0.4


def baselines(data: Dataset, eval_part: str) -> list[tuple[str, NDArray[Any]]]:
    """Return (name, predictions) of both baselines for the rows of `eval_part`: (rows,) classes or
    numbers; for several labels (rows, C) of 0 and 1."""
    train, rows = data.parts[TRAIN], data.parts[eval_part]
    num_classes = 0 if data.labels is None else len(data.labels)
    truth = targets(train, num_classes)
    if data.labels is None:
        constant = "mean", np.full(len(rows), truth.mean())
    elif truth.ndim == 1:
        constant = "majority", np.full(len(rows), np.bincount(truth).argmax())
    else:  # labels of most rows; if there are none, the most frequent
        usual = (truth.mean(0) > 0.5).astype(np.int64)
        usual[truth.sum(0).argmax()] = 1
        constant = "majority", np.tile(usual, (len(rows), 1))
    bag = _BagOfWords(train, WEIGHTS // max(1, num_classes))
    learned = bag.features(train)
    choosing = data.parts.get(VALIDATION, []) if eval_part == TEST else []
    metric = METRICS[data.task.shape.metrics[0]]
    chosen, best = STRENGTHS[1], -np.inf
    models = {}
    for strength in STRENGTHS if choosing else (chosen,):
        models[strength] = _fitted(learned, truth, strength, data.labels is None)
        if choosing:
            predicted = models[strength].predict(bag.features(choosing))
            score = metric(targets(choosing, num_classes), predicted)
            if score > best:
                chosen, best = strength, score
    return [constant, ("words", models[chosen].predict(bag.features(rows)))]


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


class KeywordSearch:
    """BM25 (Robertson & Zaragoza 2009, doi 10.1561/1500000019, with the inverse document frequency
    of Lucene) over lower-case words, without stop words or stemming."""

    def __init__(self, documents: Sequence[str]) -> None:
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer

        self._vectorizer = CountVectorizer(token_pattern=WORD)
        counts = self._vectorizer.fit_transform([*documents, "a"])[:-1].astype(np.float32)  # 1 word
        lengths = np.asarray(counts.sum(1))[:, 0]
        frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = np.log1p((len(documents) - frequencies + 0.5) / (frequencies + 0.5))
        damping = 1 - BY_LENGTH + BY_LENGTH * lengths / max(1.0, lengths.mean())
        of_entry = np.repeat(damping, np.diff(counts.indptr))
        weights = (counts.data * (SATURATION + 1) / (counts.data + SATURATION * of_entry)) * rarity[
            counts.indices
        ]
        self._weights = sparse.csr_matrix(
            (weights.astype(np.float32), counts.indices, counts.indptr), counts.shape
        )

    def scores(self, queries: Sequence[str], documents: slice) -> NDArray[np.float32]:
        """Return the scores (Q, C) of a slice of the documents; -inf without a common word."""
        counts = self._vectorizer.transform(queries).astype(np.float32)
        scores = (counts @ self._weights[documents].T).toarray()
        return np.where(scores > 0, scores, -np.inf).astype(np.float32)
