"""One layer. Each half is a branch beside the residual, with its norm before or after:

pre    x + drop(f(norm(x)))           f is self-attention, then (with a memory)
post   norm(x + drop(f(x)))           cross-attention, then the feed-forward half
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from maskwright.nn.attention import Attention, AttentionContext
from maskwright.nn.cache import KVCache
from maskwright.nn.config import Block as BlockConfig
from maskwright.nn.feed_forward import FeedForward
from maskwright.nn.kernels.dropout import add_dropped
from maskwright.nn.norm import Norm
from maskwright.nn.selection import Selection


class Block(nn.Module):
    """Self-attention, perhaps cross-attention, and the feed-forward half."""

    def __init__(self, config: BlockConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.attention = Attention(config.attention, width)
        self.attention_norm = Norm(config.norm, width) if config.attention_norm else None
        if config.cross_attention is not None:
            self.cross_attention = Attention(config.cross_attention, width)
            self.cross_attention_norm = Norm(config.norm, width)
        self.feed_forward = FeedForward(config.feed_forward, width)
        self.feed_forward_norm = Norm(config.norm, width)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: AttentionContext,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_context: AttentionContext | None = None,
        cache: KVCache | None = None,
        layer: int = 0,
        selection: Selection | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """
        Args:
            selection: where the layer's states are wanted; None: at all positions (Q = T).
        """
        if selection is None:
            x = self._branch(
                x,
                self.attention_norm,
                lambda h: self.attention(h, context, cache=cache, layer=layer),
            )
        else:
            take, some = selection.take, context.of_queries(selection.places)
            x = self._branch(
                x,
                self.attention_norm,
                lambda h: self.attention(take(h), some, memory=h, layer=layer),
                beside=take,
            )
            if memory_context is not None:
                memory_context = memory_context.of_queries(selection.places)
        if memory is not None and memory_context is not None:
            x = self._branch(
                x,
                self.cross_attention_norm,
                lambda h: self.cross_attention(
                    h, memory_context, memory=memory, cache=cache, layer=layer
                ),
            )
        return self._branch(x, self.feed_forward_norm, self.feed_forward)

    def _branch(
        self,
        x: Tensor,
        norm: Norm | None,
        f: Callable[[Tensor], Tensor],
        beside: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Tensor:
        """`beside` is what the residual is of `x`."""
        before = norm if self.config.placement == "pre" else None
        after = norm if self.config.placement == "post" else None
        out = f(x if before is None else before(x))
        x = add_dropped(beside(x), out, self.config.dropout, self.training)
        return x if after is None else after(x)
