"""The modules of a prefix: keys and values in front of those of each attention."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from maskwright.model.adapters.base.adapter import AdapterModule, in_layer
from maskwright.model.adapters.prefix import Prefix
from maskwright.model.nn.attention import AttentionContext, AttentionModule
from maskwright.model.nn.transformer import Transformer

DEVIATION = 0.02  # standard deviation of initial keys and values


def branches(
    settings: Prefix, model: Transformer, generator: torch.Generator
) -> dict[str, PrefixKV]:
    """Return a new prefix for each attention module of the layers, by its dotted path."""
    like = model.tokens.weight
    maker = None
    if settings.hidden is not None:
        maker = PrefixMLP(settings.length, model.config.width, settings.hidden, like, generator)
    prefixes: dict[str, PrefixKV] = {}
    for path, module in model.named_modules():
        if isinstance(module, AttentionModule) and in_layer(path):
            name, _, source, *_ = path.split(".")
            users = model.config.stacks[name].weights_of
            layers = tuple(layer for layer, of in enumerate(users) if of == int(source))
            prefixes[path] = PrefixKV(settings.length, layers, module, maker, like, generator)
    return prefixes


def _drawn(
    shape: tuple[int, ...], deviation: float, like: Tensor, generator: torch.Generator
) -> nn.Parameter:
    values = torch.empty(shape, device="cpu").normal_(0.0, deviation, generator=generator)
    return nn.Parameter(values.to(like))


class PrefixMLP(nn.Module):
    """The table of vectors and the first layer of the reparametrisation, shared by all branches."""

    def __init__(
        self, length: int, width: int, hidden: int, like: Tensor, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.table = _drawn((length, width), 1.0, like, generator)
        self.weight = _drawn((hidden, width), width**-0.5, like, generator)

    def forward(self) -> Float[Tensor, "P hidden"]:
        return (self.table @ self.weight.T).tanh()


class PrefixKV(AdapterModule):
    """The prefix of one attention module: keys and values for each of the `layers` that use it."""

    def __init__(
        self,
        length: int,
        layers: tuple[int, ...],
        attention: AttentionModule,
        maker: PrefixMLP | None,
        like: Tensor,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.length, self.layers = length, layers
        self.heads = attention.config.num_key_heads
        self.head_width = attention.config.head_width
        self.maker = maker
        inner = self.heads * self.head_width
        if maker is None:
            self.prefix = _drawn((len(layers), 2, length, inner), DEVIATION, like, generator)
        else:
            hidden = maker.weight.shape[0]
            deviation = DEVIATION * hidden**-0.5
            self.last = _drawn((len(layers), 2, inner, hidden), deviation, like, generator)

    def place(self, module: nn.Module) -> PrefixHandle:
        assert isinstance(module, AttentionModule)
        return PrefixHandle(module, self)

    def of_layer(self, index: int) -> Float[Tensor, "2 P inner"]:
        """Return the keys and values of the layer at `index`."""
        return self.prefix[index] if self.maker is None else self.maker() @ self.last[index].mT

    def before(
        self, key: Tensor, value: Tensor, context: AttentionContext, layer: int
    ) -> tuple[Tensor, Tensor, AttentionContext]:
        """Return keys and values (B, H, K, W) with the prefix in front, and the adapted context."""
        layer_prefix = self.of_layer(self.layers.index(layer))  # 2, P, H · W
        heads = layer_prefix.view(2, self.length, self.heads, self.head_width).transpose(1, 2)
        front = heads.to(key.dtype)[:, None].expand(2, len(key), -1, -1, -1)  # 2, B, H, P, W
        return (
            torch.cat([front[0], key], 2),
            torch.cat([front[1], value], 2),
            context.with_prefix_keys(self.length),
        )


class PrefixHandle:
    """An attached prefix."""

    def __init__(self, module: AttentionModule, front: PrefixKV) -> None:
        self.module = module
        module.before = front.before

    def remove(self) -> None:
        self.module.before = None
