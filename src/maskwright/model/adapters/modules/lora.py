"""The module of LoRA: a low-rank product added to one projection."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.model.adapters.base.adapter import AdapterModule, projections
from maskwright.model.adapters.lora import LoRA
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.kernels.linear import linear
from maskwright.model.nn.transformer import Transformer


class LowRank(AdapterModule):
    """The low-rank product added to a projection with this `weight` (O, I)."""

    def __init__(self, settings: LoRA, weight: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.scale, self.rate = settings.scale, settings.dropout
        initial_a = torch.empty(settings.rank, inputs, device="cpu")
        nn.init.kaiming_uniform_(initial_a, a=math.sqrt(5), generator=generator)
        self.A = nn.Parameter(initial_a.to(weight))
        self.B = nn.Parameter(weight.new_zeros(outputs, settings.rank))

    def place(self, module: nn.Module) -> RemovableHandle:
        return module.register_forward_hook(self._add)

    def _add(
        self, module: nn.Module, inputs: tuple[Float[Tensor, "*any I"]], out: Tensor
    ) -> Float[Tensor, "*any O"]:
        reduced = linear(dropout(inputs[0], self.rate, self.training), self.A, None)  # *any, rank
        return out + linear(reduced * self.scale, self.B, None)

    def folded(self, module: nn.Module) -> dict[str, Tensor]:
        weight = module.get_parameter("weight")
        # Computed in float32 at least and rounded once, whatever the dtype of the weights.
        dtype = torch.promote_types(weight.dtype, torch.float32)
        product = self.scale * (self.B.to(dtype) @ self.A.to(dtype))
        return {"weight": (weight.to(dtype) + product).to(weight.dtype)}


def branches(settings: LoRA, model: Transformer, generator: torch.Generator) -> dict[str, LowRank]:
    """Return a product for each projection that the settings name, by its dotted path."""
    targets = projections(model, settings.targets, "lora.targets")
    return {path: LowRank(settings, module.weight, generator) for path, module in targets.items()}
