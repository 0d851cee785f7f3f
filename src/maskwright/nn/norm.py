"""Layer normalisation, and root-mean-square normalisation without mean and bias.

The latter computes in float32 whatever comes in, because a mean of squares overflows half precision
(arXiv:1910.07467).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from maskwright.nn.config import Norm as NormConfig


class Norm(nn.Module):
    """`weight * normalised(x) (+ bias)` over the last axis."""

    bias: nn.Parameter | None

    def __init__(self, config: NormConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.ones(width))
        has_bias = config.kind == "layer" and config.bias
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)) if has_bias else None)

    def forward(self, x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        if self.config.kind == "layer":
            return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.config.eps)
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.eps)
        return self.weight * (wide * scale).to(x.dtype)
