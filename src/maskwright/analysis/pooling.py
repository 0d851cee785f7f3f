"""A text as one vector of a frozen model: which layer, and which way of pooling, knows likeness?

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

from maskwright.analysis.hidden_states import Pooling, ProbedModel, layer_states
from maskwright.data.batch import Batch
from maskwright.findings import Finding
from maskwright.inference.encoded import Examples
from maskwright.inference.prepared import Prepared
from maskwright.labelled.examples import examples as labelled
from maskwright.labelled.formats.parts import ALL, TEST, TRAIN, VALIDATION
from maskwright.metrics import metrics
from maskwright.metrics.intervals import Estimate, estimate
from maskwright.objectives.modules.supervised import pool_texts
from maskwright.randomness import key, permute
from maskwright.tasks.parts.find import task_for_vectors

RESAMPLES = 200
SAME_DIGITS = 6  # of a cosine: what float32 states leave of it


def _first(hidden: Tensor, batch: Batch) -> Tensor:
    assert batch.pooled is not None
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.pooled)


def _last(hidden: Tensor, batch: Batch) -> Tensor:
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, _texts(batch)[1])


def _texts(batch: Batch) -> tuple[Tensor, Tensor]:
    """For each position (B T,) the number of its text or -1, and where each text ends."""
    assert batch.pooled is not None
    real = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
    flat = real.reshape(-1) > 0
    begins = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
    begins[batch.pooled] = 1
    number = torch.where(flat, begins.cumsum(0) - 1, -1)
    ends = torch.zeros(len(batch.pooled), dtype=torch.int64, device=flat.device)
    places = torch.arange(len(flat), device=flat.device)[flat]
    ends.scatter_reduce_(0, number[flat], places, "amax", include_self=False)
    return number, ends


def _mean(hidden: Tensor, batch: Batch) -> Tensor:
    return pool_texts(hidden, batch.documents, "mean")


def _largest(hidden: Tensor, batch: Batch) -> Tensor:
    return pool_texts(hidden, batch.documents, "max")


WAYS: dict[str, Pooling] = {
    "first token (CLS)": _first,
    "last token": _last,
    "mean": _mean,
    "maximum": _largest,
}


@dataclass(frozen=True)
class Pooled:
    """Spearman's correlations by way of pooling, each by layer; of the model, and of one that
    learned nothing (by its mean); `words` is that of TF-IDF. `pairs` were asked, drawn from
    `there`."""

    part: str
    pairs: int
    there: int
    layers: list[str]
    found: dict[str, list[Estimate]]
    untrained: list[Estimate]
    words: float
    findings: Sequence[Finding] = ()


def compare_pooling(
    subject: ProbedModel, data: labelled.Examples, items: int | None = None
) -> Pooled:
    """Compare layers and ways of pooling on the pairs of `data`, at most `items` of them, drawn:
    on all where they are in no parts, else on those of the test part."""
    task_type = task_for_vectors({})
    last = next(part for part in (ALL, TEST, VALIDATION, TRAIN) if part in data.parts)
    every = data.parts[last]
    wanted = np.arange(len(every) if items is None else min(items, len(every)))
    order = np.sort(permute(key("draw", 0), len(every), wanted))  # files are often in an order
    rows = [every[place] for place in order]
    encoded = task_type.encode(rows, subject.frame)
    truth = np.array([row.label for row in rows], np.float64)
    found = {
        name: _scored(subject.model, subject, encoded.examples, method, truth)
        for name, method in WAYS.items()
    }
    untrained = _scored(subject.untrained(), subject, encoded.examples, _mean, truth)
    known = data if TRAIN in data.parts else replace(data, parts={**data.parts, TRAIN: every})
    answers = dict(task_type.baselines(known, last))
    words = np.asarray(next(iter(answers.values())))[order]
    baseline = metrics.spearman(truth, words)
    return Pooled(
        last, len(rows), len(every), subject.layers, found, untrained, baseline, encoded.findings
    )


def _scored(
    model: Prepared,
    subject: ProbedModel,
    examples: Examples,
    method: Pooling,
    truth: NDArray[np.float64],
) -> list[Estimate]:
    states = layer_states(model, examples, subject.collation, method).astype(np.float64)
    states /= np.linalg.norm(states, axis=2, keepdims=True) + 1e-12
    near = (states[:, 0::2] * states[:, 1::2]).sum(2)  # a pair's texts follow each other
    near = np.round(near, SAME_DIGITS)  # cosines alike but for rounding share their rank
    return [estimate(metrics.spearman, truth, layer, resamples=RESAMPLES) for layer in near]
