"""Similarities of vectors, by their names in sentence-transformers; exact search for the nearest
ones, and for the hard negatives of pairs of texts that belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import Finding
from maskwright.base.terminal import counted, decimals
from maskwright.text.tables.rows import MatchExample

Vectors = NDArray[np.float64]
QUERIES_AT_ONCE = 256  # queries whose scores for a portion of the documents are in memory
SHARE_OF_POSITIVE = 0.95
PORTION = 8192  # candidates that are compared at a time


def _cosines(a: Vectors, b: Vectors) -> Vectors:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.clip((a * b).sum(1) / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0))


SIMILARITIES: dict[str, Callable[[Vectors, Vectors], Vectors]] = {
    "cosine": _cosines,
    "dot": lambda a, b: (a * b).sum(1),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(1),
}


def compared(
    similarity: str, first_vectors: NDArray[np.float32], second_vectors: NDArray[np.float32]
) -> Vectors:
    """Return similarities (N,) of vectors (N, D), where one may be (1, D); higher is closer."""
    return SIMILARITIES[similarity](
        first_vectors.astype(np.float64), second_vectors.astype(np.float64)
    )


def unit_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors (N, D) scaled to length 1, except those of length 0."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), np.float32)


class Ranking:
    """The best documents of each query, searched exhaustively in portions of the documents.

    Of equal scores the document that comes first is the better one. Memory depends on the numbers
    of queries and ranks, but not on the number of documents.

    Attributes:
        scores: (Q, K) float32, descending; -inf where there are fewer documents.
        documents: (Q, K) int64 their numbers, counted over all portions; -1 where there are fewer.
    """

    def __init__(self, num_queries: int, num_ranks: int) -> None:
        self.scores = np.full((num_queries, num_ranks), -np.inf, np.float32)
        self.documents = np.full((num_queries, num_ranks), -1, np.int64)
        self._num_documents = 0

    def add(self, num_documents: int, score: Callable[[slice], NDArray[np.float32]]) -> None:
        """Add the next documents.

        Args:
            score: returns the scores (R, num_documents) of a slice of R queries; -inf excludes a
                document.
        """
        for begin in range(0, len(self.scores), QUERIES_AT_ONCE):
            rows = slice(begin, begin + QUERIES_AT_ONCE)
            scores = np.concatenate([self.scores[rows], score(rows)], axis=1)
            num_ranks = self.scores.shape[1]
            lowest = np.partition(scores, -num_ranks, axis=1)[:, -num_ranks]
            for query, row in enumerate(scores, start=begin):
                (columns,) = np.nonzero((row >= lowest[query - begin]) & (row > -np.inf))
                columns = columns[np.argsort(-row[columns], kind="stable")][:num_ranks]
                is_new = columns >= num_ranks
                numbers = self.documents[query, np.where(is_new, 0, columns)]
                added = columns - num_ranks + self._num_documents
                self.documents[query, : len(columns)] = np.where(is_new, added, numbers)
                self.scores[query, : len(columns)] = row[columns]
        self._num_documents += num_documents


def with_hard_negatives(
    rows: Sequence[MatchExample], count: int, embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> tuple[list[MatchExample], Finding]:
    """Add `count` hard negatives to those of each row: other texts that a model takes for close.
    Where there are fewer, the positive stands for the missing ones, which the loss leaves out.

    For each anchor the candidates are the positives and negatives of all rows. Left out are the
    positives and negatives of equal anchors, the anchor itself, and what is too similar to be
    surely wrong: above 95 % of the similarity of the anchor's positive (Moreira et al. 2024,
    arXiv:2407.15831, "top-k with percentage to positive threshold").

    Args:
        embed: returns the vectors (N, D) of texts, of length 1; called once.

    Returns:
        The rows, and a finding on their similarities.
    """
    candidates = list(dict.fromkeys(t for row in rows for t in (row.positive, *row.negatives)))
    number_of = {text: number for number, text in enumerate(candidates)}
    excluded: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        texts = (row.anchor, row.positive, *row.negatives)
        excluded[row.anchor].update(number_of[text] for text in texts if text in number_of)
    vectors = embed([*(row.anchor for row in rows), *candidates])
    anchors, candidate_vectors = vectors[: len(rows)], vectors[len(rows) :]
    positives = np.array([number_of[row.positive] for row in rows])
    similarities = (anchors * candidate_vectors[positives]).sum(1)
    limits = similarities - (1 - SHARE_OF_POSITIVE) * np.abs(similarities)

    def score(portion: slice, of_rows: slice) -> NDArray[np.float32]:
        products = anchors[of_rows] @ candidate_vectors[portion].T
        products[products > limits[of_rows, None]] = -np.inf
        for index, row in enumerate(rows[of_rows]):
            numbers = [n - portion.start for n in excluded[row.anchor]]
            products[index, [n for n in numbers if 0 <= n < products.shape[1]]] = -np.inf
        return np.asarray(products, np.float32)

    ranking = Ranking(len(rows), count)
    for begin in range(0, len(candidates), PORTION):
        portion = slice(begin, begin + PORTION)
        ranking.add(len(candidates[portion]), partial(score, portion))
    mined = [
        replace(
            row,
            negatives=(*row.negatives, *(candidates[n] if n >= 0 else row.positive for n in ns)),
        )
        for row, ns in zip(rows, ranking.documents.tolist(), strict=True)
    ]
    is_mined = ranking.documents >= 0
    closeness = decimals(float(ranking.scores[is_mined].mean())) if is_mined.any() else "none"
    num_mined = counted(int(is_mined.sum()), "hard negative")
    message = f"{num_mined} mined for {counted(len(rows), 'row')}"
    evidence = f"mean similarity {closeness}, of positives {decimals(float(similarities.mean()))}"
    if num_short := int((~is_mined).any(1).sum()):
        evidence += f"; {counted(num_short, 'row')} with fewer than {count}"
    return mined, Finding("hard-negatives", message, evidence)
