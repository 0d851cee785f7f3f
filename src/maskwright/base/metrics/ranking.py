"""Metrics of ranked documents, by query, as defined by trec_eval (and thus pytrec_eval and BEIR):

    ndcg_at_k      sum of grade / log2(rank + 1) over the first k documents, divided by the same sum
                   over all judged documents in the best order (Järvelin & Kekäläinen 2002, doi
                   10.1145/582415.582418, with the grade itself as the gain)
    recall_at_k    share of the relevant documents that are among the first k
    mrr_at_k       1 / rank of the first relevant document; 0 if it is not among the first k
    map_at_k       mean of the precision at the rank of each relevant document; 0 for those that
                   are not among the first k

A document is relevant if its grade is above 0. Documents without a grade have the grade 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEASURES = ("ndcg_at_10", "recall_at_10", "recall_at_100", "mrr_at_10", "map_at_1000")
DEPTH = 1000  # ranks that the measures look at


def ranking_metrics(
    ranked_grades: NDArray[Any], judged_grades: Sequence[Sequence[float]]
) -> NDArray[np.float64]:
    """Return the `MEASURES` of each query, (Q, 5).

    Args:
        ranked_grades: (Q, K) grades of the documents of each query by rank; 0 beyond its last.
        judged_grades: the grades of all judged documents of each query, at least one above 0.
    """
    gains = np.maximum(ranked_grades[:, :DEPTH], 0).astype(np.float64)
    ranks = np.arange(1, gains.shape[1] + 1)
    ideal_gains = np.zeros((len(gains), 10))
    num_relevant = np.zeros(len(gains))
    for query, grades in enumerate(judged_grades):
        positive = sorted((grade for grade in grades if grade > 0), reverse=True)
        num_relevant[query] = len(positive)
        ideal_gains[query, : len(positive)] = positive[:10]
    relevant = gains > 0
    reciprocal = np.where(relevant[:, :10], 1 / ranks[:10], 0.0).max(1, initial=0.0)
    precisions = relevant.cumsum(1) / ranks
    return np.stack(
        [
            _discounted(gains[:, :10]) / _discounted(ideal_gains),
            relevant[:, :10].sum(1) / num_relevant,
            relevant[:, :100].sum(1) / num_relevant,
            reciprocal,
            np.where(relevant, precisions, 0.0).sum(1) / num_relevant,
        ],
        axis=1,
    )


def _discounted(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums (Q,) of gains (Q, K), each divided by log2(rank + 1)."""
    return np.asarray(gains @ (1 / np.log2(np.arange(2, gains.shape[1] + 2))))
