"""Softmax over keys, as fast as the machine can do it.

PyTorch's bfloat16 kernel for CPUs takes more than twice the time of its float32 one on rows that
are no whole number of vectors long (docs/log.md). Such rows take the way through float32, which
also rounds once less. Under `kernels.plain()` all rows take PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.nn.kernels import is_plain

_VECTOR = 32  # elements of bfloat16 in a vector of 512 bits


def softmax(scores: Float[Tensor, "*any K"]) -> Float[Tensor, "*any K"]:
    """Softmax of the last axis, in the type of `scores`."""
    slow = scores.dtype == torch.bfloat16 and scores.shape[-1] % _VECTOR != 0
    if slow and scores.device.type == "cpu" and not is_plain():
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
