"""(IA)³ (Liu et al. 2022, arXiv:2205.05638, 3.3): learned factors of keys, values and inner
activations.

    k ⊙ l_k      v ⊙ l_v      down(l_ff ⊙ inner)        of cross-attention too, where there is one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class IA3(Settings):
    """`outputs` are the projections whose outputs are scaled, `inputs` those whose inputs are."""

    merges: ClassVar[bool] = True

    kind: Literal["ia3"] = "ia3"
    outputs: tuple[str, ...] = ("key", "value")
    inputs: tuple[str, ...] = ("down",)


SETTINGS = IA3
