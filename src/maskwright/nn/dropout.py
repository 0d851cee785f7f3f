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
    # 0 … 32767; the shift copies the sign of (last dropped level - level) into every bit.
    last_dropped = LEVELS - keep_levels(rate) - 1
    return levels.bitwise_and_(LEVELS - 1).neg_().add_(last_dropped).bitwise_right_shift_(15)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_bits(x.shape, rate)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / keep_levels(rate)
        return _kept(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _kept(gradients[0], keep, ctx.scale), None


def _kept(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    whole = _WHOLE[x.itemsize]
    return (x.contiguous().view(whole) & keep.to(whole)).view(x.dtype).mul_(scale)


def dropout(x: Float[Tensor, "*shape"], rate: float, training: bool) -> Float[Tensor, "*shape"]:
    """Zero each element with probability `rate` and scale the others (arXiv:1207.0580)."""
    if not training or rate == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    return _Drop.apply(x, rate)
