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

`layer_decay` below 1 lets lower layers learn more slowly (`adapters/parts/freeze.py`), with any
method. Where the scores of a head begin at weights that were drawn, these learn `head_rate` times
as fast as what was pretrained.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from maskwright import catalogue
from maskwright.adapters.parts import freeze
from maskwright.adapters.parts.adapter import Adapter
from maskwright.adapters.parts.settings import Settings as AdapterSettings
from maskwright.errors import UsageError, near
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer
from maskwright.train.parameter_rates import Pace

FULL, GRADUAL = "full", "gradual"
LAST, REINIT = re.compile(r"last-(\d+)"), re.compile(r"reinit-([1-9]\d*)")
# The share of the run from which on everything trains.
UNFROZEN_AT = 0.5
# The published learning rate is for a width of 768; narrower models want more, by the square, and
# few parameters want most. How much faster a head learns than what was pretrained. Why:
# docs/decisions/0019-the-usual-rate.md.
RATE, WIDTH, RATE_OF_FEW = 5e-5, 768, 1e-3
HEAD_RATE = 10.0
# What of a head gives its scores.
PROJECTION = re.compile(r"heads\.[^.]+\.(weight|bias)")


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

    Raises:
        UsageError: no such method, or a number out of range.
    """

    name: str
    layer_decay: float = 1.0
    head_rate: float | None = None

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

    @property
    def trains_layers(self) -> bool:
        """Whether layers of the model itself train, for which the published rates are."""
        last = LAST.fullmatch(self.name)
        return self._trains_all or (last is not None and int(last[1]) > 0)

    @property
    def _trains_all(self) -> bool:
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
        return 0 if self.settings is None else self.settings.positions

    @property
    def settings(self) -> AdapterSettings | None:
        """Those of the adapter of that name; None: the method is none."""
        if self.name not in catalogue.names("adapters"):
            return None
        made: AdapterSettings = catalogue.load("adapters", self.name).SETTINGS()
        return made

    @property
    def head_alone(self) -> bool:
        """Whether nothing below the head trains."""
        return self.settings is not None and self.settings.head_alone

    def headed(self, config: TransformerConfig) -> TransformerConfig:
        """`config` with the heads that the method trains."""
        if self.settings is None or not self.settings.linear:
            return config
        heads = tuple(replace(head, transform=None, norm=None, bias=True) for head in config.heads)
        return replace(config, pooler=False, heads=heads)

    def anew(self, model: Transformer) -> list[str]:
        """The parameters below the heads that do not begin as they were pretrained.

        Raises:
            ConfigError: the model has not so many layers of its own.
        """
        found = REINIT.fullmatch(self.name)
        return freeze.top_blocks(model, int(found[1])) if found else []

    def attach(self, model: Transformer, generator: torch.Generator) -> tuple[Adapter | None, str]:
        """Add to `model` what the method adds, and hold what it holds; how much trains is told.

        Raises:
            ConfigError: the model has not so many layers.
        """
        tops = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
        if self._trains_all:
            return None, freeze.share(model)
        if last := LAST.fullmatch(self.name):
            return None, _only(model, freeze.last_layers(model, int(last[1])))
        assert self.settings is not None
        adapter = self.settings.attach(model, generator, heads=tops)
        return adapter, adapter.share()

    def pace(self, model: Transformer, steps: int) -> Pace | None:
        """How fast the parameters of `model` learn in a run of so many steps; None: all alike."""
        factors = freeze.learning_rate_factors(model, self.layer_decay)
        for name in factors:
            if PROJECTION.fullmatch(name):
                factors[name] *= self.head_factor
        if self.name != GRADUAL:
            return None if set(factors.values()) == {1.0} else lambda step: factors

        def gradually(step: int) -> dict[str, float]:
            free = set(freeze.gradual(model, min(1.0, step / steps), until=UNFROZEN_AT))
            return {name: factor if name in free else 0.0 for name, factor in factors.items()}

        return gradually


def _only(model: Transformer, parameters: Iterable[str]) -> str:
    freeze.train_only(model, parameters)
    return freeze.share(model)
