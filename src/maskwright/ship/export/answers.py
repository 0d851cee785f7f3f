"""Evaluation of an exported graph on labelled rows.

    rows --task type--> ids --graph, padded batches--> scores --task type--> predictions, metric

Texts are batched by length and padded to the longest text of their batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.learn.tasks.base.task_type import Encoded, TaskType
from maskwright.model.graph.graphs import IDS, MASK, SEGMENTS, Graph
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.ship.export.proof import Run

BATCH_SIZE = 16
Numbers = NDArray[Any]


@dataclass(frozen=True)
class EvaluationRows:
    """Labelled rows, encoded for a model.

    Attributes:
        source: the split or file of the rows, for messages.
    """

    task_type: TaskType
    encoded: Encoded
    collation: Collation
    source: str

    def evaluate(self, graph: Graph, run: Run) -> tuple[float, Numbers]:
        """Return the task's metric for the scores that `run` computes, and the scores.

        Raises:
            IncompatibleError: as `scores`.
        """
        row_scores = scores(graph, run, self.encoded.examples, self.collation)
        answers = self.task_type.answers(self.encoded, row_scores)
        metrics = self.task_type.metrics(self.encoded.rows, answers).values
        return float(metrics[self.task_type.measure]), row_scores


def scores(
    graph: Graph, run: Run, examples: EncodedExamples, collation: Collation
) -> NDArray[np.float32]:
    """Compute the scores of examples with a graph; shapes as in `inference.scores.scores`.

    Raises:
        IncompatibleError: texts are split into pieces, or the task generates text.
    """
    if examples.pieces is not None or examples.targets is not None:
        raise IncompatibleError(
            "one graph does not answer such rows",
            where=graph.name,
            found="texts in pieces" if examples.targets is None else "texts that are written",
            wanted="whole texts with labels",
        )
    lengths = examples.texts.lengths
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    slices = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    choices = examples.choices if len(graph.inputs[0].axes) == 3 else 1
    longest = lengths.reshape(-1, choices).max(1)
    text_outputs: list[Numbers] = [np.zeros(0)] * len(longest)
    for batch in _length_batches(longest):
        texts = (batch[:, None] * choices + np.arange(choices)).reshape(-1)
        inputs = _padded(graph, examples, [slices[text] for text in texts], collation.pad)
        if choices > 1:
            inputs = {name: x.reshape(len(batch), choices, -1) for name, x in inputs.items()}
        outputs = run(inputs)
        for position, index in enumerate(batch):
            text_outputs[index] = _text_output({name: x[position] for name, x in outputs.items()})
    if examples.places is not None:
        return _at_places(text_outputs, examples)
    stacked = np.stack(text_outputs) if text_outputs else np.zeros((0, 1))
    return stacked.reshape(len(examples), -1).astype(np.float32)


def _length_batches(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each batch, in the order of the lengths."""
    order = np.argsort(lengths, kind="stable")
    for begin in range(0, len(order), BATCH_SIZE):
        yield order[begin : begin + BATCH_SIZE]


def _padded(
    graph: Graph, examples: EncodedExamples, texts: list[slice], pad: int
) -> dict[str, NDArray[Any]]:
    """Return the inputs of a graph by name, (texts, longest text), for slices of the tokens."""
    width = max(text.stop - text.start for text in texts)
    arrays = {
        port.name: np.full((len(texts), width), pad if port.name == IDS else 0, port.dtype)
        for port in graph.inputs
    }
    for row, text in enumerate(texts):
        length = text.stop - text.start
        arrays[IDS][row, :length] = examples.texts.tokens[text]
        arrays[MASK][row, :length] = 1
        if SEGMENTS in arrays and examples.segments is not None:
            arrays[SEGMENTS][row, :length] = examples.segments[text]
    return arrays


def _text_output(outputs: dict[str, Numbers]) -> Numbers:
    """Return the embedding, the scores, or the token scores from the outputs of one text."""
    if "sentence_embedding" in outputs:
        return outputs["sentence_embedding"]
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return outputs["logits"]


def _at_places(text_outputs: list[Numbers], examples: EncodedExamples) -> NDArray[np.float32]:
    """Return the scores at the `places` of the examples; for spans, log-probabilities of the start
    and end positions in each text."""
    assert examples.places is not None
    ends = np.cumsum(examples.places.lengths)[:-1]
    place_scores = []
    for text, positions in zip(text_outputs, np.split(examples.places.tokens, ends), strict=True):
        logits = text[positions]
        if examples.labels.ndim == 2 and len(logits):  # start and end of a span
            maximum = logits.max(0, keepdims=True)
            logits = logits - maximum - np.log(np.exp(logits - maximum).sum(0, keepdims=True))
        place_scores.append(logits)
    return np.concatenate(place_scores).astype(np.float32)
