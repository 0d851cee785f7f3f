"""Dropout that does not wait for its random numbers.

PyTorch's CPU kernel draws one number per element, alone on one thread, and multiplies by what it
drew. Here one 64-bit draw of a small generator serves eight elements, a byte each, and what is
dropped is cleared by an integer product over the bits of the floats, several times faster than the
product of the floats (docs/log.md). A byte is compared with one of two neighbouring thresholds,
which alternate over 128 columns so that their mean is the rate to 2^-15, from a column that each
call draws anew: every element is kept with exactly that probability, and the scale is its
reciprocal. Each call seeds its generator with one draw of PyTorch's default generator, which the
training loop seeds per microbatch.

On other devices it is PyTorch's: the same probability up to 2^-16, other draws.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int8
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.model.nn.kernels.linear import scaled_product

_VECTOR = 32  # elements of bfloat16 in a vector of 512 bits


def softmax(scores: Float[Tensor, "*any K"]) -> Float[Tensor, "*any K"]:
    """Softmax of the last axis, in the type of `scores`."""
    slow = scores.dtype == torch.bfloat16 and scores.shape[-1] % _VECTOR != 0
    if slow and scores.device.type == "cpu":
        return _Widened.apply(scores)
    return torch.softmax(scores, -1)


class _Widened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        out = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradients[0], out, -1, out.dtype)


COLUMNS = 128
LEVELS = 256 * COLUMNS
_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def keep_levels(rate: float) -> int:
    """Of 32,768 equally likely draws, how many keep an element; at least one of 256."""
    return max(COLUMNS, LEVELS - round(rate * LEVELS))


@functools.cache
def _thresholds(rate: float) -> Int8[Tensor, 256]:
    """The least byte that keeps an element, for two rounds of the columns."""
    quotient, remainder = divmod(LEVELS - keep_levels(rate), COLUMNS)
    higher = (
        torch.arange(2 * COLUMNS) * remainder % COLUMNS < remainder
    )  # `rest` of each round, spread out
    return (higher + (quotient - 128)).to(torch.int8)


def keep_mask(shape: torch.Size, rate: float) -> Bool[Tensor, "*shape"]:
    """On the CPU: true with probability `keep_levels(rate) / 32768`."""
    count = shape.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.SFC64(seed).random_raw(-(-count // COLUMNS) * (COLUMNS // 8))
    columns = torch.from_numpy(draws.view(np.int8)).view(-1, COLUMNS)
    offset = seed % COLUMNS
    return (columns >= _thresholds(rate)[offset : offset + COLUMNS]).view(-1)[:count].view(shape)


class _Clear(torch.autograd.Function):
    """Dropout without its scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_mask(x.shape, rate)
        ctx.save_for_backward(keep)
        return _kept(x, keep)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _kept(gradients[0], keep), None


def _kept(x: Tensor, keep: Tensor) -> Tensor:
    return (x.contiguous().view(_WHOLE[x.itemsize]) * keep).view(x.dtype)


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
    """`dropout(weights) @ values`; the scale goes into the product."""
    if rate == 0.0:
        return torch.bmm(weights, values)
    if weights.device.type != "cpu":
        return torch.bmm(F.dropout(weights, rate), values)
    return scaled_product(_Clear.apply(weights, rate), values, _scale(rate))
