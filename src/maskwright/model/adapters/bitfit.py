"""BitFit (Ben Zaken et al. 2022, arXiv:2106.10199): the biases train, and nothing else.

Biases of projections and of norms, in the stacks; with heads named, those train whole. A model
without biases cannot be adapted so, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from maskwright.base.errors import IncompatibleError
from maskwright.model.adapters.base.settings import Settings

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class BitFit(Settings):
    """`parts` are the biases by the modules they belong to ("query", "up", …); empty: all."""

    # There is nothing to fold: the biases are the model's own.
    merges: ClassVar[bool] = True

    kind: Literal["bitfit"] = "bitfit"
    parts: tuple[str, ...] = ()

    def own(self, model: Transformer) -> list[str]:
        from maskwright.model.adapters.base.freeze import biases

        names = biases(model, self.parts)
        if not names:
            raise IncompatibleError(
                "the model has no such biases",
                where="bitfit.parts",
                found=", ".join(self.parts) or "none at all",
                do="choose another method",
            )
        return names


SETTINGS = BitFit
