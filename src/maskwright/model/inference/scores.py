"""States and scores of a prepared network for many rows, batched by length.

    for portion in states(model, rows):     indices of rows, and their concatenated states
    hidden(model, rows)                     the states of each row, in order
    at_place(model, rows, "first")          one state for each row, in order
    scores(objective, examples)             (N, L) float32, in the order of the examples or places

Up to rounding, results do not depend on which rows share a batch (`batches.py`).

Letters: N ids of all rows of a portion, R rows, T ids of a row, D width.

A prepared network computes concatenated texts without padding. Inputs of encoder-decoder models,
and texts of which several are pooled together, are packed into rows (`EncodedExamples.batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from maskwright.base.errors import DataError
from maskwright.model.batch import Batch
from maskwright.model.inference.batches import RowGroup, by_length, portions
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.inference.prepared import Place, Prepared, cut, finite
from maskwright.model.objectives.modules.supervised import (
    Contrast,
    Supervised,
    last_states,
    pool_texts,
)

# ------------------------------------------------------------------------------ states
Rows = Sequence[Sequence[int]] | Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class PortionStates:
    """Hidden states of rows that were computed together.

    Attributes:
        numbers: (R,) indices of the rows.
        tokens: (N,) concatenated ids of these rows.
        states: (N, D), or (R, D) at one position of each row.
        lengths: length of each row.
    """

    numbers: NDArray[np.int64]
    tokens: Int[Tensor, " N"]
    states: Float[Tensor, "N D"]
    lengths: list[int]


@torch.inference_mode()
def states(
    model: Prepared,
    rows: Rows,
    segments: Rows | None = None,
    position: Place | None = None,
    start: int | None = None,
) -> Iterator[PortionStates]:
    """Yield the hidden states of all rows, at all positions or at one `position` of each.

    Args:
        start: return the states of the decoder of an encoder-decoder model, whose input is the same
            row shifted behind this id.

    Raises:
        DataError: a row without an id.
    """
    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    if len(lengths) and int(lengths.min()) < 1:
        raise DataError("a row without an id", where=f"row {int(lengths.argmin())}")
    for portion in portions(lengths):
        numbers, groups = portion.numbers, portion.groups
        ids = _flat(rows, numbers).to(model.device)
        segment_ids = None if segments is None else _flat(segments, numbers).to(model.device)
        if start is None:
            hidden_states = model.ragged(ids, groups, segment_ids, position)
        else:
            hidden_states = _decoded(model, ids, groups, segment_ids, start)
        yield PortionStates(numbers, ids, hidden_states, lengths[numbers].tolist())


def hidden(model: Prepared, rows: Rows, segments: Rows | None = None) -> list[Tensor]:
    """Return the hidden states (T, D) of each row, in order."""
    row_states = [torch.empty(0)] * len(rows)
    for portion in states(model, rows, segments):
        for number, states_of_row in zip(
            portion.numbers, portion.states.split(portion.lengths), strict=True
        ):
            row_states[number] = states_of_row
    return row_states


def at_place(
    model: Prepared, rows: Rows, position: Place, segments: Rows | None = None
) -> Float[Tensor, "R D"]:
    """Return the hidden state at one position of each row, in order."""
    portions = list(states(model, rows, segments, position))
    order = np.argsort(np.concatenate([portion.numbers for portion in portions]))
    all_states = torch.cat([portion.states for portion in portions])
    return all_states[torch.from_numpy(order).to(all_states.device)]


def _decoded(
    model: Prepared, ids: Tensor, groups: Sequence[RowGroup], segments: Tensor | None, start: int
) -> Float[Tensor, "N D"]:
    outputs = []
    for tokens, segment_ids in zip(cut(ids, groups), cut(segments, groups), strict=True):
        memory = model.encode(tokens, segments=segment_ids)
        decoder_ids = torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], 1)
        outputs.append(model.decode(decoder_ids, memory=memory).flatten(0, 1))
    return torch.cat(outputs)


def _flat(rows: Rows, numbers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(rows[n], np.int64) for n in numbers]))


# ------------------------------------------------------------------------------ scores
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
