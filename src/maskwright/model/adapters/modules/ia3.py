"""The module of (IA)³: factors on the outputs or the inputs of one projection."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.model.adapters.base.adapter import AdapterModule, projections
from maskwright.model.adapters.ia3 import IA3
from maskwright.model.nn.transformer import Transformer


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


def branches(settings: IA3, model: Transformer, generator: torch.Generator) -> dict[str, Scale]:
    """Factors for each projection that the settings name, by its dotted path."""
    scales: dict[str, Scale] = {}
    for path, module in projections(model, settings.outputs, "ia3.outputs").items():
        scales[path] = Scale(module.weight, "outputs")
    for path, module in projections(model, settings.inputs, "ia3.inputs").items():
        settings.require("inputs", path not in scales, "projections not among the outputs")
        scales[path] = Scale(module.weight, "inputs")
    return scales
