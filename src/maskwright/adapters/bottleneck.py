"""Bottleneck adapters: down to a few units, an activation, up again, beside a skip connection.

    h + up(activation(down(h)))         h is what half a layer gives to the residual

After each half of a layer, cross-attention's too (Houlsby et al. 2019, arXiv:1902.00751, section
2.1), or only after the feed-forward half (Pfeiffer et al. 2020, arXiv:2005.00247). `up` begins at
zero: the papers begin near the identity, here it is the identity. Norms stay as they are, where
Houlsby et al. train them, too. The adapter stands before the dropout of the residual branch. It
cannot be folded into weights, for what it does is not linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.adapters.parts.adapter import AdapterModule, Settings
from maskwright.adapters.parts.places import in_layer
from maskwright.nn.attention import Attention
from maskwright.nn.config import Activation
from maskwright.nn.feed_forward import ACTIVATIONS, FeedForward
from maskwright.nn.kernels.linear import linear
from maskwright.nn.transformer import Transformer

DEVIATION = 0.01  # of `down` at first, cut at two deviations (Houlsby et al., section 3)


@dataclass(frozen=True, kw_only=True)
class Bottleneck(Settings):
    """`width` units inside; after every half of a layer, or only after the feed-forward half."""

    kind: Literal["bottleneck"] = "bottleneck"
    width: int = 64
    activation: Activation = "gelu"
    after: Literal["both", "feed_forward"] = "both"

    def __post_init__(self) -> None:
        self.require("width", 1 <= self.width <= 1 << 16, "1 to 65,536")

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        kinds = (FeedForward,) if self.after == "feed_forward" else (Attention, FeedForward)
        places = (p for p, m in model.named_modules() if isinstance(m, kinds) and in_layer(p))
        like, width = model.tokens.weight, model.config.width
        return {path: BottleneckModule(self, width, like, generator) for path in places}


SETTINGS = Bottleneck


class BottleneckModule(AdapterModule):
    """The bottleneck behind one half of a layer of this `width`, with the dtype of `like`."""

    def __init__(
        self, settings: Bottleneck, width: int, like: Tensor, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.activation = settings.activation
        down = torch.empty(settings.width, width, device="cpu")
        limit = 2 * DEVIATION
        nn.init.trunc_normal_(down, std=DEVIATION, a=-limit, b=limit, generator=generator)
        self.down = nn.Parameter(down.to(like))
        self.down_bias = nn.Parameter(like.new_zeros(settings.width))
        self.up = nn.Parameter(like.new_zeros(width, settings.width))
        self.up_bias = nn.Parameter(like.new_zeros(width))

    def place(self, module: nn.Module) -> RemovableHandle:
        return module.register_forward_hook(self._add)

    def _add(self, module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
        inner = ACTIVATIONS[self.activation](linear(out, self.down, self.down_bias))  # B, T, width
        return out + linear(inner, self.up, self.up_bias)
