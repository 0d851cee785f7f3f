"""The settings of a method of adaptation: frozen, and checked before torch is loaded.

A member's own settings import what acts in the model (`model/adapters/modules/`) where it is
attached.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from maskwright.base.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from maskwright.model.adapters.base.adapter import Adapter, AdapterModule
    from maskwright.model.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Settings(abc.ABC):
    """Settings of a method; `kind` is its name. A member module names its class `SETTINGS`."""

    # Whether the branches can be folded into the model's weights.
    merges: ClassVar[bool] = False
    # Whether a fresh adapter leaves every output as it was, bit for bit.
    silent: ClassVar[bool] = True
    # Whether nothing trains but what is trained along, so that the model below stays as it is.
    head_alone: ClassVar[bool] = False
    # Whether the heads that are trained along are single projections.
    linear: ClassVar[bool] = False

    kind: str

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        """A fresh branch for each place, by the module's dotted path."""
        return {}

    def own(self, model: Transformer) -> list[str]:
        """The names of the model's own parameters that the method trains."""
        return []

    @property
    def positions(self) -> int:
        """How many positions of a row it takes in front of the text. Where it takes some, a row
        must hold one text, because several would talk to each other through them."""
        return 0

    def attach(
        self,
        model: Transformer,
        generator: torch.Generator,
        *,
        name: str = "default",
        heads: Iterable[str] = (),
    ) -> Adapter:
        """A fresh adapter of `model`, active; another that was active comes to rest.

        Args:
            generator: of the initial values (on the CPU).
            name: what it is called among the adapters of this model.
            heads: what trains along: heads by name, `pooler`, `vocabulary_head`.

        Raises:
            ConfigError: a place or a head that the model has not.
            IncompatibleError: the method finds nothing to train in this model.
            UsageError: the name is taken, or no plain one.
        """
        from maskwright.model.adapters.base.adapter import attach

        return attach(self, model, generator, name, heads)

    def require(self, name: str, fits: bool, wanted: str) -> None:
        """Refuse the setting `name` unless it `fits`.

        Raises:
            ConfigError: naming the setting, its value and what is `wanted`.
        """
        if not fits:
            raise ConfigError(
                "a setting of the adapter is out of range",
                where=f"{self.kind}.{name}",
                found=getattr(self, name),
                wanted=wanted,
            )
