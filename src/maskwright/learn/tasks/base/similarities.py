"""Similarities of vectors, by their names in sentence-transformers; leading dimensions of vectors;
and exact search for the nearest ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
QUERIES_AT_ONCE = 256  # queries whose scores for a portion of the documents are in memory


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
