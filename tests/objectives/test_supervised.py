"""What labels teach: each kind of head by its definition, alone and among neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maskwright.base.errors import IncompatibleError
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.scores import scores
from maskwright.model.nn.config import Head
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Supervised, last_states
from maskwright.model.objectives.supervised import Options
from toys import CLS, SEP, VOCABULARY, bert, encoder_decoder, gpt2

LABELS = 3
BODIES: dict[str, Callable[[], Transformer]] = {
    "encoder": bert,
    "decoder": gpt2,
    "encoder-decoder": encoder_decoder,
}
READINGS = {
    "encoder": Collation(pad=0, last=False),
    "decoder": Collation(pad=0, last=True),
    "encoder-decoder": Collation(pad=0, last=True, decoder_start=2),
}


def supervised(
    body: str, kind: Any = "sequence", labels: int = LABELS, pooling: Any = "place", **options: Any
) -> Supervised:
    head = Head(name="own", kind=kind, labels=labels, pooling=pooling)
    point = replace(BODIES[body]().config, vocabulary_head=None, pooler=False, heads=(head,))
    model = build(point, torch.Generator().manual_seed(0), deviation=0.2)
    return Supervised(model, Options(**options), VOCABULARY).eval()


def examples(labels: np.ndarray, choices: int = 1) -> EncodedExamples:
    draw = np.random.default_rng(0)
    texts = [
        [CLS, *draw.integers(5, 50, draw.integers(1, 20)).tolist(), SEP]
        for _ in range(len(labels) * choices)
    ]
    return EncodedExamples(framed(texts), labels, choices=choices)


def alone(objective: Supervised, given: EncodedExamples, text: int) -> torch.Tensor:
    """The last stack's hidden states (1, T, D) of one text that has nobody beside it."""
    ends = np.cumsum(given.texts.lengths)
    ids = given.texts.tokens[ends[text] - given.texts.lengths[text] : ends[text]]
    tokens, model = torch.from_numpy(ids)[None], objective.product
    if model.encoder is None:
        return model.decode(tokens)
    memory = model.encode(tokens)
    if model.decoder is None:
        return memory
    return model.decode(torch.cat([torch.tensor([[2]]), tokens[:, :-1]], 1), memory=memory)


@pytest.mark.parametrize("body", BODIES)
def test_scores_are_those_of_each_text_alone(body: str) -> None:
    objective = supervised(body)
    given = examples(np.arange(40) % LABELS)
    found = scores(objective, given, READINGS[body])
    place = 0 if body == "encoder" else -1
    with torch.no_grad():
        wanted = torch.cat(
            [objective.product.head("own", alone(objective, given, n)[:, place]) for n in range(40)]
        )
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(wanted[:-1], wanted[1:], atol=1e-3), "texts must differ to be told"
    batch, order = given.batch(np.arange(40), READINGS[body])
    classes = torch.from_numpy(given.labels)[torch.from_numpy(order)]
    total = objective(batch).parts["class"].total
    by_hand = F.cross_entropy(wanted[torch.from_numpy(order)], classes, reduction="sum")
    assert total.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert objective.counts(batch) == {"class": 40}


@pytest.mark.parametrize("problem", ["multi", "number"])
def test_several_classes_and_numbers(problem: str) -> None:
    objective = supervised("encoder", problem=problem)
    draw = np.random.default_rng(1)
    labels = draw.random((10, LABELS)).astype(np.float32)
    if problem == "multi":
        labels = (labels > 0.5).astype(np.float32)
    given = examples(labels)
    batch, order = given.batch(np.arange(10), READINGS["encoder"])
    told = objective.scores(batch).double()
    wanted = torch.from_numpy(labels[order]).double()
    if problem == "multi":
        chance = told.sigmoid()
        each = -(wanted * chance.log() + (1 - wanted) * (1 - chance).log())
    else:
        each = (told - wanted) ** 2
    total = objective(batch).parts["class"].total
    assert total.item() == pytest.approx(each.mean(1).sum().item(), rel=1e-5)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_read_over_all_its_tokens(pooling: str, body: str) -> None:
    objective = supervised(body, pooling=pooling)
    given, head = examples(np.zeros(12, dtype=np.int64)), objective.product.head
    with torch.no_grad():
        states = [alone(objective, given, n) for n in range(12)]
        pooled = [s.mean(1) if pooling == "mean" else s.amax(1) for s in states]
        wanted = torch.cat([head("own", vector) for vector in pooled])
        place = 0 if body == "encoder" else -1
        places = torch.cat([head("own", s[:, place]) for s in states])
    found = torch.from_numpy(scores(objective, given, READINGS[body]))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, places, atol=1e-2), "the control: one place says another thing"


def test_which_choice_answers() -> None:
    objective = supervised("encoder", "choice", 1)
    given = examples(np.array([0, 2, 1, 2, 0]), choices=3)
    batch, order = given.batch(np.arange(5), READINGS["encoder"])
    with torch.no_grad():
        each = [objective.product.head("own", alone(objective, given, n)[:, 0]) for n in range(15)]
    wanted = torch.cat(each).view(5, 3)[torch.from_numpy(order)]
    torch.testing.assert_close(objective.scores(batch), wanted, rtol=1e-4, atol=1e-5)
    assert objective.counts(batch) == {"class": 5}
    by_hand = F.cross_entropy(wanted, batch.labels, reduction="sum")
    assert objective(batch).parts["class"].total.item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_tokens_that_have_a_class() -> None:
    objective = supervised("encoder", "token")
    batch, _ = examples(np.zeros(6, dtype=np.int64)).batch(np.arange(6), READINGS["encoder"])
    index = torch.tensor([1, 4, 30])
    batch = replace(batch, index=index, targets=torch.tensor([0, 2, 1]))
    hidden = last_states(objective.product, batch).flatten(0, 1)[index]
    wanted = F.cross_entropy(objective.product.head("own", hidden), batch.targets, reduction="sum")
    total = objective(batch).parts["class"].total
    assert total.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert objective.counts(batch) == {"class": 3}


def test_the_ends_of_an_answer() -> None:
    objective = supervised("encoder", "span", 2)
    batch, _ = examples(np.zeros(6, dtype=np.int64)).batch(np.arange(6), READINGS["encoder"])
    index = torch.arange(30)
    texts = torch.tensor([0] * 10 + [1] * 4 + [2] * 16)
    ends = torch.tensor([[2, 5], [11, 10], [-1, -1]])
    batch = replace(batch, index=index, targets=texts, labels=ends)
    logs = objective.scores(batch)
    for text in range(3):
        inside = logs[texts == text].exp().sum(0)
        torch.testing.assert_close(inside, torch.ones(2))
    hidden = last_states(objective.product, batch).flatten(0, 1)[index]
    plain = objective.product.head("own", hidden)
    wanted = torch.zeros(())
    for text, (begin, end) in enumerate(ends.tolist()):
        here = (texts == text).nonzero()[:, 0]
        for side, place in enumerate((begin, end)):
            if place >= 0:
                right = (here == place).nonzero()[0]
                wanted = wanted + F.cross_entropy(plain[here, side][None], right, reduction="sum")
    assert objective(batch).parts["span"].total.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert objective.counts(batch) == {"span": 4}


def test_refusals() -> None:
    for where, refused_of in {
        "model.heads": lambda: Supervised(bert(), Options(), VOCABULARY),
        "objective.options.problem": lambda: supervised("encoder", "token", problem="multi"),
    }.items():
        with pytest.raises(IncompatibleError) as refused:
            refused_of()
        assert refused.value.where == where
