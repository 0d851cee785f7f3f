"""Fine-tuning methods: which parameters of a model are trained, by name.

    full         all parameters
    last-N       the head, the pooler below it, and the last N layers
    reinit-N     all parameters; the last N layers and the pooler start from newly initialised
                 weights, as these are the most specific to the pretraining task (Zhang et al.
                 2021, arXiv:2006.05987, section 5)
    gradual      head, pooler and last layer at first, then one more layer at a time, and all from
                 half of the run on (Howard & Ruder 2018, section 3.3)
    lora, …      an adapter of `adapters/` on a frozen model; among them `probe` is only a linear
                 head, and `head` the head of the family with its pooler
    embeddings … a fitted method of `methods/`, whose parameters are the solution of a fit

`auto` in a recipe is no method, but the selection of one (`method_selection.py`).

`layer_decay` below 1 lowers the learning rate of lower layers, with any method. The last layer of a
newly initialised head has `head_rate` times the learning rate of pretrained weights.

This module does not import torch, so that invalid settings are reported quickly. `learner.py`
applies a method to a model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from maskwright.base import catalogue
from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import ConfigError, UsageError, unknown
from maskwright.learn.tasks.base.choices import PROMPT
from maskwright.model.adapters.base.settings import Settings as AdapterSettings
from maskwright.model.nn.config import TransformerConfig

if TYPE_CHECKING:
    from maskwright.learn.finetune.methods.base.fitted import FittedMethod

FITTED = "finetune.methods"
AUTO, FULL, GRADUAL = "auto", "full", "gradual"
LAST, REINIT = re.compile(r"last-(\d+)"), re.compile(r"reinit-([1-9]\d*)")
# The published learning rate is for a width of 768; narrower models need a higher one (by the
# square of the ratio), few trained parameters the highest. HEAD_RATE is the factor of a new head:
# docs/decisions/0019-fine-tuning-learning-rate.md.
RATE, WIDTH, RATE_OF_FEW = 5e-5, 768, 1e-3
HEAD_RATE = 10.0


def names() -> list[str]:
    """Return the names of all methods; `last-1` and `reinit-1` stand for any number."""
    trained = [FULL, "last-1", "reinit-1", GRADUAL, *catalogue.names("adapters")]
    return [*trained, *catalogue.names(FITTED)]


@dataclass(frozen=True)
class Method:
    """A fine-tuning method and its settings.

    Attributes:
        layer_decay: what the learning rate is multiplied by from each layer to the one below it.
        head_rate: how many times as fast the scores of a head learn; None: HEAD_RATE where layers
            train, else 1.
        adapter: the settings of the adapter of that name; None: its defaults, or the method is no
            adapter.

    Raises:
        UsageError: no such method, or a number out of range.
    """

    name: str
    layer_decay: float = 1.0
    head_rate: float | None = None
    adapter: AdapterSettings | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.layer_decay <= 1.0:
            raise out_of_range("--layer-decay", self.layer_decay, "above 0, at most 1")
        if self.head_rate is not None and not 0.0 < self.head_rate < math.inf:
            raise out_of_range("--head-rate", self.head_rate, "above 0")
        numbered = LAST.fullmatch(self.name) or REINIT.fullmatch(self.name)
        if self.name not in names() and not numbered:
            raise unknown("no such method", self.name, names(), where="--method")
        adapter = self.name if self.fitted is None else self.fitted.adapter
        if self.adapter is None and _is_adapter(adapter):
            object.__setattr__(self, "adapter", adapter_settings(adapter))

    @property
    def fitted(self) -> FittedMethod | None:
        """The fitted method of this name, if it is one."""
        if self.name not in catalogue.names(FITTED):
            return None
        method: FittedMethod = catalogue.load(FITTED, self.name).METHOD
        return method

    @property
    def opens_network(self) -> bool:
        """Whether the method needs a network."""
        return self.fitted is None or self.fitted.opens_network

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return self.fitted is None or self.fitted.seeded

    @property
    def baseline(self) -> str:
        """The name of the baseline that is this method; "": none is."""
        return "" if self.fitted is None else self.fitted.baseline

    @property
    def prompt_option(self) -> str:
        """The option of a task type that a prompt sets."""
        return PROMPT if self.fitted is None else self.fitted.chosen_by or PROMPT

    @property
    def trains_layers(self) -> bool:
        """Whether layers of the model itself are trained, as the published rates assume."""
        match = LAST.fullmatch(self.name)
        return self.trains_all or (match is not None and int(match[1]) > 0)

    @property
    def trains_all(self) -> bool:
        """Whether every parameter of the model is trained at some time of the run."""
        if self.fitted is not None:
            return self.adapter is None and self.prompt_option == PROMPT
        return self.name in (FULL, GRADUAL) or REINIT.fullmatch(self.name) is not None

    def rate(self, width: int) -> float:
        """Return the default learning rate for a model of the given width."""
        if not self.trains_layers:
            return RATE_OF_FEW
        return min(RATE_OF_FEW, RATE * max(1.0, WIDTH / width) ** 2)

    @property
    def head_factor(self) -> float:
        """`head_rate`, or its default."""
        if self.head_rate is not None:
            return self.head_rate
        return HEAD_RATE if self.trains_layers else 1.0

    @property
    def positions(self) -> int:
        """Number of positions that the adapter occupies in each input."""
        return 0 if self.adapter is None else self.adapter.positions

    @property
    def head_alone(self) -> bool:
        """Whether only the head is trained."""
        return self.adapter is not None and self.adapter.head_alone

    def with_heads(self, config: TransformerConfig) -> TransformerConfig:
        """Return `config` with the heads that the method trains: linear ones for `probe` and
        fitted methods."""
        if self.fitted is None and (self.adapter is None or not self.adapter.linear):
            return config
        trained = self.fitted is None  # what is fitted on the states has no mix of them to learn
        linear: dict[str, Any] = {"transform": None, "norm": None, "bias": True}
        heads = tuple(replace(h, **linear, layer_mix=h.layer_mix and trained) for h in config.heads)
        return replace(config, pooler=False, heads=heads)

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings of the adapter that differ from its defaults, as plain values."""
        if self.adapter is None:
            return {}
        usual = to_plain(adapter_settings(self.adapter.kind))
        return {k: v for k, v in to_plain(self.adapter).items() if v != usual[k]}


def out_of_range(option: str, number: float, limits: str) -> UsageError:
    """Return the error for a number outside of its limits."""
    return UsageError("the number is out of range", where=option, found=number, wanted=limits)


def adapter_settings(name: str, values: Mapping[str, Any] | None = None) -> AdapterSettings:
    """Return the settings of the adapter `name` from plain `values` by field.

    Raises:
        UsageError: there is no such adapter.
        ConfigError: there is no such setting (with similar names), or its value is invalid.
    """
    settings_type = catalogue.load("adapters", name).SETTINGS
    settings: AdapterSettings = from_plain(settings_type, dict(values or {}), name)
    return settings


def methods_of(
    names: str,
    layer_decay: float = 1.0,
    head_rate: float | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Method]:
    """Return the methods of a name, or of several names separated by commas.

    Args:
        adapters: settings that differ from the defaults, by name of the adapter.

    Raises:
        UsageError: there is no such method, or a number is out of range.
        ConfigError: a setting of an adapter is invalid, or the adapter is not among the methods.
    """
    requested = [name.strip() for name in names.split(",")]
    settings = {name: adapter_settings(name, values) for name, values in (adapters or {}).items()}
    for adapter in settings:
        if adapter not in requested:
            raise ConfigError(
                "settings of an adapter that is not trained",
                where=f"adapters.{adapter}",
                found=f"the method is {names}",
                wanted=f"settings of {' or '.join(filter(_is_adapter, requested)) or 'none'}",
                do=f"--method {adapter}, or leave its settings out",
            )
    return [Method(name, layer_decay, head_rate, settings.get(name)) for name in requested]


def _is_adapter(name: str) -> bool:
    return name in catalogue.names("adapters")
