"""The scores that an exported graph gives for labelled rows, as a task type reads them.

    rows --task type--> Examples --graph, padded batches--> scores --task type--> answers, figures

Texts of like length are read together, each padded to the longest of its batch.
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

AT_ONCE = 16  # texts
Numbers = NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """Labelled rows, as a model reads them.

    Attributes:
        part: where they are from, for a reader.
    """

    task_type: TaskType
    encoded: Encoded
    collation: Collation
    part: str

    def figure(self, graph: Graph, run: Run) -> tuple[float, Numbers]:
        """The task's own measure of what `run` gives, and the scores.

        Raises:
            IncompatibleError: such rows are not read by one graph.
        """
        found = scores(graph, run, self.encoded.examples, self.collation)
        answers = self.task_type.answers(self.encoded, found)
        figures = self.task_type.measured(self.encoded.rows, answers)
        return float(figures[self.task_type.measure]), found


def scores(
    graph: Graph, run: Run, examples: EncodedExamples, collation: Collation
) -> NDArray[np.float32]:
    """As `inference.scores.scores` of the same examples.

    Raises:
        IncompatibleError: texts in pieces, or ones that are written.
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
    at = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    size = examples.choices if len(graph.inputs[0].axes) == 3 else 1
    longest = lengths.reshape(-1, size).max(1)
    found: list[Numbers] = [np.zeros(0)] * len(longest)
    for numbers in _portions(longest):
        texts = (numbers[:, None] * size + np.arange(size)).reshape(-1)
        given = _padded(graph, examples, [at[text] for text in texts], collation.pad)
        if size > 1:
            given = {name: x.reshape(len(numbers), size, -1) for name, x in given.items()}
        outputs = run(given)
        for place, number in enumerate(numbers):
            found[number] = _of_text({name: x[place] for name, x in outputs.items()})
    if examples.places is not None:
        return _at_places(found, examples)
    together = np.stack(found) if found else np.zeros((0, 1))
    return together.reshape(len(examples), -1).astype(np.float32)


def _portions(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(lengths, kind="stable")
    for begin in range(0, len(order), AT_ONCE):
        yield order[begin : begin + AT_ONCE]


def _padded(
    graph: Graph, examples: EncodedExamples, texts: list[slice], pad: int
) -> dict[str, NDArray[Any]]:
    width = max(text.stop - text.start for text in texts)
    made = {
        port.name: np.full((len(texts), width), pad if port.name == IDS else 0, port.dtype)
        for port in graph.inputs
    }
    for row, text in enumerate(texts):
        count = text.stop - text.start
        made[IDS][row, :count] = examples.texts.tokens[text]
        made[MASK][row, :count] = 1
        if SEGMENTS in made and examples.segments is not None:
            made[SEGMENTS][row, :count] = examples.segments[text]
    return made


def _of_text(outputs: dict[str, Numbers]) -> Numbers:
    """What is read of the outputs of one text: its vector, its scores, or those of its tokens."""
    if "sentence_embedding" in outputs:
        return outputs["sentence_embedding"]
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return outputs["logits"]


def _at_places(found: list[Numbers], examples: EncodedExamples) -> NDArray[np.float32]:
    """Scores of the places alone; of spans as logarithms of shares within a text."""
    assert examples.places is not None
    ends = np.cumsum(examples.places.lengths)[:-1]
    parts = []
    for text, places in zip(found, np.split(examples.places.tokens, ends), strict=True):
        read = text[places]
        if examples.labels.ndim == 2 and len(read):  # where an answer begins and ends
            top = read.max(0, keepdims=True)
            read = read - top - np.log(np.exp(read - top).sum(0, keepdims=True))
        parts.append(read)
    return np.concatenate(parts).astype(np.float32)
