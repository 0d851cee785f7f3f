"""Baselines on the same parts as a model: the most frequent answer or the mean, and a bag of words.
For retrieval: BM25, without training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.randomness import integers, key
from maskwright.learn.tasks.base.bag_of_words import RECENT_FITS, WORD, BagOfWords, decided, targets
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

OUT_OF_FOLD = "out-of-fold"  # training rows, each predicted by a model that has not seen it
# Saturation of repeated words and normalisation by length in BM25, as of Anserini on BEIR.
SATURATION, BY_LENGTH = 0.9, 0.4


def baselines(
    data: Dataset, eval_part: str, measure: str | None = None
) -> list[tuple[str, NDArray[Any]]]:
    """Return (name, predictions) of the best answer that is the same for every row, and of a bag of
    words, for the rows of `eval_part`: (N,) classes or numbers; for several labels (N, C) of 0 and
    1. Both are for `measure`, or the task's own. No constant answer has as good a macro F1 of
    classes as chance: then there are answers drawn from the training part, too. For `OUT_OF_FOLD`,
    the training rows again, there is no bag of words."""
    train, rows = data.parts[TRAIN], data.parts[eval_part]
    num_classes = 0 if data.labels is None else len(data.labels)
    truth, metric = targets(train, num_classes), measure or data.task.shape.metrics[0]
    predictions: list[tuple[str, NDArray[Any]]] = []
    if data.labels is None:
        predictions.append(("mean", np.full(len(rows), truth.mean())))
    elif truth.ndim == 1:
        predictions.append(("majority", np.full(len(rows), np.bincount(truth).argmax())))
        if metric == "macro_f1":
            drawn = integers(key("draw", 0, 2), len(rows), len(truth))
            predictions.append(("chance", truth[drawn]))
    else:
        predictions.append(("majority", np.tile(_usual_labels(truth, metric), (len(rows), 1))))
    if eval_part == OUT_OF_FOLD:
        return predictions
    choose_on = data.parts.get(VALIDATION, []) if eval_part == TEST else []
    arguments = (tuple(train), num_classes, metric, tuple(choose_on))
    bag = RECENT_FITS.get(arguments) or BagOfWords.fit(*arguments)
    return [*predictions, ("words", decided(bag.scores(rows), truth))]


def _usual_labels(truth: NDArray[np.int64], metric: str) -> NDArray[np.int64]:
    """Return the labels (C,) that are best for a metric of (N, C) if all rows get them: for whole
    rows the most frequent combination, for the macro F1 all, for the micro F1 the most frequent
    ones, as many as it needs."""
    if metric == "accuracy":
        combinations, counts = np.unique(truth, axis=0, return_counts=True)
        return np.asarray(combinations[counts.argmax()], np.int64)
    shares, size = truth.mean(0), truth.shape[1]
    order = np.argsort(-shares, kind="stable")
    micro_f1 = np.cumsum(shares[order]) / (np.arange(1, size + 1) + shares.sum())
    count = size if metric == "macro_f1" else int(micro_f1.argmax()) + 1
    return np.isin(np.arange(size), order[:count]).astype(np.int64)


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
