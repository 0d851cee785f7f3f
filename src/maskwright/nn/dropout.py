"""Dropout that does not wait for its random numbers.

PyTorch's CPU kernel draws one number per element, alone on one thread, and multiplies by what it
drew. Here one 64-bit draw of a small generator serves four elements, each compared as a 15-bit
number, and what is dropped is cleared by an integer `and` over the bits of the floats, several
times faster than a comparison with its mask of booleans (docs/log.md). The probability of keeping
an element is therefore exact to 2^-15, and the scale is the reciprocal of that rounded probability,
so that the expectation is exact. Each call seeds its generator with one draw of PyTorch's default
generator, which the training loop seeds per microbatch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

LEVELS = 1 << 15
_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def keep_levels(rate: float) -> int:
    """Of 32,768 equally likely draws, how many keep an element; at least one."""
    return max(1, LEVELS - round(rate * LEVELS))


def keep_bits(shape: torch.Size, rate: float) -> Int[Tensor, "*shape"]:
    """int16 on the CPU: all bits set (-1) with probability `keep_levels(rate) / 32768`, else 0,
    independently."""
    count = shape.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.SFC64(seed).random_raw((count + 3) // 4)
    levels = torch.from_numpy(draws.view(np.int16)[:count]).view(shape)
    # -16384 … 16383; the second shift copies the sign of (level - first dropped) into every bit.
    first_dropped = keep_levels(rate) - LEVELS // 2
    return levels.bitwise_right_shift_(1).sub_(first_dropped).bitwise_right_shift_(15)


class _Clear(torch.autograd.Function):
    """Dropout without its scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_bits(x.shape, rate)
        ctx.save_for_backward(keep)
        return _kept(x, keep)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _kept(gradients[0], keep), None


def _kept(x: Tensor, keep: Tensor) -> Tensor:
    whole = _WHOLE[x.itemsize]
    return (x.contiguous().view(whole) & keep.to(whole)).view(x.dtype)


def _scale(rate: float) -> float:
    return LEVELS / keep_levels(rate)


def dropout(x: Float[Tensor, "*shape"], rate: float, training: bool) -> Float[Tensor, "*shape"]:
    """Zero each element with probability `rate` and scale the others (arXiv:1207.0580)."""
    if not training or rate == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    return _Clear.apply(x, rate).mul_(_scale(rate))


def add_dropped(
    x: Float[Tensor, "*shape"], branch: Float[Tensor, "*shape"], rate: float, training: bool
) -> Float[Tensor, "*shape"]:
    """`x + dropout(branch)`, with one pass over memory less."""
    if not training or rate == 0.0:
        return x + branch
    if x.device.type != "cpu":
        return x + F.dropout(branch, rate)
    return torch.add(x, _Clear.apply(branch, rate), alpha=_scale(rate))


def dropped_product(
    weights: Float[Tensor, "N Q K"], values: Float[Tensor, "N K W"], rate: float
) -> Float[Tensor, "N Q W"]:
    """`dropout(weights) @ values`; the scale goes to the narrower side of the product."""
    if rate == 0.0:
        return torch.bmm(weights, values)
    if weights.device.type != "cpu":
        return torch.bmm(F.dropout(weights, rate), values)
    return torch.bmm(_Clear.apply(weights, rate), values * _scale(rate))
