"""(IA)³ (Liu et al. 2022, arXiv:2205.05638, section 3.3): learned vectors, all ones at first, that
scale keys, values and what the feed-forward half has inside.

    k ⊙ l_k      v ⊙ l_v      down(l_ff ⊙ inner)        of cross-attention too, where there is one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.adapters.parts.adapter import AdapterModule, Settings
from maskwright.adapters.parts.places import projections
from maskwright.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class IA3(Settings):
    """`outputs` are the projections whose outputs are scaled, `inputs` those whose inputs are."""

    merges: ClassVar[bool] = True

    kind: Literal["ia3"] = "ia3"
    outputs: tuple[str, ...] = ("key", "value")
    inputs: tuple[str, ...] = ("down",)

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        branches: dict[str, AdapterModule] = {}
        for path, module in projections(model, self.outputs).items():
            branches[path] = Scale(module.weight, "outputs")
        for path, module in projections(model, self.inputs).items():
            self.require("inputs", path not in branches, "projections not among the outputs")
            branches[path] = Scale(module.weight, "inputs")
        return branches


SETTINGS = IA3


class Scale(AdapterModule):
    """A factor for each output, or each input, of one projection with this `weight` (O, I)."""

    def __init__(self, weight: Tensor, side: Literal["outputs", "inputs"]) -> None:
        super().__init__()
        self.side = side
        self.factors = nn.Parameter(weight.new_ones(weight.shape[0 if side == "outputs" else 1]))

    def place(self, module: nn.Module) -> RemovableHandle:
        if self.side == "outputs":
            return module.register_forward_hook(self._outputs)
        return module.register_forward_pre_hook(self._inputs)

    def _outputs(self, module: nn.Module, inputs: tuple[Tensor], out: Tensor) -> Tensor:
        return out * self.factors

    def _inputs(self, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0] * self.factors,)

    def folded(self, module: nn.Module) -> dict[str, Tensor]:
        weight = module.get_parameter("weight")
        if self.side == "inputs":
            return {"weight": weight * self.factors}
        folded = {"weight": weight * self.factors[:, None]}
        bias = getattr(module, "bias", None)
        return folded if bias is None else folded | {"bias": bias * self.factors}
