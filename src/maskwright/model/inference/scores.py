"""Scores of a model for examples, batched by length and returned in the order of the examples.

    scores(objective, examples)   ->  (N, L) float32, in the order of the examples or places

A prepared network computes concatenated texts without padding. Inputs of encoder-decoder models,
and texts of which several are pooled together, are packed into rows (`EncodedExamples.batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.model.batch import Batch
from maskwright.model.inference.batches import by_length, portions
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.inference.engine import at_place
from maskwright.model.inference.prepared import Place, Prepared, finite
from maskwright.model.objectives.modules.supervised import (
    Contrast,
    Supervised,
    last_states,
    pool_texts,
)

# Objectives whose output is scores, not text.
ScoringObjective = Supervised | Contrast
# Indices of rows of scores, and these rows.
ScoreBatches = Iterator[tuple[NDArray[np.int64], Tensor]]


def scores(
    objective: ScoringObjective, examples: EncodedExamples, collation: Collation
) -> NDArray[np.float32]:
    """Return the scores of all examples in order: (N, L), (N, choices), or (M, L) of places."""
    return _in_order(_scored(objective, examples, collation), examples.num_scores)


def require_finite(scores: object, examples: EncodedExamples, where: object = None) -> None:
    """Raise CheckpointError if a score is not finite, except -inf for missing choices."""
    if isinstance(scores, np.ndarray) and scores.dtype.kind == "f":
        absent = np.isneginf(scores) & (not examples.plain)
        finite(torch.from_numpy(np.where(absent, 0.0, scores)), where)


def vectors(
    objective: Supervised, examples: EncodedExamples, collation: Collation
) -> NDArray[np.float32]:
    """Return (N, D) the mean of the hidden states of each text, in order."""

    def mean(batch: Batch) -> Tensor:
        return pool_texts(last_states(objective.product, batch), batch.documents, "mean")

    return _in_order(_in_rows(examples, collation, mean, objective.product.device), len(examples))


def place_of(objective: ScoringObjective, collation: Collation) -> Place | None:
    """Return the position of each text whose state is used; None if all are used."""
    if not objective.reads_place:
        return None
    return "last" if collation.last else "first"


def _scored(
    objective: ScoringObjective, examples: EncodedExamples, collation: Collation
) -> ScoreBatches:
    network, position = objective.product, place_of(objective, collation)
    if isinstance(network, Prepared) and collation.decoder_start is None:
        if examples.plain:
            return _in_lines(network, examples, collation, position, objective.scores_of)
        if position is not None and examples.targets is None:
            return _of_several(network, examples, position, objective.scores_of)
    return _in_rows(examples, collation, objective.scores, network.device)


@torch.inference_mode()
def _in_lines(
    network: Prepared,
    examples: EncodedExamples,
    collation: Collation,
    position: Place | None,
    of: Callable[[Tensor, Batch], Tensor],
) -> ScoreBatches:
    """Yield the scores of concatenated texts of similar length."""
    for portion in portions(examples.lengths):
        batch, score_rows = examples.in_line(portion.numbers, collation)
        batch = batch.to(network.device)
        segments = None if batch.segments is None else batch.segments[0]
        states = network.ragged(batch.tokens[0], portion.groups, segments, position)
        yield score_rows, of(states if position else states[None], batch)


@torch.inference_mode()
def _of_several(
    network: Prepared,
    examples: EncodedExamples,
    position: Place,
    of: Callable[[Tensor, Batch], Tensor],
) -> ScoreBatches:
    """Yield the scores of examples of several texts (choices or pieces), one state of each."""
    for numbers in by_length(examples.lengths * examples.choices):
        rows, segments, batch = examples.of_answers(numbers)
        states = at_place(network, rows, position, segments)
        yield numbers, of(states, batch.to(network.device))


@torch.no_grad()
def _in_rows(
    examples: EncodedExamples,
    collation: Collation,
    ask: Callable[[Batch], Tensor],
    device: torch.device,
) -> ScoreBatches:
    """Yield the scores of texts packed into rows of equal width."""
    for numbers in by_length(examples.lengths * examples.choices):
        batch, score_rows = examples.batch(numbers, collation)
        yield score_rows, ask(batch.to(device))


def _in_order(portions: ScoreBatches, count: int) -> NDArray[np.float32]:
    scores = Scores(count)
    for score_rows, rows in portions:
        scores.add(score_rows, rows)
    return scores.rows


class Scores:
    """Collects rows of scores in any order.

    Attributes:
        rows: (N, L) float32, with -inf at the end of shorter rows.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.rows: NDArray[np.float32] = np.zeros((0, 0), dtype=np.float32)

    def add(self, row_indices: NDArray[np.int64], rows: Tensor) -> None:
        """Set the rows with these indices, and widen the array if necessary."""
        row_scores = rows.float().cpu().numpy()
        width, previous_width = row_scores.shape[1], self.rows.shape[1]
        if not len(self.rows):
            self.rows = np.full((self._count, width), -np.inf, dtype=np.float32)
        elif width > previous_width:  # these examples have more choices
            padding = (0, 0), (0, width - previous_width)
            self.rows = np.pad(self.rows, padding, constant_values=-np.inf)
        self.rows[row_indices, :width] = row_scores
