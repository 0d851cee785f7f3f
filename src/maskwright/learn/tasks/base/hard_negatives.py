"""Hard negatives for pairs of texts that belong together: other texts that a model takes for close.

For each anchor the candidates are the positives and negatives of all rows. Left out are the
positives and negatives of equal anchors, the anchor itself, and what is too similar to be surely
wrong: above 95 % of the similarity of the anchor's positive (Moreira et al. 2024, arXiv:2407.15831,
"top-k with percentage to positive threshold"). The search is exhaustive; of equal similarities the
text that comes first in the rows is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import Finding
from maskwright.base.terminal import counted, decimals
from maskwright.learn.tasks.base.similarities import Ranking
from maskwright.text.tables.rows import MatchExample

SHARE_OF_POSITIVE = 0.95
PORTION = 8192  # candidates that are compared at a time


def with_hard_negatives(
    rows: Sequence[MatchExample], count: int, embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> tuple[list[MatchExample], Finding]:
    """Add `count` mined negatives to those of each row. Where there are fewer, the positive stands
    for the missing ones, which the loss leaves out.

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
