"""A projection, as fast as the machine can do it.

On CPUs a bfloat16 `F.linear` with a bias first spreads the bias over its output and then adds the
product to it; oneDNN's own call adds the bias while it writes, 1.1 to 1.3 times faster with the
same bits, and rectifies while it is at it (docs/log.md). That call has no gradient of its own, so
it is given one here. Where it is not there, or does not fit, and under `kernels.plain()`, the
projection is PyTorch's.

oneDNN also compiles each product of a size that it has not met, for 1 to 10 ms. Where the number of
rows is one of chance, as that of masked tokens is, `spare_rows` keeps the sizes few.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.model.nn.kernels import is_plain


def scaled_product(
    left: Float[Tensor, "N A B"],
    right: Float[Tensor, "N B C"],
    scale: float,
    plus: Float[Tensor, "#N #A #C"] | None = None,
) -> Float[Tensor, "N A C"]:
    """`scale * left @ right + plus`."""
    if plus is not None and plus.requires_grad:
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


def spare_rows(x: Tensor) -> int:
    """The number of zero rows to add to `x` (N, any) so that few sizes occur: at most 32 or 1 in
    16; 0 where nothing is compiled."""
    count = len(x)
    if count == 0 or x.device.type != "cpu" or x.dtype != torch.bfloat16 or is_plain():
        return 0
    return -count % max(32, (1 << count.bit_length()) // 32)


class Linear(nn.Linear):
    """`torch.nn.Linear` in parameters, shapes and results."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:  # shapes alone: there is nothing to draw
            super().reset_parameters()

    def forward(self, x: Float[Tensor, "*any I"]) -> Float[Tensor, "*any O"]:
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*any I"],
    weight: Float[Tensor, "O I"],
    bias: Float[Tensor, " O"] | None,
    rectified: bool = False,
) -> Float[Tensor, "*any O"]:
    """`x @ weight.T + bias`; `rectified`, what is below zero is zero."""
    fits = (
        x.dtype == weight.dtype == torch.bfloat16
        and x.device.type == "cpu"
        and bias is not None
        and bias.dtype == torch.bfloat16
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not is_plain()
        and _has_call()
    )
    if fits:
        return _Linear.apply(x, weight, bias, rectified)
    out = F.linear(x, weight, bias)
    return F.relu(out) if rectified else out


@cache
def _has_call() -> bool:
    """Whether this build of PyTorch has the call, with the results of `F.linear`."""
    x, weight, bias = (torch.ones(n, dtype=torch.bfloat16) for n in ((2, 3), (4, 3), (4,)))
    try:
        expected = F.linear(x, weight, bias)
        return all(torch.equal(_call(x, weight, bias, r), expected) for r in (False, True))
    except (AttributeError, RuntimeError):
        return False


def _call(x: Tensor, weight: Tensor, bias: Tensor, rectified: bool) -> Tensor:
    after = "relu" if rectified else "none"
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rectified: bool) -> Tensor:
        out = _call(x, weight, bias, rectified)
        ctx.save_for_backward(x, weight, out if rectified else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        gradient = gradients[0]
        if out is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        gradient = gradient.reshape(-1, weight.shape[0])
        by_x, by_weight, by_bias, _ = ctx.needs_input_grad
        return (
            (gradient @ weight).view(x.shape) if by_x else None,
            gradient.t() @ x.reshape(-1, weight.shape[1]) if by_weight else None,
            gradient.sum(0) if by_bias else None,
            None,
        )
