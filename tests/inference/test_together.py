"""Several askers of one backbone, read together: each gets what it gets alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from checkpoint.small import model_of, small
from conformance.test_adapters import SMALL, settings_of, stir
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.families.base.family import family
from maskwright.model.inference import shared_layers, together
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import ScoringObjective, scores
from maskwright.model.inference.shared_layers import SharedLayers, can_share
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
    own = np.random.default_rng(seed)
    return [many[n] for n in own.integers(0, len(many), count)]


def examples_for(kind: str, seed: int, segments: bool) -> EncodedExamples:
    count = {"choice": 9}.get(kind, 7)
    rows = framed(texts(seed, count))
    labels: Any = np.zeros(count // 3 if kind == "choice" else count, np.int64)
    kinds = (rows.tokens % 2) if segments else None
    if kind in ("token", "span"):
        lengths = np.minimum(rows.lengths, 3)
        places = Sequences(np.concatenate([np.arange(n) for n in lengths]), lengths)
        labels = np.zeros(int(lengths.sum()), np.int64)
        labels = np.zeros((count, 2), np.int64) if kind == "span" else labels
        return EncodedExamples(rows, labels, kinds, places=places)
    if kind == "contrast":
        return EncodedExamples(rows, np.zeros((count, 1), np.int64), kinds)
    if kind == "pieces":
        pieces = np.array([3, 1, 3])
        return EncodedExamples(rows, np.zeros(3, np.int64), kinds, pieces=pieces)
    return EncodedExamples(rows, labels, kinds, choices=3 if kind == "choice" else 1)


def objective_of(kind: str, network: Any) -> ScoringObjective:
    if kind == "contrast":
        return Contrast(network, "similarity").eval()
    return Supervised(network, Options(), VOCABULARY).eval()


def requests(
    name: str, methods: Sequence[str], kinds: Sequence[str], last: bool = False
) -> list[ScoreRequest]:
    """One of each method and kind."""
    base = network_of(name, HEADS["sequence"])
    body, found = prepare(base, precision="float32"), []
    for number, (method, kind) in enumerate((m, k) for m in methods for k in kinds):
        ending = HEADS.get(kind, HEADS["sequence"])
        own = on(base, network_of(name, ending, number), method, number)
        ready = prepare(own, precision="float32", like=body)
        asked_examples = examples_for(kind, number, name == "bert")
        found.append(ScoreRequest(objective_of(kind, ready), asked_examples, Collation(0, last)))
    return found


def alone(every: Sequence[ScoreRequest]) -> list[np.ndarray]:
    return [scores(each.objective, each.examples, each.collation) for each in every]


def agree(every: Sequence[ScoreRequest]) -> bool:
    pairs = zip(scores_of_all(every), alone(every), strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, **NEAR) for a, b in pairs)


KINDS = ("sequence", "token", "span", "choice", "contrast", "pieces")


@pytest.mark.parametrize("kinds", [KINDS, ("sequence", "choice")], ids=["all", "one place"])
@pytest.mark.parametrize("methods", [("none",), MIXED, METHODS], ids=["heads", "mixed", "all"])
def test_heads_and_adapters_say_what_they_say_alone(
    methods: Sequence[str], kinds: Sequence[str]
) -> None:
    every = requests("bert", methods, kinds)
    assert agree(every)
    plain = [objective_of("sequence", each.objective.product.network) for each in every[:1]]
    wanted = scores(plain[0], every[0].examples, every[0].collation)
    assert np.allclose(scores_of_all(every)[0], wanted, rtol=1e-5, atol=2e-6)
    found = scores_of_all(every)
    # The control: methods say different things, and so do askers.
    assert len({one.tobytes() for one in found}) == len(found)


@pytest.mark.parametrize("name", ["roberta", "modernbert", "albert", "gpt2", "electra"])
def test_in_every_shape(name: str) -> None:
    assert agree(requests(name, ("none", "lora", "ia3"), ("sequence", "sequence"), name == "gpt2"))


def test_control_rows_of_the_wrong_network(monkeypatch: pytest.MonkeyPatch) -> None:
    every = requests("bert", ("none", "lora", "ia3"), ("sequence",))
    assert agree(every)

    def turned(spans: Any) -> Any:
        return {count: [*own[1:], own[0]] for count, own in spans.items()}

    for site in ("_product", "_hook"):
        method = {"_product": ("none", "lora", "ia3"), "_hook": ("none", "bottleneck")}[site]
        every = requests("bert", method, ("sequence",))
        made = getattr(shared_layers, site)
        with monkeypatch.context() as broken:
            broken.setattr(shared_layers, site, lambda own, s: made(own, turned(s)))  # noqa: B023
            assert not agree(every)
    assert agree(every)


def test_a_text_is_read_once_up_to_where_networks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    layer = shared_layers.read_layer

    def counted(one: Any, number: int, x: Tensor, *rest: Any) -> Tensor:
        read.append(len(x))
        return layer(one, number, x, *rest)

    monkeypatch.setattr(shared_layers, "read_layer", counted)
    shared = framed(texts(3, 6))
    once = len({tuple(text) for text in texts(3, 6)})
    ids = sum(map(len, {tuple(text) for text in texts(3, 6)}))
    assert once < 6
    for methods, layers in (
        (("none",) * 7, [ids] * 3),
        (("none", "top", "top"), [ids, ids, 3 * ids]),
        (("none", "lora"), [2 * ids] * 3),
    ):
        every = [
            ScoreRequest(
                each.objective, EncodedExamples(shared, np.zeros(6, np.int64)), each.collation
            )
            for each in requests("bert", methods, ("sequence",))
        ]
        read.clear()
        scores_of_all(every)
        assert read == layers


def test_what_cannot_be_mixed_is_read_apart() -> None:
    every = requests("bert", METHODS, ("sequence",))
    groups = together._sharing(every)
    apart = [METHODS.index(method) for method in ("prefix", "prompt")]
    assert sorted(map(len, groups)) == [1, 1, len(MIXED)]
    assert [[n] for n in apart] == [g for g in groups if len(g) == 1]
    other = prepare(network_of("bert", HEADS["sequence"]), precision="float32")
    assert not can_share(every[0].objective.product, other)  # the control: weights of its own


def test_portions_do_not_change_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    every = requests("bert", ("none", "lora", "top"), ("sequence", "token"))
    whole = scores_of_all(every)
    monkeypatch.setattr("maskwright.model.inference.batches.RAGGED", 20)
    sizes: list[int] = []
    ragged = SharedLayers.ragged
    monkeypatch.setattr(
        SharedLayers,
        "ragged",
        lambda self, ids, *rest: (sizes.append(len(ids)), ragged(self, ids, *rest))[1],
    )
    pairs = zip(scores_of_all(every), whole, strict=True)
    assert all(np.allclose(a, b, **NEAR) for a, b in pairs) and len(sizes) > 3
    assert scores_of_all([]) == []


def test_one_asker_goes_the_usual_path() -> None:
    (only,) = requests("bert", ("none",), ("sequence",))
    assert isinstance(only.objective.product, Prepared)
    assert np.array_equal(scores_of_all([only])[0], alone([only])[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["none", "lora", "prefix"])
def test_an_answer_alone_is_the_answer_in_a_batch(method: str, kind: str) -> None:
    """Of every kind of task, on the path that each of them takes."""
    (every,) = requests("bert", (method,), (kind,))
    whole = scores(every.objective, every.examples, every.collation)
    examples = every.examples
    places = examples.places
    ends = np.cumsum(examples.texts.lengths)
    texts_of = {"choice": [3] * 3, "pieces": [3, 1, 3]}.get(kind, [1] * len(ends))
    first_row, first_text = 0, 0
    for count in texts_of:
        here = slice(first_text, first_text + count)
        ids = slice(*(int(n) for n in (np.r_[0, ends][first_text], ends[here][-1])))
        own_places, labels = None, examples.labels[:1]
        rows = 1
        if places is not None:
            rows = int(places.lengths[here].sum())
            own_places = Sequences(np.arange(rows), places.lengths[here])
            labels = examples.labels[:1] if kind == "span" else examples.labels[:rows]
        one = EncodedExamples(
            Sequences(examples.texts.tokens[ids], examples.texts.lengths[here]),
            labels,
            None if examples.segments is None else examples.segments[ids],
            choices=examples.choices,
            pieces=np.array([count]) if kind == "pieces" else None,
            places=own_places,
        )
        found = scores(every.objective, one, every.collation)
        assert np.allclose(found, whole[first_row : first_row + rows], **NEAR)
        first_row, first_text = first_row + rows, first_text + count
    assert first_row == len(whole)
    # The control: the answers are not all alike.
    assert not np.allclose(whole, np.roll(whole, 1, 0), **NEAR)
