"""What of a model trains, by one name.

    full         everything
    last-N       the head, the pooler below it, and the last N layers
    reinit-N     everything, the last N layers and the pooler from weights drawn anew, for they are
                 those that pretraining fits to its own task (Zhang et al. 2021, arXiv:2006.05987,
                 section 5)
    gradual      these and the last layer at first, then a layer more at a time, and all of them
                 from half of the run on (Howard & Ruder 2018, section 3.3)
    lora, …      what `adapters/` adds to a model that stands still; of them `probe` is a linear
                 head and nothing else, and `head` the head of the family with its pooler

`layer_decay` below 1 lets lower layers learn more slowly, with any method. Where the scores of a
head begin at weights that were drawn, these learn `head_rate` times as fast as what was pretrained.

No torch: a wrong name or setting is refused before it is loaded. `trained_weights.py` does to a
model what is said here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from maskwright.base import catalogue
from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import ConfigError, UsageError, near
from maskwright.model.adapters.base.settings import Settings as AdapterSettings
from maskwright.model.nn.config import TransformerConfig

FULL, GRADUAL = "full", "gradual"
LAST, REINIT = re.compile(r"last-(\d+)"), re.compile(r"reinit-([1-9]\d*)")
# The published learning rate is for a width of 768; narrower models want more, by the square, and
# few parameters want most. How much faster a head learns than what was pretrained. Why:
# docs/decisions/0019-fine-tuning-learning-rate.md.
RATE, WIDTH, RATE_OF_FEW = 5e-5, 768, 1e-3
HEAD_RATE = 10.0


def names() -> list[str]:
    """All methods; `last-1` and `reinit-1` stand for any number."""
    return [FULL, "last-1", "reinit-1", GRADUAL, *catalogue.names("adapters")]


@dataclass(frozen=True)
class Method:
    """One of them.

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
            raise UsageError(
                "a share is out of range",
                where="--layer-decay",
                found=self.layer_decay,
                wanted="above 0, at most 1",
            )
        if self.head_rate is not None and not 0.0 < self.head_rate < math.inf:
            raise UsageError(
                "a factor is out of range",
                where="--head-rate",
                found=self.head_rate,
                wanted="above 0",
            )
        numbered = LAST.fullmatch(self.name) or REINIT.fullmatch(self.name)
        if self.name not in names() and not numbered:
            raise UsageError(
                "no such method",
                where="--method",
                found=repr(self.name),
                wanted=near(self.name, names()),
            )
        if self.adapter is None and _is_adapter(self.name):
            object.__setattr__(self, "adapter", adapter_settings(self.name))

    @property
    def trains_layers(self) -> bool:
        """Whether layers of the model itself train, for which the published rates are."""
        last = LAST.fullmatch(self.name)
        return self.trains_all or (last is not None and int(last[1]) > 0)

    @property
    def trains_all(self) -> bool:
        """Whether every parameter of the model trains, at some time of the run."""
        return self.name in (FULL, GRADUAL) or REINIT.fullmatch(self.name) is not None

    def rate(self, width: int) -> float:
        """The learning rate for a model of that width, where none is asked for."""
        if not self.trains_layers:
            return RATE_OF_FEW
        return min(RATE_OF_FEW, RATE * max(1.0, WIDTH / width) ** 2)

    @property
    def head_factor(self) -> float:
        """`head_rate`, or the usual one."""
        if self.head_rate is not None:
            return self.head_rate
        return HEAD_RATE if self.trains_layers else 1.0

    @property
    def positions(self) -> int:
        """How many positions of a text the method takes for itself."""
        return 0 if self.adapter is None else self.adapter.positions

    @property
    def head_alone(self) -> bool:
        """Whether nothing below the head trains."""
        return self.adapter is not None and self.adapter.head_alone

    def with_heads(self, config: TransformerConfig) -> TransformerConfig:
        """`config` with the heads that the method trains."""
        if self.adapter is None or not self.adapter.linear:
            return config
        heads = tuple(replace(head, transform=None, norm=None, bias=True) for head in config.heads)
        return replace(config, pooler=False, heads=heads)

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings of the adapter that are not its defaults, as plain values."""
        if self.adapter is None:
            return {}
        usual = to_plain(adapter_settings(self.name))
        return {k: v for k, v in to_plain(self.adapter).items() if v != usual[k]}


def adapter_settings(name: str, values: Mapping[str, Any] | None = None) -> AdapterSettings:
    """The settings of the adapter `name`, with these plain values by field.

    Raises:
        UsageError: no such adapter.
        ConfigError: no such setting, or a value that is none of it; with the near names.
    """
    settings_type = catalogue.load("adapters", name).SETTINGS
    made: AdapterSettings = from_plain(settings_type, dict(values or {}), name)
    return made


def methods_of(
    names: str,
    layer_decay: float = 1.0,
    head_rate: float | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Method]:
    """The methods of one name, or of several with commas between.

    Args:
        adapters: name of an adapter -> the settings that are not its defaults.

    Raises:
        UsageError: no such method, or a number out of range.
        ConfigError: a setting that an adapter does not have or take, or of one that is not used.
    """
    requested = [name.strip() for name in names.split(",")]
    given = adapters or {}
    for other in given:
        adapter_settings(other, given[other])
        if other not in requested:
            raise ConfigError(
                "settings of an adapter that is not trained",
                where=f"adapters.{other}",
                found=f"the method is {names}",
                wanted=f"settings of {' or '.join(filter(_is_adapter, requested)) or 'none'}",
                do=f"--method {other}, or leave its settings out",
            )
    return [
        Method(
            name,
            layer_decay,
            head_rate,
            adapter_settings(name, given.get(name)) if _is_adapter(name) else None,
        )
        for name in requested
    ]


def _is_adapter(name: str) -> bool:
    return name in catalogue.names("adapters")
