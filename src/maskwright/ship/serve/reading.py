"""What the device does with items that go together: payloads in, an answer to each out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maskwright.ask.predict import texts as inference_texts
from maskwright.ask.predict.open_model import OpenModel
from maskwright.ask.predict.texts import MaskedText, PromptTokens
from maskwright.learn.tasks.base.task_type import Encoded, Outputs, TaskType
from maskwright.model.inference import together
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.inference.engine import hidden
from maskwright.model.inference.fill_mask import Hole, HolePrediction
from maskwright.model.inference.likelihood import TokenScore, prompt_scores
from maskwright.model.inference.prepared import finite
from maskwright.model.inference.scores import ScoringObjective, require_finite
from maskwright.model.inference.steps import Steps
from maskwright.model.inference.together import scores_of_all
from maskwright.model.objectives.base.sequences import first_places


@dataclass(frozen=True)
class Asked:
    """Rows of a task, and the head that answers them."""

    objective: Any
    encoded: Encoded
    collation: Collation
    task_type: TaskType

    @property
    def request(self) -> together.ScoreRequest:
        assert isinstance(self.objective, ScoringObjective)
        return together.ScoreRequest(self.objective, self.encoded.examples, self.collation)

    def written(self) -> Steps[Outputs]:
        """Answers of a task that writes them."""
        return self.task_type.steps(self.objective, self.encoded, self.collation)


def read_scores(requests: Sequence[Asked]) -> list[Any]:
    """Scores of all, those of several heads and adapters among them."""
    found = scores_of_all([each.request for each in requests])
    for scores, each in zip(found, requests, strict=True):
        require_finite(scores, each.encoded.examples)
    return list(found)


def read_states(opened: OpenModel, given: Sequence[EncodedExamples]) -> list[list[Any]]:
    """The states of each row of each payload, (T, D) float32."""
    rows: list[Any] = []
    segments: list[Any] | None = None if given[0].segments is None else []
    for examples in given:
        ends = first_places(examples.texts.lengths)[1:]
        rows += np.split(examples.texts.tokens, ends)
        if segments is not None:
            assert examples.segments is not None
            segments += np.split(examples.segments, ends)
    states = iter(hidden(opened.network(), rows, segments))
    return [
        [finite(next(states)).float().cpu().numpy() for _ in examples.texts.lengths]
        for examples in given
    ]


def read_masks(
    opened: OpenModel, given: Sequence[tuple[list[MaskedText], int]]
) -> list[list[tuple[MaskedText, list[Any]]]]:
    """What the network says of the masks of each text of each payload, of as many candidates as it
    wants."""
    texts = [text for own, _ in given for text in own]
    most = max(top for _, top in given)
    found = iter(
        inference_texts.read_masks(opened.model, texts, top=most, prepared=opened.network())
    )
    return [[(text, _best(next(found), top)) for text in own] for own, top in given]


def read_prompts(
    opened: OpenModel, given: Sequence[tuple[list[PromptTokens], int]]
) -> list[list[tuple[PromptTokens, list[TokenScore]]]]:
    """The scores of each prompt of each payload, with as many of the likeliest tokens as it
    wants."""
    rows = [prompt.ids for own, _ in given for prompt in own]
    most = max(top for _, top in given)
    found = iter(prompt_scores(opened.network(), rows, most))
    return [
        [(prompt, [(log, best[:top]) for log, best in next(found)]) for prompt in own]
        for own, top in given
    ]


def _best(holes: Sequence[HolePrediction | Hole], top: int) -> list[Any]:
    return [
        replace(hole, candidates=hole.candidates[:top])
        if isinstance(hole, Hole)
        else replace(hole, ids=hole.ids[:top], probabilities=hole.probabilities[:top])
        for hole in holes
    ]
