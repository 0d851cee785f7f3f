"""The prepared network is the network: every family, alone or among others, with adapters."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import model_of, small
from conformance import test_adapters as adapted
from maskwright import catalogue
from maskwright.errors import DataError
from maskwright.families.parts.family import family
from maskwright.inference.batches import portions
from maskwright.inference.engine import Engine
from maskwright.inference.prepared import Called, Group, prepare
from maskwright.nn.cache import KVCache
from maskwright.nn.mask import real
from maskwright.nn.transformer import Transformer

NAMES = catalogue.names("families")
LENGTHS = (9, 4, 12, 4, 1, 9)
NEAR: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}


def rows() -> list[list[int]]:
    draw = np.random.default_rng(3)
    return [draw.integers(5, 60, size=length).tolist() for length in LENGTHS]


@torch.no_grad()
def states(network: Transformer, row: list[int]) -> np.ndarray:
    run = network.encode if network.encoder is not None else network.decode
    return run(torch.tensor([row]))[0].float().numpy()


def network_of(name: str) -> Transformer:
    return adapted.model(name).eval()


@pytest.mark.parametrize("name", NAMES)
def test_states_are_the_networks_and_batch_mates_change_nothing(name: str) -> None:
    network = network_of(name)
    engine = Engine(network, precision="float32")
    together = engine.hidden(rows())
    for row, found in zip(rows(), together, strict=True):
        assert np.allclose(found, states(network, row), **NEAR)
        assert np.allclose(found, engine.hidden([row])[0], rtol=1e-6, atol=1e-6)
    ready = engine.prepared
    for place, which in (("first", 0), ("last", -1)):
        for row, states_of in zip(rows(), together, strict=True):
            ids, groups = torch.tensor(row), [Group(1, len(row))]
            one = ready.ragged(ids, groups, place=place)  # type: ignore[arg-type]
            assert np.allclose(one[0].numpy(), states_of[which], **NEAR)
        two = torch.tensor(rows()[0] + rows()[5] + rows()[1])
        read = ready.ragged(two, [Group(2, 9), Group(1, 4)], place=place)  # type: ignore[arg-type]
        wanted = np.stack([together[n][which] for n in (0, 5, 1)])
        assert np.allclose(read.numpy(), wanted, **NEAR)
    assert not np.allclose(together[0], states(network, rows()[5]), **NEAR)  # control: another row


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near(name: str) -> None:
    network = network_of(name)
    before = copy.deepcopy(network.state_dict())
    for row, found in zip(
        rows(), Engine(network, precision="bfloat16").hidden(rows()), strict=True
    ):
        wanted = states(network, row)
        assert np.abs(found - wanted).mean() < 0.03 * max(1.0, np.abs(wanted).mean())
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_padding_selection_and_cache(name: str) -> None:
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
    memory = None if network.encoder is None else network.encode(tokens[:, :5])
    wanted = network.decode(tokens, memory=memory)
    assert torch.allclose(ready.decode(tokens, memory=memory), wanted, **NEAR)
    assert torch.allclose(
        ready.decode(tokens, memory=memory, at=at), wanted.flatten(0, 1)[at], **NEAR
    )
    cache = KVCache.of(network.config, 2, 16)
    steps = [ready.decode(t, memory=memory, cache=cache) for t in tokens.split([7, 1, 4], 1)]
    assert torch.allclose(torch.cat(steps, 1), wanted, **NEAR)


def test_the_order_of_a_joined_product_matters() -> None:
    """Control: query and key the wrong way round is found."""
    network = network_of("bert")
    turned = copy.deepcopy(network)
    attention = turned.encoder.blocks["0"].attention
    attention.query, attention.key = attention.key, attention.query
    attention.key, attention.value = attention.value, attention.key
    found = Engine(turned).hidden(rows()[:1])[0]
    assert not np.allclose(found, states(network, rows()[0]), **NEAR)


@pytest.mark.parametrize("case", adapted.CASES, ids="-".join)
def test_adapters_are_honoured(case: tuple[str, str]) -> None:
    method, name = case
    network = network_of(name)
    bare = Engine(network, precision="float32").hidden(rows()[:2])
    adapter = adapted.attach(network, method)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.3)
    network.eval()
    for precision, bound in (("float32", 1e-5), ("bfloat16", 0.3)):
        found = Engine(network, precision=precision).hidden(rows()[:2])  # type: ignore[arg-type]
        for row, one in zip(rows(), found, strict=False):
            assert np.abs(one - states(network, row)).mean() < bound
    if len(list(adapter.parameters())) and adapter.settings.kind not in ("head", "probe"):
        moved = Engine(network, precision="float32").hidden(rows()[:2])
        assert not np.allclose(moved[0], bare[0], **NEAR)  # control: it does something


def test_only_what_an_adapter_touches_is_called_as_it_is() -> None:
    network = network_of("bert")
    adapted.attach(network, "lora")
    ready = prepare(network, precision="float32")
    layer = ready.encoder.layers[0]  # type: ignore[union-attr]
    assert isinstance(layer.attention.all, Called)
    assert not isinstance(layer.attention.output, Called)
    assert not isinstance(layer.feed_forward.up, Called)


def test_heads_and_vocabulary() -> None:
    network = network_of("bert")
    engine = Engine(network, precision="float32")
    name = network.config.heads[0].name
    scores = engine.head(name, rows())
    for row, found in zip(rows(), scores, strict=True):
        wanted = network.head(name, torch.from_numpy(states(network, row))[:1])
        assert np.allclose(found, wanted.detach().numpy()[0], **NEAR)
    member = family("bert")
    masked = model_of(small(member, "BertForMaskedLM")).eval()
    places = [[0, 3], [], [11], [1, 2], [0], [8]]
    for row, at, found in zip(
        rows(), places, Engine(masked).vocabulary(rows(), places), strict=True
    ):
        wanted = masked.logits(torch.from_numpy(states(masked, row))[at])
        assert np.allclose(found, wanted.detach().numpy(), **NEAR)
    with pytest.raises(DataError, match="outside its row"):
        engine.vocabulary([[1, 2]], [[2]])


def test_a_network_that_is_given_up_keeps_no_second_copy() -> None:
    network = network_of("bert")
    wanted = states(network, rows()[0])
    engine = Engine(network, precision="float32", give_up=True)
    assert np.allclose(engine.hidden(rows()[:1])[0], wanted, **NEAR)
    block = network.encoder.blocks["0"]  # type: ignore[union-attr]
    assert block.attention.query.weight.numel() == 0 == block.feed_forward.up.weight.numel()
    kept = network_of("bert")
    Engine(kept, precision="float32")
    assert np.array_equal(states(kept, rows()[0]), wanted)  # control: not given up


def test_portions_hold_every_row_once_within_the_budget() -> None:
    lengths = np.array([3, 50, 7, 3, 7, 200, 1])
    made = list(portions(lengths, at_once=64))
    assert sorted(n for one in made for n in one.numbers.tolist()) == list(range(7))
    for one in made:
        told = [group.length for group in one.groups for _ in range(group.count)]
        assert told == lengths[one.numbers].tolist()
        assert sum(told) <= 64 or len(told) == 1


def test_nothing_and_an_empty_row() -> None:
    engine = Engine(network_of("bert"))
    assert engine.hidden([]) == []
    with pytest.raises(DataError, match="without an id"):
        engine.hidden([[1], []])
