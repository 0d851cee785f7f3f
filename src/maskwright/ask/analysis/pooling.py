"""Similarity of texts by the vectors of a frozen model, for each layer and pooling.

For pairs of texts with a similarity score: Spearman's correlation of the score with the cosine of
the two vectors, pooled by the first token (CLS), the last one, the mean or the maximum over tokens.
Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.analysis.hidden_states import Pooling, ProbedModel, distance_steps, layer_states
from maskwright.base.findings import Finding
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import LEVEL, Estimate, estimate
from maskwright.base.metrics.paired import of_metric
from maskwright.base.metrics.verdict import Rival, Verdict, verdict
from maskwright.base.randomness import key, permute
from maskwright.learn.tasks.base.task_type import task_for_vectors
from maskwright.model.batch import Batch
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.inference.prepared import Prepared
from maskwright.model.objectives.modules.supervised import numbered, pool_texts
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION

RESAMPLES = 200
RESAMPLES_PER_TEST = 50  # of the verdict, for each layer and pooling


def _first(hidden: Tensor, batch: Batch) -> Tensor:
    assert batch.pooled is not None
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.pooled)


def _last(hidden: Tensor, batch: Batch) -> Tensor:
    numbers, count = numbered(batch.documents, hidden)
    positions = torch.arange(len(numbers), device=numbers.device)
    ends = positions.new_zeros(count + 1).scatter_reduce(0, numbers, positions, "amax")[1:]
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, ends)


def _pooled_mean(hidden: Tensor, batch: Batch) -> Tensor:
    return pool_texts(hidden, batch.documents, "mean")


def _largest(hidden: Tensor, batch: Batch) -> Tensor:
    return pool_texts(hidden, batch.documents, "max")


WAYS: dict[str, Pooling] = {
    "first token (CLS)": _first,
    "last token": _last,
    "mean": _pooled_mean,
    "maximum": _largest,
}


@dataclass(frozen=True)
class PoolingComparison:
    """Spearman's correlations by pooling, each by layer (`found`); of an untrained model with mean
    pooling (`untrained`), and of TF-IDF (`words`). `pairs` of the `there` pairs were compared.
    `verdict`: whether the best layer and pooling is better than both; its intervals allow for the
    choice among all of them."""

    part: str
    pairs: int
    there: int
    layers: list[str]
    found: dict[str, list[Estimate]]
    untrained: list[Estimate]
    words: float
    verdict: Verdict
    findings: Sequence[Finding] = ()


def compare_pooling(
    subject: ProbedModel, data: Dataset, items: int | None = None
) -> PoolingComparison:
    """Compare layers and poolings on pairs of texts with similarity scores: on the test part of
    `data`, or on all if it is not split; at most `items` of them, sampled (None: all)."""
    task_type = task_for_vectors({})
    part = next(name for name in (ALL, TEST, VALIDATION, TRAIN) if name in data.parts)
    all_rows = data.parts[part]
    indices = np.arange(len(all_rows) if items is None else min(items, len(all_rows)))
    order = np.sort(permute(key("draw", 0), len(all_rows), indices))  # files are often in an order
    rows = [all_rows[number] for number in order]
    encoded = task_type.encode(rows, subject.frame)
    truth = np.array([row.label for row in rows], np.float64)
    ranked = {
        name: _ranked(subject.model, subject, encoded.examples, method)
        for name, method in WAYS.items()
    }
    untrained = _ranked(subject.untrained(), subject, encoded.examples, _pooled_mean)
    data_to_train = replace(data, parts={TRAIN: all_rows, **data.parts})
    baselines = dict(task_type.baselines(data_to_train, part))
    tfidf_scores = np.asarray(next(iter(baselines.values())))[order]
    correlations = {name: _correlations(truth, layers) for name, layers in ranked.items()}
    name, layer = max(
        ((name, number) for name in ranked for number in range(len(untrained))),
        key=lambda at: np.nan_to_num(correlations[at[0]][at[1]].value, nan=-1.0),
    )
    count, best = len(ranked) * len(untrained), ranked[name][layer]
    rivals = []
    for rival, scores in (
        ("a bag of words", tfidf_scores),
        ("an untrained model", untrained[layer]),
    ):
        level, resamples = 1 - (1 - LEVEL) / count, RESAMPLES_PER_TEST * count
        gap = of_metric(metrics.spearman, truth, best, scores, level=level, resamples=resamples)
        rivals.append(Rival(rival, metrics.spearman(truth, scores), gap))
    where = f"Spearman's correlation of the {name} at {subject.layers[layer]},"
    return PoolingComparison(
        part,
        len(rows),
        len(all_rows),
        subject.layers,
        correlations,
        _correlations(truth, untrained),
        metrics.spearman(truth, tfidf_scores),
        verdict(where, correlations[name][layer].value, rivals, len(rows), ("pair", "pairs")),
        encoded.findings,
    )


def _ranked(
    model: Prepared, subject: ProbedModel, examples: EncodedExamples, method: Pooling
) -> list[NDArray[np.float64]]:
    """Return scores of pairs that rank them as the cosines of their vectors do, by layer."""
    states = layer_states(model, examples, subject.collation, method)
    # A pair's texts follow each other; the nearest pair has the highest rank, as by cosine.
    return [np.asarray(-distance_steps(layer[0::2], layer[1::2])) for layer in states]


def _correlations(
    truth: NDArray[np.float64], ranked: Sequence[NDArray[np.float64]]
) -> list[Estimate]:
    return [estimate(metrics.spearman, truth, layer, resamples=RESAMPLES) for layer in ranked]
