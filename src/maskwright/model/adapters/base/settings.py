"""The settings of a method of adaptation: frozen, and checked before torch is loaded.

What acts in the model is in `model/adapters/modules/` and is loaded when a method is attached
(`adapter.attach`).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from maskwright.base import catalogue
from maskwright.base.errors import ConfigError

if TYPE_CHECKING:
    import torch

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

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, Any]:
        """A new `AdapterModule` for each module that the method changes, by its dotted path; by
        default those of the function `branches` in `modules/`."""
        make = getattr(catalogue.load_modules("adapters", self.kind), "branches", None)
        return {} if make is None else make(self, model, generator)

    def own(self, model: Transformer) -> list[str]:
        """The names of the model's own parameters that the method trains."""
        return []

    @property
    def positions(self) -> int:
        """How many positions of a row it takes in front of the text. Where it takes some, a row
        must hold one text, because several would talk to each other through them."""
        return 0

    def require(self, name: str, fits: bool, requirement: str) -> None:
        """Raise a `ConfigError`, with the `requirement`, unless the setting `name` fits."""
        if not fits:
            raise ConfigError(
                "a setting of the adapter is out of range",
                where=f"{self.kind}.{name}",
                found=getattr(self, name),
                wanted=requirement,
            )
