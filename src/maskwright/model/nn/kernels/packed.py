"""A projection whose weight is laid out once, for many products with few rows.

`F.linear` finds the weight as it lies and, at 2 to 16 rows, spends most of its time on bringing it
into blocks; oneDNN can be given the blocks: 1.0 to 2.5 times faster at one row, 1.5 to 3 at eight
(docs/log.md). Bias, activation and the residual are added while the product is written. But each
call takes 15 microseconds more than `F.linear`, which is as fast at one row where the weight is
small, and is taken there. oneDNN compiles each product anew for every number of rows, and keeps the
last 1,024, of 0.6 MB each: rows of zeros are added up to a few numbers (`sized`). Where the call is
not there, or does not fit, and for weights that are made under `kernels.plain()`, the same is done
by PyTorch's own.

Nothing here has a gradient, and a weight that changes afterwards is not seen.
"""

from __future__ import annotations

import copy
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from maskwright.model.nn.config import Activation
from maskwright.model.nn.feed_forward import ACTIVATIONS
from maskwright.model.nn.kernels import is_plain

# Activations as oneDNN names them: the operation, and which form of it.
FUSED: dict[Activation, tuple[str, str]] = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "tanh": ("tanh", ""),
}


class PackedWeight:
    """`activation(x @ weight.T + bias)`, or `x @ weight.T + bias + residual`.

    Args:
        weight: (O, I); where it is packed, a copy of it is kept.
        bias: (O), or none.
        activation: what the product goes through.
        dtype: what `x`, the weight and the result are in; None: as the weight is.
    """

    def __init__(
        self,
        weight: Float[Tensor, "O I"],
        bias: Float[Tensor, " O"] | None = None,
        activation: Activation | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.activation = activation
        with torch.inference_mode():
            self.weight = weight.detach().to(dtype or weight.dtype)
            self.bias = None if bias is None else bias.detach().to(self.weight.dtype)
            on_cpu = self.weight.device.type == "cpu" and not is_plain()
            self.fits = on_cpu and _packs(self.weight.dtype)
            small = self.weight.dtype == torch.float32 and self.weight.numel() <= SMALL
            self.plain = None if self.fits else self.weight
            if self.fits:
                self.plain = self.weight.clone() if small else None
                self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous())

    def __call__(
        self, x: Float[Tensor, "N I"], residual: Float[Tensor, "N O"] | None = None
    ) -> Float[Tensor, "N O"]:
        if self.plain is not None and (not self.fits or len(x) == 1):
            return _plain(x, self.plain, self.bias, self.activation, residual)
        rows, more = len(x), sized(len(x)) - len(x)
        if not rows:
            return x.new_empty(0, self.weight.shape[0])
        if more:
            x = F.pad(x, (0, 0, 0, more))
            residual = None if residual is None else F.pad(residual, (0, 0, 0, more))
        return _fused(x, self.weight, self.bias, self.activation, residual)[:rows]

    def over(self, bias: Float[Tensor, " O"] | None, activation: Activation | None) -> PackedWeight:
        """The product of the same weight, which is not laid out again."""
        if bias is self.bias and activation == self.activation:
            return self
        product = copy.copy(self)
        product.bias = None if bias is None else bias.detach().to(self.weight.dtype)
        product.activation = activation
        return product

    def dense(self) -> Float[Tensor, "O I"]:
        """The weight as it was given, bit for bit, in the type of the product."""
        return self.weight.to_dense() if self.fits else self.weight


def sized(rows: int) -> int:
    """`rows` rounded up to one of few sizes: all up to 16, then 8 per doubling, multiples of 16
    beyond 512."""
    bits = (rows - 1).bit_length()
    step = 1 << max(0, bits - 4 - (bits > 9))
    return -(-rows // step) * step


def _fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation | None,
    residual: Tensor | None,
) -> Tensor:
    call = torch.ops.mkldnn._linear_pointwise
    if residual is not None:
        assert activation is None
        out: Tensor = call.binary(x, residual, weight, bias, "add")
        return out
    name, form = ("none", "") if activation is None else FUSED[activation]
    out = call(x, weight, bias, name, [], form)
    return out


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation | None,
    residual: Tensor | None,
) -> Tensor:
    out = F.linear(x, weight, bias)
    if residual is not None:
        assert activation is None
        return out + residual
    return out if activation is None else ACTIVATIONS[activation](out)


# Up to so many numbers in a float32 weight, `F.linear` is faster at one row (docs/log.md).
SMALL = 1 << 19


@cache
def _packs(dtype: torch.dtype) -> bool:
    """Whether this build of PyTorch has the calls, with the results of its own up to rounding."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        draw = torch.Generator().manual_seed(0)
        x, weight, bias, residual = (
            torch.randn(shape, generator=draw).to(dtype) for shape in ((2, 6), (4, 6), (4,), (2, 4))
        )
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        kinds: list[tuple[Activation | None, Tensor | None]] = [(None, residual), (None, None)]
        kinds += [(activation, None) for activation in FUSED]
        return all(
            torch.allclose(
                _fused(x, packed, bias, activation, added),
                _plain(x, weight, bias, activation, added),
                rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
                atol=2e-2 if dtype == torch.bfloat16 else 1e-5,
            )
            for activation, added in kinds
        )
    except (AttributeError, RuntimeError):
        return False
