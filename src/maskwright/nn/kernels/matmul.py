"""A batched matrix product with a factor, which neither direction pays a pass over memory for.

`torch.baddbmm` takes the factor into the product; its gradient multiplies the results by it. Here
the gradient's products take it too. Under `kernels.plain()` it is PyTorch's product and gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.nn.kernels import is_plain


def scaled_product(
    left: Float[Tensor, "N A B"],
    right: Float[Tensor, "N B C"],
    scale: float,
    plus: Float[Tensor, "#N #A #C"] | None = None,
) -> Float[Tensor, "N A C"]:
    """`scale * left @ right + plus`."""
    if plus is None and is_plain():
        return torch.bmm(left, right) * scale
    if plus is not None and (plus.requires_grad or is_plain()):
        return torch.baddbmm(plus, left, right, alpha=scale)
    return _ScaledProduct.apply(left, right, scale, plus)


def _product(left: Tensor, right: Tensor, scale: float, plus: Tensor | None = None) -> Tensor:
    beta = 0 if plus is None else 1
    ground = left.new_empty(1, 1, 1) if plus is None else plus
    return torch.baddbmm(ground, left, right, beta=beta, alpha=scale)


class _ScaledProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, scale: float, plus: Tensor | None) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.scale = scale
        return _product(left, right, scale, plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        (gradient,) = gradients
        by_left, by_right = ctx.needs_input_grad[:2]
        return (
            _product(gradient, right.transpose(1, 2), ctx.scale) if by_left else None,
            _product(left.transpose(1, 2), gradient, ctx.scale) if by_right else None,
            None,
            None,
        )
