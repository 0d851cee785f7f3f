"""What a method does to a model: what it adds, what trains, what begins anew, and how fast each
parameter learns."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from maskwright.learn.finetune.method import GRADUAL, LAST, REINIT, Method
from maskwright.learn.train.parameter_rates import RateFactors
from maskwright.model.adapters.base import freeze
from maskwright.model.adapters.base.adapter import Adapter
from maskwright.model.adapters.base.adapter import attach as attach_adapter
from maskwright.model.nn.transformer import Transformer

# The share of the run from which on everything trains.
UNFROZEN_AT = 0.5
# What of a head gives its scores.
PROJECTION = re.compile(r"heads\.[^.]+\.(weight|bias)")


def attach(
    method: Method, model: Transformer, generator: torch.Generator
) -> tuple[Adapter | None, str]:
    """Add to `model` what the method adds, and freeze what it freezes.

    Returns:
        The adapter, if the method is one, and how much of the model trains, as a line of text.

    Raises:
        ConfigError: the model has not so many layers, or no such place for an adapter.
    """
    if method.trains_all:
        return None, freeze.share(model)
    if last := LAST.fullmatch(method.name):
        return None, _train_only(model, freeze.last_layers(model, int(last[1])))
    assert method.adapter is not None
    tops = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
    adapter = attach_adapter(method.adapter, model, generator, heads=tops)
    return adapter, adapter.share()


def reinitialised(method: Method, model: Transformer) -> list[str]:
    """The parameters below the heads that do not begin as they were pretrained.

    Raises:
        ConfigError: the model has not so many layers of its own.
    """
    found = REINIT.fullmatch(method.name)
    return freeze.top_blocks(model, int(found[1])) if found else []


def learning_rate_factors(method: Method, model: Transformer, steps: int) -> RateFactors | None:
    """How fast the parameters of `model` learn in a run of so many steps; None: all alike."""
    factors = freeze.learning_rate_factors(model, method.layer_decay)
    for name in factors:
        if PROJECTION.fullmatch(name):
            factors[name] *= method.head_factor
    if method.name != GRADUAL:
        return None if set(factors.values()) == {1.0} else lambda step: factors

    def gradually(step: int) -> dict[str, float]:
        free = set(freeze.gradual(model, min(1.0, step / steps), until=UNFROZEN_AT))
        return {name: factor if name in free else 0.0 for name, factor in factors.items()}

    return gradually


def _train_only(model: Transformer, parameters: Iterable[str]) -> str:
    freeze.train_only(model, parameters)
    return freeze.share(model)
