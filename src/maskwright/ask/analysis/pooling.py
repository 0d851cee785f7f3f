"""Similarity of texts by the vectors of a frozen model: which layer, and which pooling, is best?

For pairs of texts with a number that says how alike they are: Spearman's correlation of that number
with the cosine of the two vectors, for the state of the first token (CLS), of the last, the mean
and the maximum over tokens. Nothing is trained.
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
from maskwright.base.metrics.intervals import Estimate, estimate
from maskwright.base.randomness import key, permute
from maskwright.learn.tasks.base.task_type import task_for_vectors
from maskwright.model.batch import Batch
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.inference.prepared import Prepared
from maskwright.model.objectives.modules.supervised import numbered, pool_texts
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.split_files import ALL, TEST, TRAIN, VALIDATION

RESAMPLES = 200


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
    pooling (`untrained`), and of TF-IDF (`words`). `pairs` of the `there` pairs were compared."""

    part: str
    pairs: int
    there: int
    layers: list[str]
    found: dict[str, list[Estimate]]
    untrained: list[Estimate]
    words: float
    findings: Sequence[Finding] = ()


def compare_pooling(
    subject: ProbedModel, data: Dataset, items: int | None = None
) -> PoolingComparison:
    """Compare layers and ways of pooling on the pairs of `data`, at most `items` of them, drawn:
    on all where they are in no parts, else on those of the test part."""
    task_type = task_for_vectors({})
    part = next(name for name in (ALL, TEST, VALIDATION, TRAIN) if name in data.parts)
    every = data.parts[part]
    numbers = np.arange(len(every) if items is None else min(items, len(every)))
    order = np.sort(permute(key("draw", 0), len(every), numbers))  # files are often in an order
    rows = [every[number] for number in order]
    encoded = task_type.encode(rows, subject.frame)
    truth = np.array([row.label for row in rows], np.float64)
    correlations = {
        name: _scored(subject.model, subject, encoded.examples, method, truth)
        for name, method in WAYS.items()
    }
    untrained = _scored(subject.untrained(), subject, encoded.examples, _pooled_mean, truth)
    with_training = replace(data, parts={TRAIN: every, **data.parts})
    answers = dict(task_type.baselines(with_training, part))
    words = np.asarray(next(iter(answers.values())))[order]
    baseline = metrics.spearman(truth, words)
    counts, findings = (len(rows), len(every)), encoded.findings
    return PoolingComparison(
        part, *counts, subject.layers, correlations, untrained, baseline, findings
    )


def _scored(
    model: Prepared,
    subject: ProbedModel,
    examples: EncodedExamples,
    method: Pooling,
    truth: NDArray[np.float64],
) -> list[Estimate]:
    states = layer_states(model, examples, subject.collation, method)
    # A pair's texts follow each other; the nearest pair has the highest rank, as by cosine.
    ranked = (-distance_steps(layer[0::2], layer[1::2]) for layer in states)
    return [estimate(metrics.spearman, truth, layer, resamples=RESAMPLES) for layer in ranked]
