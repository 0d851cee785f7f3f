"""Texts in pieces: every piece is in its batch, one vector is made of a text's pieces, and what
stands in two of them is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from finetune.test_tune import PLAIN
from maskwright.base.errors import ConfigError, DataError
from maskwright.learn.finetune.tune import Settings, _portions, tune
from maskwright.model.inference.batches import PACKED
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.scores import scores
from maskwright.model.nn import transformer
from maskwright.model.nn.config import Head
from maskwright.model.nn.initialise import build
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options
from toys import CLS, SEP, VOCABULARY, bert

COLLATIONS = [
    Collation(pad=0, last=False),
    Collation(pad=0, last=True),
    Collation(pad=0, last=False, alone=True),
    Collation(pad=0, last=True, decoder_start=2),
]
FIRST = COLLATIONS[0]


def task(count: int, seed: int = 0) -> EncodedExamples:
    """Texts of one to five pieces; two marks, each in one of them, are the same or not."""
    draw = np.random.default_rng(seed)
    texts, labels, counts = [], [], []
    for _ in range(count):
        marks, number = draw.integers(0, 2, 2), draw.integers(1, 6)
        pieces = [draw.integers(10, 50, draw.integers(3, 12)).tolist() for _ in range(number)]
        for mark in marks:
            piece = pieces[draw.integers(0, number)]
            piece.insert(int(draw.integers(0, len(piece))), 5 + int(mark))
        texts += [[CLS, *piece, SEP] for piece in pieces]
        counts.append(number)
        labels.append(int(marks.any()))
    return EncodedExamples(framed(texts), np.array(labels), pieces=np.array(counts))


def piece_ids(examples: EncodedExamples) -> list[list[int]]:
    ends = np.cumsum(examples.texts.lengths)[:-1]
    return [ids.tolist() for ids in np.split(examples.texts.tokens, ends)]


def fresh(over: bool = False, how: Literal["mean", "max"] = "mean", **head: Any) -> Supervised:
    point = replace(bert().config, vocabulary_head=None, pooler=False)
    layers = transformer.layers_over(point) if over else None
    heads = (Head(name="own", kind="sequence", labels=2, over=layers, **head),)
    model = build(replace(point, heads=heads), torch.Generator().manual_seed(0))
    return Supervised(model, Options(pieces=how), VOCABULARY).eval()


@pytest.mark.parametrize("collation", COLLATIONS)
def test_every_piece_is_there_and_says_whose_it_is(collation: Collation) -> None:
    examples, numbers = task(40), np.array([7, 0, 39, 12, 13])
    assert examples.pieces is not None
    batch, which = examples.batch(numbers, collation)
    assert batch.labels is not None and batch.pooled is not None and batch.targets is not None
    assert which.tolist() == numbers.tolist()
    assert batch.labels.tolist() == examples.labels[numbers].tolist()
    assert batch.targets.tolist() == np.repeat(np.arange(5), examples.pieces[numbers]).tolist()
    firsts = np.cumsum(examples.pieces) - examples.pieces
    wanted = [t for n in numbers for t in range(firsts[n], firsts[n] + examples.pieces[n])]
    pieces = piece_ids(examples)
    for place, number in zip(batch.pooled.tolist(), wanted, strict=True):
        ids = pieces[number]
        begin = place - (len(ids) - 1) * collation.last
        assert batch.tokens.view(-1)[begin : begin + len(ids)].tolist() == ids
        if collation.decoder_start is not None:
            assert batch.decoder_tokens is not None
            read = batch.decoder_tokens.view(-1)[begin : begin + len(ids)].tolist()
            assert read == [collation.decoder_start, *ids[:-1]]
    if collation.alone:
        assert len(batch.tokens) == len(wanted)


@pytest.mark.parametrize("how", ["mean", "max"])
def test_one_vector_of_each_text(how: Literal["mean", "max"]) -> None:
    vectors = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    texts = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    rows, real = transformer.in_rows(vectors, texts)
    assert rows.shape == (3, 3, 4) and real.sum(1).tolist() == [3, 1, 3]
    parts = [vectors[texts == n] for n in range(3)]
    wanted = torch.stack([v.mean(0) if how == "mean" else v.amax(0) for v in parts])
    assert torch.allclose(transformer.pooled(rows, real, how), wanted)


def test_pieces_read_over_all_their_tokens() -> None:
    """In the order of the text, wherever they are packed."""
    examples, objective = task(12), fresh(pooling="mean")
    model = objective.product
    with torch.no_grad():
        states = [model.encode(torch.tensor([ids])).mean(1) for ids in piece_ids(examples)]
        texts = torch.split(torch.cat(states), examples.pieces.tolist())  # type: ignore[union-attr]
        wanted = torch.cat([model.head("own", v.mean(0, keepdim=True)) for v in texts])
    assert np.allclose(scores(objective, examples, FIRST), wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("over", [False, True])
def test_neither_neighbours_nor_packing_change_a_score(
    over: bool, how: Literal["mean", "max"]
) -> None:
    examples, objective = task(30), fresh(over, how)
    together = scores(objective, examples, FIRST)
    alone = scores(objective, examples, replace(FIRST, alone=True))
    assert np.allclose(together, alone, atol=1e-5)
    with torch.no_grad():
        for number in (0, 11, 29):
            single = objective.scores(examples.batch(np.array([number]), FIRST)[0]).numpy()
            assert np.allclose(single, together[number], atol=1e-5)


def test_layers_over_the_pieces_see_their_order_and_no_other_text() -> None:
    objective = fresh(over=True)
    head = objective.product.heads["own"]
    vectors = torch.randn(6, objective.product.config.width)
    texts = torch.tensor([0, 0, 0, 1, 1, 1])
    with torch.no_grad():
        before = head.together(vectors, texts, "mean")
        turned = head.together(vectors[[2, 1, 0, 3, 4, 5]], texts, "mean")
    assert torch.equal(before[1], turned[1]), "of its neighbours a text sees nothing"
    assert not torch.allclose(before[0], turned[0]), "and of its own pieces the order"
    plain = fresh().product.heads["own"]
    mean = plain.together(vectors, texts, "mean")
    assert torch.allclose(mean[0], plain.together(vectors[[2, 1, 0]], texts[:3], "mean")[0])


def test_a_step_is_cut_where_it_is_too_long_for_memory() -> None:
    given = task(50)
    sixteen = Settings(batch=16)
    assert _portions(given, sixteen) == 1
    long = EncodedExamples(framed([[7] * 30] * 900), np.zeros(9, np.int64), pieces=np.full(9, 100))
    assert _portions(long, sixteen) == -(-16 * 3000 // PACKED) == 3
    assert _portions(long, Settings(batch=16, accumulate=5)) == 5, "or more, where that is said"
    assert _portions(given, Settings(batch=16, accumulate=5)) == 5
    tuned = tune(fresh(), long, FIRST, Settings(epochs=1, batch=8), machine=PLAIN)
    assert len(tuned.losses) == 1, "the second step has one text for its two parts"


def test_labels_that_do_not_fit_their_pieces_are_refused() -> None:
    texts = framed([[1], [2], [3]])
    assert len(EncodedExamples(texts, np.zeros(2), pieces=np.array([1, 2]))) == 2
    for labels, pieces in ((2, [1, 1]), (3, [1, 2])):
        with pytest.raises(DataError, match="labels"):
            EncodedExamples(texts, np.zeros(labels), pieces=np.array(pieces))
    over = transformer.layers_over(bert().config)
    with pytest.raises(ConfigError, match=r"heads\.own\.over"):
        Head(name="own", kind="token", labels=2, over=over)
