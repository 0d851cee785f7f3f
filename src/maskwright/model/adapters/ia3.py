"""(IA)³ (Liu et al. 2022, arXiv:2205.05638, section 3.3): learned vectors, all ones at first, that
scale keys, values and what the feed-forward half has inside.

    k ⊙ l_k      v ⊙ l_v      down(l_ff ⊙ inner)        of cross-attention too, where there is one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings

if TYPE_CHECKING:
    import torch

    from maskwright.model.adapters.base.adapter import AdapterModule
    from maskwright.model.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class IA3(Settings):
    """`outputs` are the projections whose outputs are scaled, `inputs` those whose inputs are."""

    merges: ClassVar[bool] = True

    kind: Literal["ia3"] = "ia3"
    outputs: tuple[str, ...] = ("key", "value")
    inputs: tuple[str, ...] = ("down",)

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        from maskwright.model.adapters.base.adapter import projections
        from maskwright.model.adapters.modules.ia3 import Scale

        branches: dict[str, AdapterModule] = {}
        for path, module in projections(model, self.outputs, "ia3.outputs").items():
            branches[path] = Scale(module.weight, "outputs")
        for path, module in projections(model, self.inputs, "ia3.inputs").items():
            self.require("inputs", path not in branches, "projections not among the outputs")
            branches[path] = Scale(module.weight, "inputs")
        return branches


SETTINGS = IA3
