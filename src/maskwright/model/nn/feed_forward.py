"""The position-wise half of a block: up, activation, down; gated or not.

plain   down(drop(activation(up(x))))
gated   down(drop(activation(gate(x)) * up(x)))           GeGLU and its like, arXiv:2002.05202
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from maskwright.model.nn.config import Activation, FeedForward
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.kernels.linear import Linear, linear


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
