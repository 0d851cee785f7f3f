"""Weights by role, from a seed, on any device."""

from __future__ import annotations

import math

import pytest
import torch

from maskwright.model.families.base.family import family
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
        model = build(POINTS[name], seeded(seed), distribution=distribution)  # type: ignore[arg-type]
        assert torch.equal(state, torch.random.get_rng_state()), "the default generator was drawn"
        return model.state_dict()

    one, same, other = made(1), made(1), made(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["tokens.weight"], other["tokens.weight"])
    assert all(bool(torch.isfinite(value).all()) for value in one.values())


def big(distribution: str, scaled: bool = False) -> Transformer:
    from dataclasses import replace

    from maskwright.model.nn.config import FeedForward, Tokens

    small = POINTS["relative encoder-decoder"]
    assert small.decoder is not None and small.encoder is not None
    stacks = {
        name: replace(
            stack,
            blocks=tuple(replace(b, feed_forward=FeedForward(width=512)) for b in stack.blocks),
        )
        for name, stack in small.stacks.items()
    }
    point = replace(small, width=128, tokens=Tokens(vocabulary=300, width=128), **stacks)
    return build(point, seeded(), distribution=distribution, scaled_residual=scaled)  # type: ignore[arg-type]


def deviation(model: Transformer, name: str) -> float:
    return model.get_parameter(name).std().item()


def test_roles() -> None:
    block = "decoder.blocks.0"
    truncated = big("truncated")
    cut = 0.02 * 0.8796  # the deviation that is left of a normal cut at two deviations
    for name in ("tokens.weight", f"{block}.feed_forward.up.weight"):
        assert deviation(truncated, name) == pytest.approx(cut, rel=0.05)
        assert truncated.get_parameter(name).abs().max() <= 0.04
    normal = big("normal")
    assert deviation(normal, f"{block}.feed_forward.down.weight") == pytest.approx(0.02, rel=0.05)
    assert normal.get_parameter("tokens.weight").abs().max() > 0.05
    fan = big("fan_in")
    assert deviation(fan, "tokens.weight") == pytest.approx(1.0, rel=0.05)
    assert deviation(fan, f"{block}.attention.key.weight") == pytest.approx(128**-0.5, rel=0.1)
    assert deviation(fan, f"{block}.attention.query.weight") == pytest.approx(
        (128 * 8) ** -0.5, rel=0.1
    )
    assert deviation(fan, f"{block}.feed_forward.down.weight") == pytest.approx(512**-0.5, rel=0.05)
    uniform = big("uniform")
    bound = uniform.get_parameter(f"{block}.feed_forward.up.weight").abs().max()
    assert bound.item() == pytest.approx(128**-0.5, rel=0.01)
    assert deviation(uniform, "tokens.weight") == pytest.approx(1.0, rel=0.05)


def test_the_bias_of_a_tied_head_has_the_fan_of_what_it_reads() -> None:
    """ALBERT's head reads narrow states of wide ones."""
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
    """The same names, shapes and sharing, and nothing of it on the meta device."""
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
    """Memory that was never written would show as the sentinel."""
    with torch.device("meta"):
        model = Transformer(POINTS[name])
    materialise(model, "cpu", torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e30)
    initialise(model, seeded())
    assert all(parameter.abs().max() < 10 for parameter in model.parameters())
