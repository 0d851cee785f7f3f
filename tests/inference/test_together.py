"""Several askers of one backbone, read together: each gets what it gets alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from checkpoint.small import model_of, small
from conformance.test_adapters import SMALL, settings_of, stir
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.families.base.family import family
from maskwright.model.inference import shared_layers
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.prepared import prepare
from maskwright.model.inference.scores import ScoringObjective, scores
from maskwright.model.inference.together import ScoreRequest, scores_of_all
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.modules.supervised import Contrast, Supervised
from maskwright.model.objectives.supervised import Options
from toys import VOCABULARY

METHODS = ("none", "lora", "ia3", "bottleneck", "bitfit", "prefix", "prompt", "top")
MIXED = ("none", "lora", "ia3", "bottleneck", "bitfit", "top")
HEADS = {
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
NEAR: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}


def network_of(name: str, ending: str, seed: int = 0) -> Transformer:
    """A small one of the family, with the head of the class that ends so."""
    member = family(name)
    architecture = next(kind for kind in member.architectures if kind.endswith(ending))
    return model_of(small(member, architecture), seed).eval()


@torch.no_grad()
def on(base: Transformer, network: Transformer, method: str, seed: int) -> Transformer:
    """`network` on the weights of `base`, which it shares where `method` leaves them alone."""
    for part in ("tokens", "encoder", "decoder"):
        if (own := getattr(network, part)) is not None:
            own.load_state_dict(getattr(base, part).state_dict())
    if method == "top":
        last = list(network.get_submodule("encoder.blocks").children())[-1]
        for parameter in last.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator(seed))
    elif method != "none":
        options = {**SMALL.get(method, {})}
        if method == "lora":
            options["targets"] = [("query", "value"), ("output", "up"), ("key", "down")][seed % 3]
        adapter = attach(settings_of(method, **options), network, generator(seed))
        stir(adapter, seed)
        stir(adapter, seed + 1)
    known = dict(base.named_parameters())
    for name, parameter in list(network.named_parameters()):
        ours = known.get(name)
        if ours is not None and ours.shape == parameter.shape and torch.equal(ours, parameter):
            path, _, last_name = name.rpartition(".")
            network.get_submodule(path)._parameters[last_name] = ours
    return network.eval()


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def texts(seed: int, count: int) -> list[list[int]]:
    """Of a few which many have."""
    draw = np.random.default_rng(7)
    many = [draw.integers(5, 60, size=length).tolist() for length in (9, 4, 12, 4, 1, 9, 3, 17)]
    return [many[n] for n in np.random.default_rng(seed).integers(0, len(many), count)]


Question = list[list[int]]


def questions(kind: str, seed: int) -> list[Question]:
    sizes = {"choice": [3, 3, 3], "pieces": [3, 1, 3]}.get(kind, [1] * 7)
    own = iter(texts(seed, sum(sizes)))
    return [list(itertools.islice(own, size)) for size in sizes]


def examples_of(kind: str, asked: list[Question], segments: bool = True) -> EncodedExamples:
    rows, count = framed([text for question in asked for text in question]), len(asked)
    labels, options = np.zeros(count, np.int64), {}
    if kind in ("token", "span"):
        lengths = np.minimum(rows.lengths, 3)
        places = np.concatenate([np.arange(n) for n in lengths])
        options["places"] = Sequences(places, lengths)
        labels = np.zeros((count, 2) if kind == "span" else len(places), np.int64)
    elif kind == "contrast":
        labels = labels[:, None]
    elif kind == "pieces":
        options["pieces"] = np.array([len(question) for question in asked])
    elif kind == "choice":
        options["choices"] = 3
    return EncodedExamples(rows, labels, (rows.tokens % 2) if segments else None, **options)


def objective_of(kind: str, network: Any) -> ScoringObjective:
    if kind == "contrast":
        return Contrast(network, "similarity").eval()
    return Supervised(network, Options(), VOCABULARY).eval()


def requests(
    name: str, methods: Sequence[str], kinds: Sequence[str], last: bool = False
) -> list[ScoreRequest]:
    base = network_of(name, HEADS["sequence"])
    body, found = prepare(base, precision="float32"), []
    for number, (method, kind) in enumerate((m, k) for m in methods for k in kinds):
        ending = HEADS.get(kind, HEADS["sequence"])
        own = on(base, network_of(name, ending, number), method, number)
        ready = prepare(own, precision="float32", like=body)
        examples = examples_of(kind, questions(kind, number), name == "bert")
        found.append(ScoreRequest(objective_of(kind, ready), examples, Collation(0, last)))
    return found


def alone(every: Sequence[ScoreRequest]) -> list[np.ndarray]:
    return [scores(each.objective, each.examples, each.collation) for each in every]


def agree(every: Sequence[ScoreRequest]) -> bool:
    pairs = zip(scores_of_all(every), alone(every), strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, **NEAR) for a, b in pairs)


KINDS = ("sequence", "token", "span", "choice", "contrast", "pieces")


@pytest.mark.parametrize(
    ("methods", "kinds"),
    [(("none",), KINDS), (MIXED, KINDS), (METHODS, ("sequence", "choice"))],
    ids=["heads", "mixed", "all"],
)
def test_heads_and_adapters_are_as_alone(methods: Sequence[str], kinds: Sequence[str]) -> None:
    every = requests("bert", methods, kinds)
    assert agree(every)
    plain = objective_of("sequence", every[0].objective.product.network)
    wanted = scores(plain, every[0].examples, every[0].collation)
    found = scores_of_all(every)
    assert np.allclose(found[0], wanted, rtol=1e-5, atol=2e-6)
    # The control: methods say different things, and so do askers.
    assert len({one.tobytes() for one in found}) == len(found)


@pytest.mark.parametrize("name", ["roberta", "modernbert", "albert", "gpt2", "electra"])
def test_in_every_shape(name: str) -> None:
    assert agree(requests(name, ("none", "lora", "ia3"), ("sequence", "sequence"), name == "gpt2"))


@pytest.mark.parametrize(
    ("site", "methods"), [("_product", ("none", "lora", "ia3")), ("_hook", ("none", "bottleneck"))]
)
def test_control_rows_of_the_wrong_network(
    site: str, methods: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    every, made = requests("bert", methods, ("sequence",)), getattr(shared_layers, site)

    def turned(own: Any, spans: Any) -> Any:
        return made(own, {count: [*rest, first] for count, (first, *rest) in spans.items()})

    monkeypatch.setattr(shared_layers, site, turned)
    assert not agree(every)


def test_a_text_is_read_once_up_to_where_networks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    layer = shared_layers.read_layer

    def counted(one: Any, number: int, x: Tensor, *rest: Any) -> Tensor:
        read.append(len(x))
        return layer(one, number, x, *rest)

    monkeypatch.setattr(shared_layers, "read_layer", counted)
    shared = EncodedExamples(framed(texts(3, 6)), np.zeros(6, np.int64))
    once = {tuple(text) for text in texts(3, 6)}
    ids = sum(map(len, once))
    assert len(once) < 6
    for methods, layers in (
        (("none",) * 7, [ids] * 3),
        (("none", "top", "top"), [ids, ids, 3 * ids]),
        (("none", "lora"), [2 * ids] * 3),
    ):
        asked = requests("bert", methods, ("sequence",))
        every = [replace(request, examples=shared) for request in asked]
        read.clear()
        scores_of_all(every)
        assert read == layers


def test_portions_do_not_change_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    every = requests("bert", ("none", "lora", "top"), ("sequence", "token"))
    whole = scores_of_all(every)
    monkeypatch.setattr("maskwright.model.inference.batches.RAGGED", 20)
    for split, joined in zip(scores_of_all(every), whole, strict=True):
        assert np.allclose(split, joined, **NEAR)
    assert scores_of_all([]) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["none", "lora", "prefix"])
def test_an_answer_alone_is_the_answer_in_a_batch(method: str, kind: str) -> None:
    (request,) = requests("bert", (method,), (kind,))
    objective, collation = request.objective, request.collation
    whole = scores(objective, request.examples, collation)
    alone = [scores(objective, examples_of(kind, [q]), collation) for q in questions(kind, 0)]
    assert np.allclose(np.concatenate(alone), whole, **NEAR)
    # The control: the answers are not all alike.
    assert not np.allclose(whole, np.roll(whole, 1, 0), **NEAR)
