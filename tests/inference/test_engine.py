"""The prepared network is the network: every family, alone or among others, with adapters."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import RECURRENT, model_of, readable, small
from conformance import test_adapters as adapted
from maskwright.base import catalogue
from maskwright.base.errors import DataError
from maskwright.model.families.base.family import family
from maskwright.model.inference import batches
from maskwright.model.inference.batches import RowGroup, portions
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import hidden
from maskwright.model.nn.config import Patches
from maskwright.model.nn.mask import real
from maskwright.model.nn.stack import Trace
from maskwright.model.nn.transformer import Transformer

# Of families that read ids; and of these, those whose tokens see each other.
NAMES = [name for name in catalogue.names("families") if name != "vit"]
LAYERED = [name for name in NAMES if name not in ("static-vectors", *RECURRENT)]
LENGTHS = (9, 4, 12, 4, 1, 9)
NEAR: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}


def rows() -> list[list[int]]:
    draw = np.random.default_rng(3)
    return [draw.integers(5, 60, size=length).tolist() for length in LENGTHS]


def two_rows(network: Transformer) -> list[Any]:
    """Of ids, or of the values of patches."""
    if isinstance(network.config.tokens, Patches):
        return list(readable(network, torch.zeros(2, 1)))
    return rows()[:2]


@torch.no_grad()
def states(network: Transformer, row: Any) -> np.ndarray:
    run = network.encode if network.encoder is not None else network.decode
    return run(torch.as_tensor(row)[None])[0].float().numpy()


def asked(model: Prepared, some: list[Any]) -> list[np.ndarray]:
    if isinstance(model.config.tokens, Patches):
        images = model.ragged(torch.cat(some), [RowGroup(len(some), len(some[0]))])
        return [one.float().numpy() for one in images.chunk(len(some))]
    return [one.float().numpy() for one in hidden(model, some)]


def network_of(name: str) -> Transformer:
    return adapted.model(name).eval()


@pytest.mark.parametrize("name", NAMES)
def test_states_are_the_networks_and_batch_mates_change_nothing(name: str) -> None:
    network = network_of(name)
    ready = prepare(network, precision="float32")
    together = asked(ready, rows())
    for row, found in zip(rows(), together, strict=True):
        assert np.allclose(found, states(network, row), **NEAR)
        assert np.allclose(found, asked(ready, [row])[0], rtol=1e-6, atol=1e-6)
    ids = torch.tensor(rows()[0] + rows()[5] + rows()[1])
    for place, which in (("first", 0), ("last", -1)):
        read = ready.ragged(ids, [RowGroup(2, 9), RowGroup(1, 4)], position=place)
        wanted = np.stack([together[n][which] for n in (0, 5, 1)])
        assert np.allclose(read.numpy(), wanted, **NEAR)
    assert not np.allclose(together[0], states(network, rows()[5]), **NEAR)  # control: another row


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near(name: str) -> None:
    network = network_of(name)
    before = copy.deepcopy(network.state_dict())
    narrow = asked(prepare(network, precision="bfloat16"), rows())
    for row, found in zip(rows(), narrow, strict=True):
        wanted = states(network, row)
        assert np.abs(found - wanted).mean() < 0.03 * max(1.0, np.abs(wanted).mean())
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", LAYERED)
def test_padding_and_selection(name: str) -> None:
    network = network_of(name)
    ready = prepare(network, precision="float32")
    tokens = torch.arange(24).reshape(2, 12) * 7 % 55 + 3
    keep = torch.ones(2, 12, dtype=torch.bool)
    keep[1, 7:] = False
    at = torch.tensor([0, 13])
    if network.encoder is not None:
        for how in ({}, {"at": at}):
            wanted = network.encode(tokens, visible=real(keep), **how)
            assert torch.allclose(ready.encode(tokens, visible=real(keep), **how), wanted, **NEAR)
        # Control: the mask left out.
        assert not torch.allclose(ready.encode(tokens, at=at), wanted, **NEAR)
    if network.decoder is None:
        return
    facts = {}
    if network.encoder is not None:
        facts = {"memory": network.encode(tokens[:, :5]), "memory_visible": real(keep[:, 4:9])}
    wanted = network.decode(tokens, **facts)
    assert torch.allclose(ready.decode(tokens, **facts), wanted, **NEAR)
    some = ready.decode(tokens, **facts, at=at)
    assert torch.allclose(some, wanted.flatten(0, 1)[at], **NEAR)


def test_the_order_of_a_joined_product_matters() -> None:
    network = network_of("bert")
    turned = copy.deepcopy(network)
    attention = turned.encoder.blocks["0"].attention
    attention.query, attention.key = attention.key, attention.query
    attention.key, attention.value = attention.value, attention.key
    found = asked(prepare(turned), rows()[:1])[0]
    assert not np.allclose(found, states(network, rows()[0]), **NEAR)


@pytest.mark.parametrize("case", adapted.CASES, ids="-".join)
def test_adapters_are_honoured(case: tuple[str, str]) -> None:
    method, name = case
    network = network_of(name)
    some = two_rows(network)
    bare = asked(prepare(network, precision="float32"), some)
    adapter = adapted.attach(network, method)
    for seed in range(4):
        adapted.stir(adapter, seed)
    moved = asked(prepare(network, precision="float32"), some)
    for row, one in zip(some, moved, strict=True):
        assert np.abs(one - states(network, row)).mean() < 1e-5
    if len(list(adapter.parameters())) and adapter.settings.kind not in ("head", "probe"):
        assert not np.allclose(moved[0], bare[0], **NEAR)  # control: it does something


@pytest.mark.parametrize(
    ("precision", "near"), [("float32", NEAR), ("bfloat16", {"rtol": 0.05, "atol": 0.1})]
)
def test_scores_of_the_vocabulary_are_the_networks(precision: Any, near: dict[str, float]) -> None:
    masked = model_of(small(family("bert"), "BertForMaskedLM")).eval()
    hidden_states = torch.from_numpy(states(masked, rows()[0]))
    scores = prepare(masked, precision=precision).logits(hidden_states)
    assert torch.allclose(scores, masked.logits(hidden_states), **near)


@pytest.mark.parametrize("name", LAYERED)
def test_what_is_looked_at_is_the_networks(name: str) -> None:
    network, tokens = network_of(name), torch.arange(24).reshape(2, 12) * 7 % 55 + 3
    seen = []
    for model in (network, prepare(network, precision="float32")):
        trace, memory = Trace(), None
        with torch.no_grad():
            if network.encoder is not None:
                memory = model.encode(tokens[:, :7], trace=trace)
            if network.decoder is not None:
                model.decode(tokens, memory=memory, trace=trace)
        seen.append([*trace.hidden, *trace.weights, *trace.cross_weights])
    assert len(seen[0]) == len(seen[1]) > 4
    for wanted, found in zip(*seen, strict=True):
        assert torch.allclose(found, wanted, **NEAR)
    assert not torch.allclose(seen[1][0], seen[0][1], **NEAR)  # control: another layer


def test_a_live_network_answers_with_the_weights_of_the_moment() -> None:
    network = network_of("bert")
    live, laid_out = prepare(network, live=True), prepare(network, precision="float32")
    before = [asked(each, rows()[:1])[0] for each in (live, laid_out)]
    with torch.no_grad():
        for parameter in network.encoder.parameters():
            parameter.mul_(1.1)
    assert np.allclose(asked(live, rows()[:1])[0], states(network, rows()[0]), **NEAR)
    assert not np.allclose(asked(live, rows()[:1])[0], before[0], **NEAR)  # control
    after = laid_out.encoder.layers[0].attention.all.packed.dense()
    assert not torch.equal(after[:1], network.encoder.blocks["0"].attention.query.weight[:1])


def test_two_networks_share_what_both_have() -> None:
    network = network_of("bert")
    body = prepare(network, precision="float32")
    other = copy.deepcopy(network, {id(p): p for p in network.parameters()})
    sharing, alone = prepare(other, like=body), prepare(network_of("bert"), precision="float32")
    models: list[Any] = [body, sharing, alone]
    ours, theirs, third = (each.encoder.layers[0].feed_forward.up for each in models)
    assert ours is theirs and ours is not third
    assert np.array_equal(asked(body, rows())[0], asked(sharing, rows())[0])


def test_a_network_that_is_given_up_keeps_no_second_copy() -> None:
    network = network_of("bert")
    wanted = states(network, rows()[0])
    ready = prepare(network, precision="float32", give_up=True)
    assert np.allclose(asked(ready, rows()[:1])[0], wanted, **NEAR)
    block = network.encoder.blocks["0"]
    assert block.attention.query.weight.numel() == 0 == block.feed_forward.up.weight.numel()
    block_before = network_of("bert").encoder.blocks["0"]
    ready.restore()
    for name, weight in block.named_parameters():
        assert torch.equal(weight, block_before.get_parameter(name)), name
    assert np.array_equal(states(network, rows()[0]), wanted)
    assert np.allclose(asked(ready, rows()[:1])[0], wanted, **NEAR)
    kept = network_of("bert")
    asked(prepare(kept, precision="float32"), rows())
    assert np.array_equal(states(kept, rows()[0]), wanted)  # control: not given up


def test_portions_hold_every_row_once_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "RAGGED", 64)
    lengths = np.array([3, 50, 7, 3, 7, 200, 1])
    made = list(portions(lengths))
    assert sorted(n for one in made for n in one.numbers.tolist()) == list(range(7))
    for one in made:
        told = [group.length for group in one.groups for _ in range(group.count)]
        assert told == lengths[one.numbers].tolist()
        assert sum(told) <= 64 or len(told) == 1


def test_nothing_and_an_empty_row() -> None:
    ready = prepare(network_of("bert"))
    assert hidden(ready, []) == []
    with pytest.raises(DataError):
        hidden(ready, [[1], []])
