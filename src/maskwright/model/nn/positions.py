"""Where a position enters: sines and cosines, rotary angles, buckets of distance.

Learned tables are parameters and are in `stack.py`. Nothing here is a buffer of a module:
tables are functions of the config, made on the device that asks, so that a model can be built on
the meta device and filled later.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.model.nn.config import Relative, Rotary
from maskwright.model.nn.kernels import is_plain


@functools.lru_cache(maxsize=16)
def sinusoids(
    length: int, width: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "T E"]:
    """Sines at even and cosines at odd columns, wavelengths 2π to 10000·2π (arXiv:1706.03762)."""
    positions = torch.arange(length, dtype=torch.float32, device=device)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    angle = positions * torch.exp(even * (-math.log(10_000.0) / width))  # T, ceil(E / 2)
    table = torch.empty(length, width, device=device)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table.to(dtype)


def rotary_table(
    config: Rotary, positions: Int[Tensor, "B T"], head_width: int
) -> tuple[Float[Tensor, "B 1 T W"], Float[Tensor, "B 1 T W"]]:
    """Cosines, and sines with the sign of the half they meet, in float32 (arXiv:2104.09864)."""
    even = torch.arange(0, head_width, 2, dtype=torch.int64, device=positions.device).float()
    frequency = 1.0 / (config.theta ** (even / head_width))
    angle = positions[:, None, :, None].float() * frequency  # B, 1, T, W / 2
    cosine, sine = angle.cos(), angle.sin()
    return torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)


def rotate(
    x: Float[Tensor, "B H T W"],
    table: tuple[Float[Tensor, "#B 1 T W"], Float[Tensor, "#B 1 T W"]],
) -> Float[Tensor, "B H T W"]:
    """Rotate pairs (i, i + W/2) by their angle; computed in float32."""
    return _turned(x, *table) if is_plain() else _Rotate.apply(x, *table)


class _Rotate(torch.autograd.Function):
    """The gradient of a rotation is the rotation back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _rotated(x, cosine, sine)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _rotated(gradients[0], cosine, -sine), None, None


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    wide = x.float()
    out = wide * cosine
    near, far = (slice(None, x.shape[-1] // 2), slice(x.shape[-1] // 2, None))
    for half, partner in ((near, far), (far, near)):
        out[..., half].addcmul_(wide[..., partner], sine[..., half])
    return out.to(x.dtype)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The same without writing into parts of a tensor: PyTorch knows its gradient."""
    wide = x.float()
    near, far = wide.chunk(2, -1)
    return (wide * cosine + torch.cat((far, near), -1) * sine).to(x.dtype)


def relative_buckets(
    config: Relative, queries: int, keys: int, start: int, both_ways: bool, device: torch.device
) -> Int[Tensor, "Q K"]:
    """The bucket of each distance key - query (arXiv:1910.10683).

    Half the buckets hold one distance each, the other half grow logarithmically up to
    `max_distance`, and the last one takes all that is further. Where attention looks both ways,
    the upper half of all buckets is for keys after the query.
    """
    query = torch.arange(start, start + queries, device=device)[:, None]
    distance = torch.arange(keys, device=device)[None, :] - query
    buckets, first_bucket = config.buckets, 0 * distance
    if both_ways:
        buckets //= 2
        first_bucket = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    grown = torch.log(distance.float() / exact) / math.log(config.max_distance / exact)
    far = (exact + (grown * (buckets - exact)).clamp(min=0).long()).clamp(max=buckets - 1)
    return first_bucket + torch.where(distance < exact, distance, far)
