"""A stack: embeddings, blocks in order, perhaps a final norm and dropout.

Here the config's pattern meets the batch's facts: one `AttentionContext` per distinct (pattern,
window, positions) among the blocks, made once per forward. Layers that share weights
(`weights_of`) share one module, kept under the index of the layer that owns it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from maskwright.base.errors import ConfigError, DataError
from maskwright.model.nn.attention import (
    AttentionContext,
    AttentionModule,
    GlobalRows,
    PastKeys,
    places_of,
)
from maskwright.model.nn.block_sparse import BlockSight
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    Learned,
    Recurrent,
    Relative,
    Rotary,
    Sinusoidal,
    Stack,
    layer_widths,
)
from maskwright.model.nn.kernels.dropout import add_dropped, dropout
from maskwright.model.nn.kernels.linear import Linear
from maskwright.model.nn.layers import (
    FeedForwardModule,
    NormModule,
    relative_buckets,
    rotary_table,
    sinusoids,
)
from maskwright.model.nn.mask import AttentionMask, bidirectional, pattern
from maskwright.model.nn.mask import prefix as prefix_of
from maskwright.model.nn.recurrent import RecurrentModule, Steps, locked_dropout

# From this share of the positions on, choosing costs more than it saves.
WORTH = 0.75
# Products are compiled for every size that they meet on some machines (linear.py): few sizes.
STEP = 8


class EmbeddingTable(nn.Embedding):
    """`torch.nn.Embedding`; on the meta device, where a model has shapes alone, nothing is drawn:
    PyTorch would load its compiler for that, which takes seconds at the start of every command that
    builds or loads a model."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


@dataclass(frozen=True)
class Selection:
    """Positions in rows of equal width.

    Attributes:
        positions: in each row, ascending only if `at` was; a row with fewer repeats its position 0.
        back: where each position of `at` stands among the `positions`, flattened.
    """

    positions: Int[Tensor, "B Q"]
    back: Int[Tensor, " N"]

    @classmethod
    def of(cls, at: Int[Tensor, " N"], rows: int, length: int) -> Selection | None:
        """The positions `at` of a batch (`rows`, `length`); None if computing all is as fast."""
        if len(at) >= WORTH * rows * length:
            return None
        row = at // length
        counts = torch.bincount(row, minlength=rows)
        width = -(-max(1, int(counts.max())) // STEP) * STEP
        if width >= WORTH * length:
            return None
        order = row.argsort(stable=True)
        sorted_row = row[order]
        slot = torch.arange(len(at), device=at.device) - (counts.cumsum(0) - counts)[sorted_row]
        back = torch.empty_like(at)
        back[order] = sorted_row * width + slot
        flat_positions = at.new_zeros(rows * width)
        flat_positions[back] = at % length
        return cls(flat_positions.view(rows, width), back)

    def take(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B Q D"]:
        """What stands at the positions."""
        rows, length, width = x.shape
        row_begins = torch.arange(rows, device=x.device)[:, None] * length
        flat = x.reshape(-1, width).index_select(0, (self.positions + row_begins).reshape(-1))
        return flat.view(rows, -1, width)

    def pick(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "N D"]:
        """What was computed at the positions, in the order of `at`."""
        return x.reshape(-1, x.shape[-1]).index_select(0, self.back)


class EmbeddingsModule(nn.Module):
    """Adds positions and segments to token vectors, then norm, dropout and projection.

    The token table belongs to the model (two stacks share it); everything here to one stack.

    Args:
        config: the kind of positions, the number of segments, the norm, the dropout rate.
        token_width: width of the token vectors that come in.
        width: width of the model; a projection is added where it differs.
    """

    def __init__(self, config: Embeddings, token_width: int, width: int) -> None:
        super().__init__()
        self.config = config
        positions = config.positions
        self.position = None
        if isinstance(positions, Learned):
            self.position = EmbeddingTable(positions.length + positions.offset, token_width)
        self.segment = EmbeddingTable(config.segments, token_width) if config.segments else None
        self.norm = NormModule(config.norm, token_width) if config.norm is not None else None
        inputs = token_width * (1 + config.twice)
        self.project = Linear(inputs, width) if inputs != width else None

    def forward(
        self,
        vectors: Float[Tensor, "B T E"],
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        start: int = 0,
    ) -> Float[Tensor, "B T D"]:
        """
        Args:
            vectors: rows of the token table.
            positions: counted from 0 in each document; None: start, start + 1, …
            segments: sentence A or B; None: all A.
            start: where the first position stands when `positions` is None.
        """
        x = vectors * vectors.shape[-1] ** 0.5 if self.config.scaled else vectors
        if self.config.positions is not None:
            x = x + self._position_vectors(vectors, positions, start)
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        if self.norm is not None:
            x = self.norm(x)
        drop = locked_dropout if self.config.locked else dropout
        x = drop(x, self.config.dropout, self.training)
        x = torch.cat([x, x], -1) if self.config.twice else x
        return x if self.project is None else self.project(x)

    def _position_vectors(self, vectors: Tensor, positions: Tensor | None, start: int) -> Tensor:
        config = self.config.positions
        assert config is not None
        count = vectors.shape[1]
        if positions is None:
            last_position = start + count - 1
        else:
            # Elsewhere than on the CPU, reading the largest position would make the device wait;
            # while a program is exported there is none.
            on_cpu = positions.device.type == "cpu" and not torch.compiler.is_exporting()
            last_position = int(positions.max()) if on_cpu and positions.numel() else 0
        if last_position >= config.length:
            raise DataError(
                "a position lies beyond the model's table of positions",
                where=f"position {last_position}",
                found=f"{last_position + 1} positions",
                wanted=f"at most {config.length}",
                do="cut the text, or train a model with a longer block",
            )
        if isinstance(config, Sinusoidal):
            table = sinusoids(config.length, vectors.shape[2], vectors.dtype, vectors.device)
            return table[start : start + count] if positions is None else table[positions]
        assert self.position is not None and isinstance(config, Learned)
        if positions is None:
            begin = start + config.offset
            return self.position.weight[begin : begin + count]
        return self.position(positions + config.offset if config.offset else positions)


class BlockModule(nn.Module):
    """Self-attention, perhaps cross-attention, and the feed-forward half."""

    def __init__(self, config: Block, width: int) -> None:
        super().__init__()
        self.config = config
        self.attention = AttentionModule(config.attention, width)
        self.attention_norm = NormModule(config.norm, width) if config.attention_norm else None
        if config.cross_attention is not None:
            self.cross_attention = AttentionModule(config.cross_attention, width)
            self.cross_attention_norm = NormModule(config.norm, width)
        self.feed_forward = FeedForwardModule(config.feed_forward, width)
        self.feed_forward_norm = NormModule(config.norm, width)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: AttentionContext,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_context: AttentionContext | None = None,
        cache: PastKeys | None = None,
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
            take, selected_context = selection.take, context.of_queries(selection.positions)
            x = self._branch(
                x,
                self.attention_norm,
                lambda h: self.attention(take(h), selected_context, memory=h, layer=layer),
                residual_of=take,
            )
            if memory_context is not None:
                memory_context = memory_context.of_queries(selection.positions)
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
        norm: NormModule | None,
        sublayer: Callable[[Tensor], Tensor],
        residual_of: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Tensor:
        """Return `residual_of(x) + dropout(sublayer(x))`, with the norm before or after it."""
        before = norm if self.config.placement == "pre" else None
        after = norm if self.config.placement == "post" else None
        out = sublayer(x if before is None else before(x))
        x = add_dropped(residual_of(x), out, self.config.dropout, self.training)
        return x if after is None else after(x)


class LayerMix(nn.Module):
    """`scale * sum_j softmax(weights)_j * h_j` over the embeddings' output and that of each layer,
    the last one after the final norm (Peters et al. 2018, equation 1)."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, states: list[Float[Tensor, "B T D"]]) -> Float[Tensor, "B T D"]:
        shares = self.weights.softmax(0).unbind()
        mixed = shares[0] * states[0]
        for share, state in zip(shares[1:], states[1:], strict=True):
            mixed = mixed + share * state
        return (self.scale * mixed).to(states[0].dtype)


@dataclass
class Trace:
    """What an explorer or a parity test wants to see of a forward.

    Attributes:
        hidden: the embeddings' output and each layer's; the last one after the final norm, and a
            mix of all where the head reads one.
        weights: attention weights (B, H, Q, K), layer by layer.
        cross_weights: the same, of cross-attention.
    """

    hidden: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    cross_weights: list[Tensor] = field(default_factory=list)


class PreparedLayers(NamedTuple):
    """What computes the layers of a stack in another way (`inference/prepared.py`), in its own
    `dtype`; `apply` has the arguments of `BlockModule.forward`."""

    dtype: torch.dtype
    apply: Callable[..., Tensor]
    final_norm: Callable[[Tensor], Tensor] | None


class StackModule(nn.Module):
    """Embeddings, blocks and final norm of one side of a model."""

    def __init__(self, config: Stack, token_width: int, width: int) -> None:
        super().__init__()
        self.config = config
        self.embeddings = EmbeddingsModule(config.embeddings, token_width, width)
        widths = layer_widths(config, width)
        self.blocks = nn.ModuleDict(
            {
                str(i): RecurrentModule(block, widths[i])
                if isinstance(block := config.blocks[i], Recurrent)
                else BlockModule(block, width)
                for i in sorted(set(config.weights_of))
            }
        )
        self.relative: nn.Embedding | None = None
        relative = {
            (b.attention.positions, b.attention.heads)
            for b in config.attention_blocks
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
            self.relative = EmbeddingTable(table.buckets, heads)
        self.final_norm = None
        if config.final_norm:
            self.final_norm = NormModule(config.attention_blocks[-1].norm, width)
        # The head's that reads a mix of layers: in a tuple, for its weights belong to the head.
        self.mixed_by: tuple[LayerMix, ...] = ()
        self.recomputed = False

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
        cache: PastKeys | None = None,
        trace: Trace | None = None,
        at: Int[Tensor, " N"] | None = None,
        global_tokens: Bool[Tensor, "B T"] | None = None,
        prepared: PreparedLayers | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """Hidden states of all positions, or with `at` of these flat ones (b*T + t) alone; with
        `prepared`, computed by these layers in place of the stack's own."""
        start = 0 if cache is None else cache.length
        final_norm: Callable[[Tensor], Tensor] | None = self.final_norm
        x = self.embeddings(vectors, positions, segments, start)
        if prepared is not None:
            x, final_norm = x.to(prepared.dtype), prepared.final_norm
        count = x.shape[1]
        sights: dict[tuple[object, ...], AttentionContext] = {}
        memory_context = None
        if memory is not None:
            facts = bidirectional if memory_visible is None else memory_visible
            mask_at_size = facts.draw(count, memory.shape[1], start=start, device=x.device)
            memory_context = AttentionContext(
                mask_at_size, weights=None if trace is None else trace.cross_weights
            )
        selection, states = None, list[Tensor]()
        last_layer = len(self.config.weights_of) - 1
        has_last = bool(self.config.attention_blocks) and not self.mixed_by
        steps: list[Steps] = []
        if at is not None and trace is None and cache is None and has_last:
            selection = Selection.of(at, len(x), count)
        for layer, source in enumerate(self.config.weights_of):
            if trace is not None:
                trace.hidden.append(x)
            states += [x] if self.mixed_by else []
            block = self.config.blocks[layer]
            if isinstance(block, Recurrent):
                for backward in (False, True)[len(steps) : block.directions]:
                    facts = bidirectional if visible is None else visible
                    steps.append(Steps.of(facts, (len(x), count), backward, x))
                x = self._compute(self.blocks[str(source)], x, steps)
                continue
            attention = block.attention
            kind = attention.view(self.training, count)
            if kind not in sights:
                sights[kind] = self._sight(
                    attention, visible, prefix, positions, start, x, trace, global_tokens
                )
            x = self._compute(
                self.blocks[str(source)] if prepared is None else prepared.apply,
                x,
                sights[kind],
                memory=memory,
                memory_context=memory_context,
                cache=cache,
                layer=layer,
                selection=selection if layer == last_layer else None,
            )
        x = final_norm(x) if final_norm is not None else x
        x = dropout(x, self.config.final_dropout, self.training)
        for mix in self.mixed_by:
            x = mix([*states, x])
        if trace is not None:
            trace.hidden.append(x)
        if selection is not None:
            return selection.pick(x)
        return x if at is None else x.reshape(-1, x.shape[-1]).index_select(0, at)

    def _compute(self, block: Callable[..., Tensor], *inputs: Any, **keywords: Any) -> Tensor:
        if self.recomputed and self.training and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False, **keywords)
        return block(*inputs, **keywords)

    def _sight(
        self,
        attention: Attention,
        visible: AttentionMask | None,
        prefix: Tensor | None,
        positions: Tensor | None,
        start: int,
        x: Tensor,
        trace: Trace | None,
        global_tokens: Tensor | None = None,
    ) -> AttentionContext:
        marked = None if attention.global_tokens is None else global_tokens
        if marked is not None and visible is not None:  # padding is no token
            row, position = (torch.arange(size, device=x.device) for size in marked.shape)
            marked = marked & visible.rule(row[:, None], position[None], position[None])
        mask = pattern(attention.pattern, attention.window, marked)
        blocks = self._blocks(attention, visible, positions, x)
        mask = mask if blocks is None else blocks.mask
        if prefix is not None:
            mask = mask | prefix_of(prefix)
        if visible is not None:
            mask = mask & visible
        count = x.shape[1]
        context = AttentionContext(
            mask.draw(count, start + count, start=start, device=x.device),
            weights=None if trace is None else trace.weights,
        )
        if blocks is not None:
            by_documents = visible is None or visible.by_documents
            if by_documents and trace is None and not torch.compiler.is_exporting():
                context.blocks = blocks
            else:
                context.distance = blocks.log_counts
        if marked is not None:
            in_all_rows = torch.compiler.is_exporting() or trace is not None
            global_places = None if in_all_rows else places_of(marked)
            if in_all_rows or global_places is not None:
                facts = bidirectional if visible is None else visible
                everywhere = AttentionContext(
                    facts.draw(count, device=x.device), weights=context.weights
                )
                context.global_rows = GlobalRows(marked, global_places, everywhere)
        if isinstance(attention.positions, Rotary):
            if positions is None:
                positions = torch.arange(start, start + count, device=x.device)[None]
            context.rotary = rotary_table(attention.positions, positions, attention.head_width)
        if isinstance(attention.positions, Relative):
            context.distance = self._distance(attention, start, count, x.device)
        return context

    def _blocks(
        self,
        attention: Attention,
        visible: AttentionMask | None,
        positions: Tensor | None,
        x: Tensor,
    ) -> BlockSight | None:
        """The blocks of the texts of this forward; None where all are read in full."""
        config, (rows, count) = attention.blocks, x.shape[:2]
        if config is None or not config.sparse:
            return None
        if not torch.compiler.is_exporting() and not config.splits(count):
            return None
        documents = None if visible is None else visible.documents
        if documents is None:
            documents = torch.ones(rows, count, dtype=torch.long, device=x.device)
            if positions is not None:
                documents = documents * (positions == 0).cumsum(1)
            if visible is not None:  # padding is no token
                row, position = (torch.arange(n, device=x.device) for n in documents.shape)
                documents = documents * visible.rule(row[:, None], position[None], position[None])
        longest = self.config.longest or count
        return BlockSight(config, documents, attention.heads, self.training, longest)

    def _distance(
        self, attention: Attention, start: int, count: int, device: torch.device
    ) -> Float[Tensor, "1 H Q K"]:
        assert self.relative is not None and isinstance(attention.positions, Relative)
        both_ways = attention.pattern == "bidirectional"
        buckets = relative_buckets(
            attention.positions, count, start + count, start, both_ways, device
        )
        # Adding a tensor that is laid out otherwise than the scores is several times slower.
        return self.relative(buckets).permute(2, 0, 1).contiguous()[None]


def recompute_layers(module: nn.Module) -> None:
    """Make the layers of all stacks in `module` keep only their inputs in training. The backward
    pass computes their activations again, from the same random numbers (Chen et al. 2016,
    arXiv:1604.06174)."""
    for stack in module.modules():
        if isinstance(stack, StackModule):
            stack.recomputed = True
