"""Layer normalisation, and root-mean-square normalisation without mean and bias.

The latter takes its mean of squares in float32 whatever comes in, because it overflows half
precision (arXiv:1910.07467). On CPUs PyTorch has no kernel for it and goes over the activations a
dozen times; here it is three times forward and six back, the derivative written out (docs/log.md).
Under `kernels.plain()` it is PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.model.nn.config import Norm
from maskwright.model.nn.kernels import is_plain


class NormModule(nn.Module):
    """`weight * normalised(x) (+ bias)` over the last axis."""

    bias: nn.Parameter | None

    def __init__(self, config: Norm, width: int) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.ones(width))
        has_bias = config.kind == "layer" and config.bias
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)) if has_bias else None)

    def forward(self, x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        if self.config.kind == "layer":
            return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.config.eps)
        if x.device.type != "cpu" or is_plain():
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.config.eps)
        if not torch.is_grad_enabled():
            return _root_mean_square(x, self.weight, self.config.eps)[0]
        return _RootMeanSquare.apply(x, self.weight, self.config.eps)


def _root_mean_square(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    scale = torch.rsqrt(size.square_().div_(x.shape[-1]).add_(eps)).to(x.dtype)
    normalised = x * scale
    return normalised * weight, normalised, scale


class _RootMeanSquare(torch.autograd.Function):
    """`y = weight * h` with `h = x * s` and `s = rsqrt(mean(x^2) + eps)`, row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out, normalised, scale = _root_mean_square(x, weight, eps)
        ctx.save_for_backward(normalised, scale, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        normalised, scale, weight = ctx.saved_tensors
        gradient, width = gradients[0], weight.shape[0]
        products = (gradient * normalised).reshape(-1, width)
        by_weight = products.sum(0) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, by_weight, None
        # What a row's own scale takes back: its mean of gradient * y.
        mean = torch.mv(products, weight).div_(width).view_as(scale)
        by_x = torch.addcmul(gradient * weight, normalised, mean, value=-1)
        return by_x.mul_(scale), by_weight, None
