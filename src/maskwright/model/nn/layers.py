"""The small parts of a block: feed-forward layer, normalisation, positions.

The feed-forward layer is the position-wise half of a block:

    plain   down(drop(activation(up(x))))
    gated   down(drop(activation(gate(x)) * up(x)))       GeGLU and its like, arXiv:2002.05202

Root-mean-square normalisation takes its mean of squares in float32 whatever comes in, because it
overflows half precision (arXiv:1910.07467). On CPUs PyTorch has no kernel for it and goes over the
activations a dozen times; here it is three times forward and six back, the derivative written out
(docs/log.md). Under `kernels.plain()` it is PyTorch's.

Positions enter as sines and cosines, rotary angles or buckets of distance. Learned tables are
parameters and are in `stack.py`. Nothing here is a buffer of a module: tables are functions of the
config, made on the device that asks, so that a model can be built on the meta device and filled
later.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.model.nn.config import Activation, FeedForward, Norm, Relative, Rotary
from maskwright.model.nn.kernels import is_plain
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.kernels.linear import Linear, linear


# ------------------------------------------------------------------------------ feed-forward
def _gelu_new(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# "gelu" is the exact form with the error function, "gelu_new" its approximation by a tanh.
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _gelu_new,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForwardModule(nn.Module):
    """Two linear layers with an activation between them; a third one as a gate if `gated`.

    Args:
        config: inner width, activation, gate, biases, dropout rate.
        width: width of the model, that of input and output.
    """

    def __init__(self, config: FeedForward, width: int) -> None:
        super().__init__()
        self.config = config
        self.up = Linear(width, config.width, bias=config.bias)
        self.gate = Linear(width, config.width, bias=config.bias) if config.gated else None
        self.down = Linear(config.width, width, bias=config.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        activation = ACTIVATIONS[self.config.activation]
        hooked = self.up._forward_hooks or self.up._forward_pre_hooks  # an adapter's, for example
        if self.config.activation == "relu" and self.gate is None and not hooked:
            inner = linear(x, self.up.weight, self.up.bias, rectified=True)
        elif self.gate is None:
            inner = activation(self.up(x))  # B, T, F
        else:
            inner = activation(self.gate(x)) * self.up(x)
        return self.down(dropout(inner, self.config.dropout, self.training))


# ------------------------------------------------------------------------------ norm
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


# ------------------------------------------------------------------------------ positions
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
