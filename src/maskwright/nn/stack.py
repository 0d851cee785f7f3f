"""A stack: embeddings, blocks in order, perhaps a final norm and dropout.

Here the config's pattern meets the batch's facts: one `AttentionContext` per distinct (pattern,
window, positions) among the blocks, made once per forward. Layers that share weights
(`weights_of`) share one module, kept under the index of the layer that owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.errors import ConfigError
from maskwright.nn.attention import AttentionContext
from maskwright.nn.block import Block
from maskwright.nn.cache import KVCache
from maskwright.nn.config import Attention as AttentionConfig
from maskwright.nn.config import Relative, Rotary
from maskwright.nn.config import Stack as StackConfig
from maskwright.nn.embeddings import Embeddings
from maskwright.nn.kernels.dropout import dropout
from maskwright.nn.mask import AttentionMask, bidirectional, pattern
from maskwright.nn.mask import prefix as prefix_of
from maskwright.nn.meta_init import Table
from maskwright.nn.norm import Norm
from maskwright.nn.positions import relative_buckets, rotary_table
from maskwright.nn.selection import Selection


@dataclass
class Trace:
    """What an explorer or a parity test wants to see of a forward.

    Attributes:
        hidden: the embeddings' output and each layer's; the last one after the final norm.
        weights: attention weights (B, H, Q, K), layer by layer.
        cross_weights: the same, of cross-attention.
    """

    hidden: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    cross_weights: list[Tensor] = field(default_factory=list)


class Stack(nn.Module):
    """Embeddings, blocks and final norm of one side of a model."""

    def __init__(self, config: StackConfig, token_width: int, width: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config.embeddings, token_width, width)
        self.blocks = nn.ModuleDict(
            {str(i): Block(config.blocks[i], width) for i in sorted(set(config.weights_of))}
        )
        self.relative: nn.Embedding | None = None
        relative = {
            (b.attention.positions, b.attention.heads)
            for b in config.blocks
            if isinstance(b.attention.positions, Relative)
        }
        if len(relative) > 1:
            raise ConfigError(
                "the layers of a stack share one table of distances",
                where="stack.blocks.attention.positions",
                found=f"{len(relative)} different ones",
            )
        for table, heads in relative:
            assert isinstance(table, Relative)
            self.relative = Table(table.buckets, heads)
        self.final_norm = Norm(config.blocks[-1].norm, width) if config.final_norm else None

    def forward(
        self,
        vectors: Float[Tensor, "B T E"],
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_visible: AttentionMask | None = None,
        cache: KVCache | None = None,
        trace: Trace | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """Hidden states of all positions, or with `at` of these flat ones (b*T + t) alone."""
        start = 0 if cache is None else cache.length
        x = self.embeddings(vectors, positions, segments, start)
        count = x.shape[1]
        sights: dict[tuple[object, ...], AttentionContext] = {}
        memory_context = None
        if memory is not None:
            facts = bidirectional if memory_visible is None else memory_visible
            mask_at_size = facts.draw(count, memory.shape[1], start=start, device=x.device)
            memory_context = AttentionContext(
                mask_at_size, weights=None if trace is None else trace.cross_weights
            )
        selection = None
        if at is not None and trace is None and cache is None:
            selection = Selection.of(at, len(x), count)
        last = len(self.config.weights_of) - 1
        for layer, source in enumerate(self.config.weights_of):
            attention = self.config.blocks[layer].attention
            kind = (attention.pattern, attention.window, attention.positions, attention.head_width)
            if kind not in sights:
                sights[kind] = self._sight(attention, visible, prefix, positions, start, x, trace)
            if trace is not None:
                trace.hidden.append(x)
            x = self.blocks[str(source)](
                x,
                sights[kind],
                memory=memory,
                memory_context=memory_context,
                cache=cache,
                layer=layer,
                selection=selection if layer == last else None,
            )
        if cache is not None:
            cache.advance(count)
        x = x if self.final_norm is None else self.final_norm(x)
        x = dropout(x, self.config.final_dropout, self.training)
        if trace is not None:
            trace.hidden.append(x)
        if selection is not None:
            return selection.pick(x)
        return x if at is None else x.reshape(-1, x.shape[-1]).index_select(0, at)

    def _sight(
        self,
        attention: AttentionConfig,
        visible: AttentionMask | None,
        prefix: Tensor | None,
        positions: Tensor | None,
        start: int,
        x: Tensor,
        trace: Trace | None,
    ) -> AttentionContext:
        mask = pattern(attention.pattern, attention.window)
        if prefix is not None:
            mask = mask | prefix_of(prefix)
        if visible is not None:
            mask = mask & visible
        count = x.shape[1]
        context = AttentionContext(
            mask.draw(count, start + count, start=start, device=x.device),
            weights=None if trace is None else trace.weights,
        )
        if isinstance(attention.positions, Rotary):
            if positions is None:
                positions = torch.arange(start, start + count, device=x.device)[None]
            context.rotary = rotary_table(attention.positions, positions, attention.head_width)
        if isinstance(attention.positions, Relative):
            context.distance = self._distance(attention, start, count, x.device)
        return context

    def _distance(
        self, attention: AttentionConfig, start: int, count: int, device: torch.device
    ) -> Float[Tensor, "1 H Q K"]:
        assert self.relative is not None and isinstance(attention.positions, Relative)
        both_ways = attention.pattern == "bidirectional"
        buckets = relative_buckets(
            attention.positions, count, start + count, start, both_ways, device
        )
        # Adding a tensor that is laid out otherwise than the scores is several times slower.
        return self.relative(buckets).permute(2, 0, 1).contiguous()[None]
