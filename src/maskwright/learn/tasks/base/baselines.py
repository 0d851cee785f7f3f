"""Baselines on the same parts as a model: the most frequent answer or the mean, and a bag of words.
For retrieval: BM25, without training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.learn.tasks.base.bag_of_words import WORD, BagOfWords, decided, targets
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

# Saturation of repeated words and normalisation by length in BM25, as of Anserini on BEIR.
SATURATION, BY_LENGTH = 0.9, 0.4


def baselines(
    data: Dataset, eval_part: str, measure: str | None = None
) -> list[tuple[str, NDArray[Any]]]:
    """Return (name, predictions) of the most frequent answer or the mean, and of a bag of words,
    for the rows of `eval_part`: (N,) classes or numbers; for several labels (N, C) of 0 and 1. The
    strength of the bag of words is chosen on validation data, by `measure` or the task's own."""
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
    choose_on = data.parts.get(VALIDATION, []) if eval_part == TEST else []
    metric = measure or data.task.shape.metrics[0]
    bag = BagOfWords.fit(train, num_classes, metric, choose_on)
    return [constant, ("words", decided(bag.scores(rows), truth))]


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
