"""LoRA (Hu et al. 2021, arXiv:2106.09685, section 4.1): a frozen matrix, and beside it a product
of two narrow ones.

    W x + (alpha / rank) · B A drop(x)       A (rank, in) Kaiming-uniform, B (out, rank) zero

Merging adds the product to W, and the model is as fast as before. A module that several layers use
has one pair, used as often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.adapters.parts.adapter import AdapterModule, Settings
from maskwright.adapters.parts.places import projections
from maskwright.nn.kernels.dropout import dropout
from maskwright.nn.kernels.linear import linear
from maskwright.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class LoRA(Settings):
    """`targets` are projections of the layers by role ("query", "up", …) or by more of their path;
    the product is scaled by `alpha / rank`, and what it reads is dropped at the rate `dropout`."""

    merges: ClassVar[bool] = True

    kind: Literal["lora"] = "lora"
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        self.require("rank", 1 <= self.rank <= 1 << 16, "1 to 65,536")
        self.require("alpha", math.isfinite(self.alpha) and self.alpha > 0.0, "more than 0")
        self.require("dropout", 0.0 <= self.dropout < 1.0, "0 <= rate < 1")
        self.require("targets", len(self.targets) > 0, "at least one")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        found = projections(model, self.targets)
        return {path: LowRank(self, module.weight, generator) for path, module in found.items()}


SETTINGS = LoRA


class LowRank(AdapterModule):
    """The product beside one projection with this `weight` (O, I)."""

    def __init__(self, settings: LoRA, weight: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.scale, self.rate = settings.scale, settings.dropout
        first = torch.empty(settings.rank, inputs, device="cpu")
        nn.init.kaiming_uniform_(first, a=math.sqrt(5), generator=generator)
        self.A = nn.Parameter(first.to(weight))
        self.B = nn.Parameter(weight.new_zeros(outputs, settings.rank))

    def place(self, module: nn.Module) -> RemovableHandle:
        return module.register_forward_hook(self._add)

    def _add(
        self, module: nn.Module, inputs: tuple[Float[Tensor, "*any I"]], out: Tensor
    ) -> Float[Tensor, "*any O"]:
        narrow = linear(dropout(inputs[0], self.rate, self.training), self.A, None)  # *any, rank
        return out + linear(narrow * self.scale, self.B, None)

    def folded(self, module: nn.Module) -> dict[str, Tensor]:
        weight = module.get_parameter("weight")
        # In float32 at least, and rounded once, however narrow the weights are.
        wide = torch.promote_types(weight.dtype, torch.float32)
        product = self.scale * (self.B.to(wide) @ self.A.to(wide))
        return {"weight": (weight.to(wide) + product).to(weight.dtype)}
