"""What a model gives for examples, without learning: examples of like length together, the answers
in the order of the examples.

    scores(objective, examples)   ->  (N, L) float32, in the order of the examples or places
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.inference.batches import portions
from maskwright.inference.encoded import Collation, Examples
from maskwright.inference.prepared import Place, Prepared
from maskwright.objectives.modules.supervised import Supervised, pool_texts
from maskwright.objectives.parts.contrastive import Contrast

# Ids that are scored at a time; examples of like length are scored together.
AT_ONCE = 16_384
# What gives scores, not texts.
Scored = Supervised | Contrast


def scores(objective: Scored, examples: Examples, collation: Collation) -> NDArray[np.float32]:
    """(N, L) scores of all examples, (N, choices), or (M, L) of all places, in their order."""
    network = objective.product
    if isinstance(network, Prepared) and examples.plain and collation.decoder_start is None:
        return _in_lines(objective, network, examples, collation)
    return _asked(objective, examples, collation, objective.scores, examples.asked)


@torch.inference_mode()
def _in_lines(
    objective: Scored, network: Prepared, examples: Examples, collation: Collation
) -> NDArray[np.float32]:
    """`scores` of a prepared network: texts of like length one after the other, none padded."""
    parts, device = [], network.device
    place: Place | None = None
    if objective.reads_place:
        place = "last" if collation.last else "first"
    for portion in portions(examples.lengths):
        batch, which = examples.in_line(portion.numbers, collation)
        batch = batch.to(device)
        segments = None if batch.segments is None else batch.segments[0]
        states = network.ragged(batch.tokens[0], portion.groups, segments, place)
        found = objective.scores_of(states if place else states[None], batch)
        parts.append((which, found.float().cpu().numpy()))
    if not parts:
        return np.zeros((0, 0), dtype=np.float32)
    made = np.empty((examples.asked, parts[0][1].shape[1]), np.float32)
    for which, rows in parts:
        made[which] = rows
    return made


def scores_together(
    objectives: Sequence[Supervised], examples: Examples, collation: Collation
) -> list[NDArray[np.float32]]:
    """`scores` of each of several heads of one body, which reads each text once."""
    first = objectives[0]

    def ask(batch: Batch) -> Tensor:
        hidden = first.states(batch)
        return torch.cat([each.scores_of(hidden, batch) for each in objectives], 1)

    found = _asked(first, examples, collation, ask, examples.asked)
    widths = [each.head.labels for each in objectives]
    return np.split(found, np.cumsum(widths)[:-1], axis=1)


def vectors(objective: Supervised, examples: Examples, collation: Collation) -> NDArray[np.float32]:
    """(N, D): the mean of the hidden states of each text, in their order."""

    def mean(batch: Batch) -> Tensor:
        return pool_texts(objective.states(batch), batch.documents, "mean")

    return _asked(objective, examples, collation, mean, len(examples))


@torch.no_grad()
def _asked(
    objective: Scored,
    examples: Examples,
    collation: Collation,
    ask: Callable[[Batch], Tensor],
    count: int,
) -> NDArray[np.float32]:
    device = objective.product.device
    found: NDArray[np.float32] | None = None
    for numbers in by_length(examples.lengths * examples.choices):
        batch, which = examples.batch(numbers, collation)
        told = ask(batch.to(device)).float().cpu().numpy()
        width = told.shape[1]
        if found is None:
            found = np.full((count, width), -np.inf, dtype=np.float32)
        elif width > found.shape[1]:  # choices, of which this batch has more
            found = np.pad(found, ((0, 0), (0, width - found.shape[1])), constant_values=-np.inf)
        found[which, :width] = told
    return np.zeros((0, 0), dtype=np.float32) if found is None else found


def by_length(lengths: NDArray[np.int64], at_once: int = AT_ONCE) -> Iterator[NDArray[np.int64]]:
    """Numbers of examples in portions of at most `at_once` ids, the longest first."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    begin = 0
    while begin < len(order):
        before = ends[begin] - lengths[order[begin]]
        stop = max(begin + 1, int(np.searchsorted(ends, before + at_once, side="right")))
        yield order[begin:stop]
        begin = stop
