"""Dropout that does not wait for its random numbers.

PyTorch's CPU kernel draws one number per element, alone on one thread; here one 64-bit draw serves
four elements, each compared as a 16-bit number. The probability of keeping an element is therefore
exact to 2^-16, and the scale is the reciprocal of that rounded probability, so that the expectation
is exact. All draws come from PyTorch's default generator of the device, which the training loop
seeds per microbatch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

LEVELS = 1 << 16


def keep_levels(rate: float) -> int:
    """Of 65,536 equally likely draws, how many keep an element; at least one."""
    return max(1, LEVELS - round(rate * LEVELS))


def keep_mask(shape: torch.Size, rate: float) -> Bool[Tensor, "*shape"]:
    """True with probability `keep_levels(rate) / 65536`, independently, on the CPU."""
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    first = LEVELS // 2 - keep_levels(rate)  # int16 runs from -32768 to 32767
    return (draws.view(torch.int16)[:count] >= first).view(shape)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_mask(x.shape, rate)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / keep_levels(rate)
        return x * _factor(keep, ctx.scale, x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradients[0] * _factor(keep, ctx.scale, gradients[0].dtype), None


def _factor(keep: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    # Two products of floats are faster than one of a float and a boolean.
    return (keep * scale).to(dtype)


def dropout(x: Float[Tensor, "*shape"], rate: float, training: bool) -> Float[Tensor, "*shape"]:
    """Zero each element with probability `rate` and scale the others (arXiv:1207.0580)."""
    if not training or rate == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    return _Drop.apply(x, rate)
