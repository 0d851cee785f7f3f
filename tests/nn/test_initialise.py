"""Weights by role, from a seed, on any device."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from maskwright.model.families.base.family import family
from maskwright.model.nn.config import FeedForward, Tokens
from maskwright.model.nn.initialise import build, initialise, materialise
from maskwright.model.nn.transformer import Transformer
from nn.points import PAIRS, POINTS


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("distribution", ["truncated", "normal", "fan_in", "uniform"])
def test_a_seed_is_the_weights(name: str, distribution: str) -> None:
    def made(seed: int) -> dict[str, torch.Tensor]:
        state = torch.random.get_rng_state()
        model = build(POINTS[name], seeded(seed), distribution=distribution)
        assert torch.equal(state, torch.random.get_rng_state()), "the default generator was drawn"
        return model.state_dict()

    one, same, other = made(1), made(1), made(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["tokens.weight"], other["tokens.weight"])
    assert all(bool(torch.isfinite(value).all()) for value in one.values())


def big(distribution: str, scaled: bool = False) -> Transformer:
    small = POINTS["relative encoder-decoder"]
    stacks = {}
    for name, stack in small.stacks.items():
        wide = tuple(replace(b, feed_forward=FeedForward(width=512)) for b in stack.blocks)
        stacks[name] = replace(stack, blocks=wide)
    point = replace(small, width=128, tokens=Tokens(vocabulary=300, width=128), **stacks)
    return build(point, seeded(), distribution=distribution, scaled_residual=scaled)


def deviation(model: Transformer, name: str) -> float:
    return model.get_parameter(name).std().item()


TABLE, QUERY, KEY = "tokens.weight", "attention.query.weight", "attention.key.weight"
UP, DOWN = "feed_forward.up.weight", "feed_forward.down.weight"
CUT = 0.02 * 0.8796  # the deviation that is left of a normal cut at two deviations


@pytest.mark.parametrize(
    ("distribution", "deviations"),
    [
        ("truncated", {TABLE: CUT, UP: CUT}),
        ("normal", {TABLE: 0.02, DOWN: 0.02}),
        ("fan_in", {TABLE: 1, KEY: 128**-0.5, QUERY: (128 * 8) ** -0.5, DOWN: 512**-0.5}),
        ("uniform", {TABLE: 1, UP: (3 * 128) ** -0.5}),
    ],
)
def test_roles(distribution: str, deviations: dict[str, float]) -> None:
    model = big(distribution)
    for name, spread in deviations.items():
        name = name if name.startswith("tokens") else f"decoder.blocks.0.{name}"
        assert deviation(model, name) == pytest.approx(spread, rel=0.1 if "att" in name else 0.05)
        if distribution == "truncated":
            assert model.get_parameter(name).abs().max() <= 0.04
        if distribution == "normal":
            assert model.get_parameter(name).abs().max() > 0.05


def test_the_bias_of_a_tied_head_has_the_fan_of_what_it_reads() -> None:
    keys = {
        "vocab_size": 4000,
        "embedding_size": 16,
        "hidden_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = family("albert").size("base-v2", "AlbertForMaskedLM", **keys)
    made = build(config, torch.Generator().manual_seed(0), distribution="uniform")
    (bias,) = (p for n, p in made.named_parameters() if p.shape == (4000,))
    assert bias.abs().max().item() == pytest.approx(16**-0.5, rel=0.01)


def test_the_end_of_a_branch_shrinks_with_depth() -> None:
    plain, scaled = big("normal"), big("normal", scaled=True)
    for name in ("attention.output", "cross_attention.output", "feed_forward.down"):
        full = deviation(plain, f"decoder.blocks.1.{name}.weight")
        less = deviation(scaled, f"decoder.blocks.1.{name}.weight")
        assert less == pytest.approx(full / math.sqrt(4), rel=1e-5)
    up = "decoder.blocks.1.feed_forward.up.weight"
    assert deviation(plain, up) == deviation(scaled, up)


def test_norms_and_biases() -> None:
    model = build(POINTS["post-norm encoder"], seeded())
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            assert not value.any(), name
        if "norm.weight" in name:
            assert value.eq(1).all(), name


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_with_memory_is_the_model(name: str) -> None:
    plain = Transformer(POINTS[name])
    with torch.device("meta"):
        model = Transformer(POINTS[name])
    assert all(parameter.is_meta for parameter in model.parameters())
    materialise(model, "cpu", torch.bfloat16)
    assert all((p.device.type, p.dtype) == ("cpu", torch.bfloat16) for p in model.parameters())

    def shapes(one: Transformer) -> dict[str, tuple[int, ...]]:
        return {n: tuple(p.shape) for n, p in one.named_parameters(remove_duplicate=False)}

    assert shapes(model) == shapes(plain)
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert not list(model.buffers()), "or they would want memory, too"


@pytest.mark.parametrize("name", PAIRS)
def test_every_parameter_is_drawn_anew(name: str) -> None:
    with torch.device("meta"):
        model = Transformer(POINTS[name])
    materialise(model, "cpu", torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e30)
    initialise(model, seeded())
    assert all(parameter.abs().max() < 10 for parameter in model.parameters())
