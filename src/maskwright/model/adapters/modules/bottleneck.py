"""The module of a bottleneck, and the modules it acts behind."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.model.adapters.base.adapter import AdapterModule, in_layer
from maskwright.model.adapters.bottleneck import Bottleneck
from maskwright.model.nn.attention import AttentionModule
from maskwright.model.nn.kernels.linear import linear
from maskwright.model.nn.layers import ACTIVATIONS, FeedForwardModule
from maskwright.model.nn.transformer import Transformer

DEVIATION = 0.01  # of `down` at first, cut at two deviations (Houlsby et al., section 3)


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


def branches(
    settings: Bottleneck, model: Transformer, generator: torch.Generator
) -> dict[str, BottleneckModule]:
    """A bottleneck behind each half of a layer that the settings name, by its dotted path."""
    kinds = (
        (FeedForwardModule,)
        if settings.after == "feed_forward"
        else (AttentionModule, FeedForwardModule)
    )
    like, width = model.tokens.weight, model.config.width
    return {
        path: BottleneckModule(settings, width, like, generator)
        for path, module in model.named_modules()
        if isinstance(module, kinds) and in_layer(path)
    }
