"""Several requests for scores to one network, or to networks that share weights, computed together.

    scores_of_all([ScoreRequest(topics, …), ScoreRequest(moods, …)])   ->  scores of each, in order

Each distinct text is computed once for all requests whose networks are equal, so that seven heads
on one body cost as much as one. Adapters are applied to the rows of their own requests
(`shared_layers.py`). Requests to encoder-decoder models, to networks with vectors or keys in front
of the input, or with weights of their own, are computed separately.

Letters: N texts of a request, T distinct texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.model.inference.batches import read_by
from maskwright.model.inference.encoded import Collation, EncodedExamples, members_of
from maskwright.model.inference.prepared import Place, Prepared
from maskwright.model.inference.scores import Scores, ScoringObjective, place_of, scores
from maskwright.model.inference.shared_layers import can_share, layers_of


@dataclass(frozen=True)
class ScoreRequest:
    """A request for scores of `examples`; the `product` of `objective` is a prepared network."""

    objective: ScoringObjective
    examples: EncodedExamples
    collation: Collation


def scores_of_all(requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
    """Return the `scores` of each request, in order; equal up to rounding to separate calls."""
    scores_of: dict[int, NDArray[np.float32]] = {}
    for numbers in _sharing(requests):
        group = [requests[number] for number in numbers]
        if len(group) == 1:
            (request,) = group
            group_scores = [scores(request.objective, request.examples, request.collation)]
        else:
            group_scores = _read_together(group)
        scores_of |= dict(zip(numbers, group_scores, strict=True))
    return [scores_of[number] for number in range(len(requests))]


def _sharing(requests: Sequence[ScoreRequest]) -> list[list[int]]:
    """Group the indices of requests that can be computed together."""
    groups: list[list[int]] = []
    for number, request in enumerate(requests):
        for group in groups:
            member = requests[group[0]]
            if _can_join(member) and _can_join(request) and _on_one(member, request):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _can_join(request: ScoreRequest) -> bool:
    examples = request.examples
    network: Any = request.objective.product
    if not isinstance(network, Prepared):
        return False
    if request.collation.decoder_start is not None or examples.targets is not None:
        return False
    return examples.plain or _place(request) is not None


def _on_one(request: ScoreRequest, other: ScoreRequest) -> bool:
    same_segments = (request.examples.segments is None) == (other.examples.segments is None)
    return same_segments and can_share(_network(request), _network(other))


def _network(request: ScoreRequest) -> Prepared:
    network: Any = request.objective.product
    assert isinstance(network, Prepared)
    return network


def _place(request: ScoreRequest) -> Place | None:
    return place_of(request.objective, request.collation)


def _read_together(requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
    """Compute the scores of requests to networks for which `can_share` holds."""
    texts = _Texts()
    readings = [_Reading(request, texts.numbers(request.examples)) for request in requests]
    networks = list(dict.fromkeys(map(_network, requests)))
    members = [networks.index(_network(request)) for request in requests]
    layers, lengths, device = layers_of(networks), texts.lengths, networks[0].device
    requested = np.zeros((len(networks), len(lengths)), dtype=np.bool_)
    for member, reading in zip(members, readings, strict=True):
        requested[member, reading.texts] = True
    positions = {_place(request) for request in requests}
    position = positions.pop() if len(positions) == 1 else None
    for numbers in read_by(lengths, layers.readings(requested)):
        tokens, segments = texts.in_line(numbers, device)
        requested_here = requested[:, numbers]
        states = layers.ragged(tokens, lengths[numbers], requested_here, segments, position)
        for member, reading in zip(members, readings, strict=True):
            own_texts = numbers[requested_here[member]]
            reading.take(own_texts, lengths[own_texts], states[member], position)
    return [reading.scores() for reading in readings]


class _Reading:
    """A request and its scores so far; `texts` (N,) are the numbers of its texts among all distinct
    ones."""

    def __init__(self, request: ScoreRequest, texts: NDArray[np.int64]) -> None:
        self.request, self.texts = request, texts
        self._scores = Scores(request.examples.num_scores)
        self._states: Tensor | None = None  # (N, D), where several texts make one answer

    @torch.inference_mode()
    def take(
        self,
        numbers: NDArray[np.int64],
        lengths: NDArray[np.int64],
        states: Tensor,
        position_read: Place | None,
    ) -> None:
        """Add the concatenated hidden states of the distinct texts `numbers` with `lengths` ids, or
        only those at `position_read` of each text."""
        objective, examples = self.request.objective, self.request.examples
        order = np.argsort(numbers)
        nearest = np.searchsorted(numbers[order], self.texts).clip(max=max(0, len(numbers) - 1))
        own_indices = (
            np.flatnonzero(numbers[order][nearest] == self.texts) if len(numbers) else nearest[:0]
        )
        if not len(own_indices):
            return
        indices = order[nearest[own_indices]]  # index of each own text in `numbers`
        position = _place(self.request)
        if position_read is None:
            begins = np.cumsum(lengths) - lengths
            if position is None:
                indices = members_of(lengths, indices)
            else:
                indices = begins[indices] + (lengths[indices] - 1 if position == "last" else 0)
        if len(indices) != len(states) or bool((np.diff(indices) != 1).any()):
            states = states[torch.from_numpy(indices).to(states.device)]
        if not examples.plain:
            if self._states is None:
                self._states = states.new_empty(len(self.texts), states.shape[1])
            self._states[torch.from_numpy(own_indices).to(states.device)] = states
            return
        batch, score_rows = examples.in_line(own_indices, self.request.collation)
        batch = batch.to(states.device)
        states = states if position else states[None]
        self._scores.add(score_rows, objective.scores_of(states, batch))

    @torch.inference_mode()
    def scores(self) -> NDArray[np.float32]:
        """The scores of all examples, in order."""
        if self._states is not None:
            all_indices = np.arange(len(self.request.examples))
            batch = self.request.examples.of_answers(all_indices)[2].to(self._states.device)
            self._scores.add(all_indices, self.request.objective.scores_of(self._states, batch))
        return self._scores.rows


class _Texts:
    """Distinct texts."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], int] = {}
        self._numbers: dict[int, NDArray[np.int64]] = {}
        self._tokens: list[NDArray[np.int64]] = []
        self._segments: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def numbers(self, examples: EncodedExamples) -> NDArray[np.int64]:
        """Return (N,) the number of each text of the examples; equal texts have equal numbers."""
        if id(examples.texts) not in self._numbers:
            ends = np.cumsum(examples.texts.lengths)[:-1]
            tokens = np.split(examples.texts.tokens, ends)
            kinds = None if examples.segments is None else np.split(examples.segments, ends)
            text_numbers = np.empty(len(tokens), np.int64)
            for index, ids in enumerate(tokens):
                segment_bytes = b"" if kinds is None else kinds[index].tobytes()
                number = self._known.setdefault((ids.tobytes(), segment_bytes), len(self._known))
                if number == len(self._tokens):
                    self._tokens.append(ids)
                    if kinds is not None:
                        self._segments.append(kinds[index])
                text_numbers[index] = number
            self._numbers[id(examples.texts)] = text_numbers
        return self._numbers[id(examples.texts)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self._tokens], np.int64)

    def in_line(
        self, numbers: NDArray[np.int64], device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """Return the concatenated ids and segments of these texts."""
        tokens = np.concatenate([self._tokens[number] for number in numbers])
        if not self._segments:
            return torch.from_numpy(tokens).to(device), None
        segments = np.concatenate([self._segments[number] for number in numbers])
        return torch.from_numpy(tokens).to(device), torch.from_numpy(segments).to(device)
