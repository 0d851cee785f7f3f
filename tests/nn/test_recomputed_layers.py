"""Layers whose activations are computed again in the backward pass: the same gradients."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from maskwright.model.device.step_cost import kept_bytes
from maskwright.model.nn import stack
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.initialise import build
from nn.points import POINTS, VOCABULARY, tokens
from toys import elmo

CONFIGS = {**POINTS, "recurrent encoder": elmo().config}


def dropping(config: Any) -> Any:
    """The config with every dropout rate of it at 0.1."""
    if isinstance(config, tuple):
        return tuple(map(dropping, config))
    if not is_dataclass(config) or isinstance(config, type):
        return config
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    changed = {n: 0.1 if n.endswith("dropout") else dropping(v) for n, v in values.items()}
    return replace(config, **changed)


def gradients(config: TransformerConfig, recomputed: bool) -> tuple[dict[str, Tensor], int]:
    """The gradients of a step with dropout, and how many layers were computed for it."""
    model = build(dropping(config), torch.Generator().manual_seed(0), deviation=0.2).train()
    if recomputed:
        stack.recompute_layers(model)
    calls = list[object]()
    for module in model.modules():
        for block in module.blocks.values() if isinstance(module, stack.StackModule) else ():
            block.register_forward_pre_hook(lambda block, _: calls.append(block))
    torch.manual_seed(5)
    read = tokens(seed=1) % min(VOCABULARY, config.tokens.vocabulary)
    if len(config.stacks) == 2:
        out = model.decode(read, memory=model.encode(read))
    else:
        out = model.encode(read) if config.decoder is None else model.decode(read)
    out.square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, len(calls)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_gradients_are_the_same_to_the_bit(name: str) -> None:
    """The count of computed layers is the control that they are computed again."""
    usual, layers = gradients(CONFIGS[name], recomputed=False)
    again, layers_again = gradients(CONFIGS[name], recomputed=True)
    assert layers_again == 2 * layers > 0
    assert usual.keys() == again.keys() and len(usual) > 5
    assert all(torch.equal(usual[n], again[n]) for n in usual)


def test_other_random_numbers_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: dropout that is drawn anew gives other gradients."""
    config, checkpoint = POINTS["post-norm encoder"], stack.checkpoint
    usual, _ = gradients(config, recomputed=False)
    monkeypatch.setattr(
        stack, "checkpoint", lambda *a, **k: checkpoint(*a, **k, preserve_rng_state=False)
    )
    again, _ = gradients(config, recomputed=True)
    assert any(not torch.equal(usual[n], again[n]) for n in usual)


@pytest.mark.parametrize("training", [True, False])
def test_without_gradients_nothing_is_computed_again(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in evaluation nor without gradients; the control trains."""
    calls = []
    monkeypatch.setattr(
        stack, "checkpoint", lambda f, *a, use_reentrant, **k: calls.append(1) or f(*a, **k)
    )
    model = build(POINTS["pre-norm decoder"], torch.Generator().manual_seed(0)).train(training)
    stack.recompute_layers(model)
    with torch.no_grad():
        model.decode(tokens())
    assert not calls
    model.decode(tokens())
    assert len(calls) == (2 if training else 0)


def test_less_is_counted_as_kept() -> None:
    config = POINTS["shared narrow encoder"]
    size = {"tokens": 100, "itemsize": 4, "length": 10}
    least = 4 * 100 * config.width * (len(config.stacks["encoder"].blocks) - 1)
    assert least < kept_bytes(config, **size, recomputed=True) < kept_bytes(config, **size)
