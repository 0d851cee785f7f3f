"""A graph answers labelled rows as the engine does, for every kind of head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checkpoint.small import model_of, small
from maskwright.base.errors import IncompatibleError
from maskwright.model.families.base.family import family
from maskwright.model.graph.graphs import Vectors, graphs_of
from maskwright.model.inference import scores as engine
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.prepared import prepare
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.supervised import Contrast, Supervised, Unit
from maskwright.model.objectives.supervised import Options
from maskwright.ship.export import folder, int8

LENGTHS = [7, 3, 12, 5, 9, 4]
WORDS = Vocabulary(size=61, mask=4, special=(0, 1, 2, 3, 4))


def _examples(kind: str) -> EncodedExamples:
    drawn = np.random.default_rng(0)
    texts = framed([drawn.integers(5, 61, n).tolist() for n in LENGTHS])
    segments = drawn.integers(0, 2, sum(LENGTHS))
    if kind in ("token", "span"):
        places = [np.flatnonzero(drawn.random(n) < 0.7) for n in LENGTHS]
        chosen = Sequences(np.concatenate(places), np.array([len(p) for p in places]))
        count = (len(LENGTHS), 2) if kind == "span" else len(chosen.tokens)
        return EncodedExamples(texts, np.zeros(count, np.int64), segments, places=chosen)
    choices = {"choice": 2, "vectors": 2}.get(kind, 1)
    labels = np.zeros(len(LENGTHS) // choices, np.int64)
    return EncodedExamples(texts, labels, segments, choices)


@pytest.mark.parametrize(
    ("kind", "name", "architecture"),
    [
        ("sequence", "bert", "BertForSequenceClassification"),
        ("sequence", "gpt2", "GPT2ForSequenceClassification"),
        ("sequence", "bart", "BartForSequenceClassification"),
        ("token", "bert", "BertForTokenClassification"),
        ("span", "bert", "BertForQuestionAnswering"),
        ("choice", "bert", "BertForMultipleChoice"),
        ("vectors", "bert", "BertModel"),
    ],
)
def test_rows_get_the_engines_scores(kind: str, name: str, architecture: str) -> None:
    network, rows = model_of(small(family(name), architecture)), _examples(kind)
    config = network.config
    start = 2 if len(config.stacks) == 2 else None
    if not config.has_segments:
        rows = EncodedExamples(rows.texts, rows.labels, None, rows.choices, places=rows.places)
    collation = Collation(pad=0, last=config.decoder is not None, decoder_start=start)
    vectors = Vectors(("mean",), 0, Unit()) if kind == "vectors" else None
    (graph,) = graphs_of(network, vectors=vectors, decoder_start=start)

    ready: Any = prepare(network, precision="float32")
    objective = Contrast(ready, "similarity") if vectors else Supervised(ready, Options(), WORDS)
    wanted = engine.scores(objective, rows, collation)
    found = int8.scores(graph, folder.runner(graph), rows, collation)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert np.abs(found[::-1] - wanted).max() > 1e-2, "the control"


def test_rows_that_no_graph_answers_are_refused() -> None:
    (graph,) = graphs_of(model_of(small(family("bert"), "BertForSequenceClassification")))
    texts = framed([[5, 6], [7, 8]])
    pieces = EncodedExamples(texts, np.zeros(1, np.int64), pieces=np.array([2]))
    with pytest.raises(IncompatibleError):
        int8.scores(graph, lambda given: {}, pieces, Collation(pad=0, last=False))
