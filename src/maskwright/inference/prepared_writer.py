"""A network that writes, prepared for reading one token after another.

    writer = PreparedWriter(network)                        once
    rows = writer.read(contexts, capacity)                  their hidden states at the end (B, D)
    hidden = rows.step(tokens)                              one token more in each row
    writer.scores(hidden)                                   (B, V)

Weights are copied into the layout that products with few rows want, query, key and value as one
(`nn/kernels/packed.py`); keys and values lie in buffers of a fixed capacity (`nn/cache.py`); those
of an encoder's memory are computed once. Contexts of unequal lengths are aligned at their ends, so
all rows write at the same place; padding is not computed, except for what attention does with it.
Of the last layer only the last position of each context is.

It gives what `Transformer.decode` (or `encode`, for an encoder that reads from left to right)
gives, up to rounding. What adapters do to projections, to the outputs of a block's halves and in
front of keys is kept; `fits` says whether something acts elsewhere, where this path would not see
it.

Letters: B rows, T positions of a context, N real tokens, H heads, W head width, D width, P sources,
S positions of a source, C capacity, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from maskwright.nn import mask
from maskwright.nn.attention import Attention, AttentionContext, Before
from maskwright.nn.block import Block
from maskwright.nn.cache import KVCache
from maskwright.nn.config import Activation, Relative, Rotary
from maskwright.nn.config import Attention as AttentionConfig
from maskwright.nn.feed_forward import ACTIVATIONS, FeedForward
from maskwright.nn.kernels.packed import Packed
from maskwright.nn.norm import Norm
from maskwright.nn.positions import relative_buckets, rotary_table, rotate
from maskwright.nn.stack import Stack
from maskwright.nn.transformer import Transformer

# (N, I) and perhaps a residual (N, O) -> (N, O)
Product = Callable[..., Tensor]


def fits(network: Transformer) -> bool:
    """Whether nothing acts on the network that this path would not see, such as vectors in front of
    what a stack reads."""
    stack = _stack(network)
    before = {m.before is None for m in stack.modules() if isinstance(m, Attention)}
    return len(before) == 1 and not any(
        _hooked(module) if isinstance(module, Stack | Block) else bool(module._forward_pre_hooks)
        for module in stack.modules()
        if isinstance(module, Stack | Block | Attention | FeedForward)
    )


class PreparedWriter:
    """The weights of a network that writes, as they are now.

    Args:
        network: a decoder, a decoder beside an encoder, or an encoder that reads from left to
            right. Its embeddings, norms and hooked projections are used as they are.
        dtype: of products and activations; None: that of the weights. Scores are float32.
    """

    def __init__(self, network: Transformer, dtype: torch.dtype | None = None) -> None:
        self.network = network
        self.own = network.tokens.weight.dtype
        self.dtype = dtype = self.own if dtype is None else dtype
        self.stack = _stack(network)
        self.is_decoder = network.decoder is not None
        with torch.inference_mode():
            layers = {name: _Layer(block, dtype) for name, block in self.stack.blocks.items()}
            self.layers = [layers[str(source)] for source in self.stack.config.weights_of]
            self.vocabulary = Packed(network.head_weight, network.head_bias, dtype=dtype)

    @torch.inference_mode()
    def scores(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """Scores over the vocabulary, in float32."""
        hidden = self.network.head_hidden(hidden.to(self.own))
        return self.vocabulary(hidden.to(self.dtype)).float()

    @torch.inference_mode()
    def memory(
        self, states: Float[Tensor, "P S D"], keep: Bool[Tensor, "P S"], copies: int
    ) -> Memory:
        """What cross-attention reads, for `copies` rows of each source."""
        states, bias = states.to(self.dtype), _bias(keep, self.dtype)
        pairs = [
            layer.cross.of_memory(states, number)
            for number, layer in enumerate(self.layers)
            if layer.cross is not None
        ]
        front = pairs[0][0].shape[2] - states.shape[1]
        return Memory(pairs, bias if bias is None else F.pad(bias, (front, 0)), copies)

    @torch.inference_mode()
    def read(
        self,
        contexts: Sequence[Sequence[int]],
        capacity: int,
        *,
        seen: Sequence[int] | None = None,
        memory: Memory | None = None,
    ) -> tuple[Rows, Float[Tensor, "B D"]]:
        """Read contexts from their beginning: the rows, and their hidden states at the end.

        Args:
            capacity: how many positions a row has room for, those of the longest context included.
            seen: how many first tokens of each context see each other; None: none do.
            memory: of the sources, for a decoder with cross-attention.
        """
        rows = Rows(self, contexts, capacity, seen, memory)
        return rows, rows.read(contexts)


@dataclass
class Memory:
    """Keys and values (P, H, S, W) of the encoder's memory, by layer.

    Attributes:
        bias: (P, 1, 1, S), 0 at real positions, else -inf; None where all are real.
        copies: how many rows in a run share a source.
    """

    pairs: list[tuple[Tensor, Tensor]]
    bias: Tensor | None
    copies: int

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows, whole runs of `copies` that share a source. Where there is but
        one source any number of rows share it."""
        if len(self.pairs[0][0]) == 1:
            return
        sources = [row // self.copies for row in rows[:: self.copies]]
        if sources == list(range(len(self.pairs[0][0]))):
            return
        index = torch.tensor(sources, device=self.pairs[0][0].device)
        self.pairs = [(keys[index], values[index]) for keys, values in self.pairs]
        self.bias = None if self.bias is None else self.bias[index]


@dataclass
class _View:
    """What the layers of one pattern see in one step: keys of the buffer from `first` on."""

    first: int
    bias: Tensor | None
    rotary: tuple[Tensor, Tensor] | None
    causal: bool = False


class Rows:
    """Growing rows of tokens with their keys and values."""

    def __init__(
        self,
        writer: PreparedWriter,
        contexts: Sequence[Sequence[int]],
        capacity: int,
        seen: Sequence[int] | None,
        memory: Memory | None,
    ) -> None:
        self.writer, self.shared = writer, memory
        self.device = writer.network.device
        fronts = [layer.attention.front(len(contexts), n) for n, layer in enumerate(writer.layers)]
        self.front = 0 if fronts[0] is None else fronts[0].shape[3]
        self.cache = KVCache.of_stack(
            writer.stack.config,
            len(contexts),
            self.front + capacity,
            dtype=writer.dtype,
            device=self.device,
        )
        for buffer, front in zip(self.cache.layers, fronts, strict=True):
            if front is not None:
                buffer[:, :, :, : self.front] = front
        self.cache.advance(self.front)
        length = max(map(len, contexts))
        pads = torch.tensor([length - len(context) for context in contexts], device=self.device)
        self.pads: Int[Tensor, " B"] | None = pads if bool(pads.any()) else None
        self.prefix: Int[Tensor, " B"] | None = None
        if seen is not None:
            self.prefix = pads + torch.tensor(seen, device=self.device)
        self._pad_bias: Float[Tensor, "B 1 1 C"] | None = None
        self._distances: dict[bool, Float[Tensor, "1 H 1 C"]] = {}

    @property
    def length(self) -> int:
        """How many positions are read, the prefix of an adapter not counted."""
        return self.cache.length - self.front

    @property
    def capacity(self) -> int:
        """How many there is room for."""
        return self.cache.capacity - self.front

    def keep(self, rows: list[int]) -> None:
        """Row i goes on as row `rows[i]`; there may be fewer than before."""
        if rows == list(range(self.cache.rows)):
            return
        index = torch.tensor(rows, device=self.device)
        self.cache.reorder(index)
        self.pads = None if self.pads is None else self.pads[index]
        self.prefix = None if self.prefix is None else self.prefix[index]
        self._pad_bias = None if self._pad_bias is None else self._pad_bias[index]

    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B D"]:
        """All of the contexts, once."""
        count = max(map(len, contexts))
        tokens = torch.tensor([token for context in contexts for token in context])
        places = torch.tensor([place for context in contexts for place in range(len(context))])
        last = torch.tensor([len(context) for context in contexts]).cumsum(0) - 1
        flat = None
        if self.pads is not None:
            rows = torch.arange(len(contexts)).repeat_interleave(
                torch.tensor([*map(len, contexts)])
            )
            flat = (rows * count + places).to(self.device) + self.pads[rows.to(self.device)]
        positions = places.to(self.device)[None]
        x = self._embedded(tokens[None], positions, 0)[0]
        at = positions[0] if flat is None else _spread(positions[0], flat, len(contexts) * count)
        views = self._views(count, at.view(len(contexts), count))
        return self._through(x, views, count, flat, last.to(self.device))

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Float[Tensor, "B D"]:
        """One token more in each row."""
        ids, start = torch.tensor(tokens)[:, None], self.length
        positions = None
        if self.pads is not None:
            positions = (start - self.pads)[:, None]
        x = self._embedded(ids, positions, start)[:, 0]
        return self._through(x, self._views(1, positions), 1, None, None)

    # ------------------------------------------------------------------------------ the layers
    def _embedded(self, tokens: Tensor, positions: Tensor | None, start: int) -> Tensor:
        network, stack = self.writer.network, self.writer.stack
        vectors = network.token_vectors(tokens.to(self.device))
        return stack.embeddings(vectors, positions, None, start).to(self.writer.dtype)

    def _through(
        self,
        x: Float[Tensor, "N D"],
        views: list[_View],
        count: int,
        flat: Int[Tensor, " N"] | None,
        last: Int[Tensor, " B"] | None,
    ) -> Float[Tensor, "B D"]:
        """
        Args:
            count: positions of each row, padding included.
            flat: where the tokens stand among them (b*T + t); None: they are all.
            last: of the tokens, the last one of each row; None: all are.
        """
        cache, shared = self.cache, self.shared
        end = cache.length + count
        for number, (layer, view) in enumerate(zip(self.writer.layers, views, strict=True)):
            final = last if number == len(views) - 1 else None
            h = layer.before_attention(x)
            mixed = layer.attention(h, cache.layers[number], view, end, count, flat)
            if final is not None:
                x = x[final]
                mixed, flat = mixed.view(cache.rows, count, -1)[:, -1], None
                count = 1
            elif flat is not None:
                mixed = mixed[flat]
            x = layer.after_attention(x, mixed)
            if layer.cross is not None:
                assert shared is not None
                x = layer.across(x, shared, number, cache.rows * count, flat)
            x = layer.feed_forward(x)
        cache.advance(end - cache.length)
        norm = self.writer.stack.final_norm
        return x if norm is None else _normalised(norm, x)

    # ------------------------------------------------------------------------------ what is seen
    def _views(self, count: int, positions: Tensor | None) -> list[_View]:
        made: dict[tuple[object, ...], _View] = {}
        views: list[_View] = []
        for block in self.writer.stack.config.blocks:
            attention = block.attention
            kind = (attention.pattern, attention.window, attention.positions, attention.head_width)
            if kind not in made:
                made[kind] = self._view(attention, count, positions)
            views.append(made[kind])
        return views

    def _view(self, attention: AttentionConfig, count: int, positions: Tensor | None) -> _View:
        start, rotary = self.length, None
        if isinstance(attention.positions, Rotary):
            if positions is None:
                positions = torch.full((1, 1), start, device=self.device)
            rotary = rotary_table(attention.positions, positions, attention.head_width)
        if count == 1 and (attention.window is None or (self.prefix is None and not self.front)):
            first = 0 if attention.window is None else max(0, start - attention.window[0])
            return _View(first, self._step_bias(attention, first, start + 1), rotary)
        drawn = self._mask(attention).draw(count, start + count, start=start, device=self.device)
        if (
            drawn.mask.form == "causal"
            and start == self.front == 0
            and self._relative(attention) is None
        ):
            return _View(0, None, rotary, causal=count > 1)
        bias = drawn.bias(self.writer.dtype)
        if (relative := self._relative(attention)) is not None:
            distance = self._distance(relative, attention, count, start + count)
            bias = distance if bias is None else distance + bias
        return _View(0, bias if bias is None else F.pad(bias, (self.front, 0)), rotary)

    def _relative(self, attention: AttentionConfig) -> Relative | None:
        return attention.positions if isinstance(attention.positions, Relative) else None

    def _mask(self, attention: AttentionConfig) -> mask.AttentionMask:
        """Who sees whom, as `Stack` and `Transformer.encode` have it."""
        limits = mask.pattern(attention.pattern, attention.window)
        order = limits if self.writer.is_decoder else mask.causal
        if self.prefix is not None:
            order = order | mask.prefix(self.prefix)
        if not self.writer.is_decoder:
            order = limits & order
        if self.pads is not None:
            places = torch.arange(self.capacity, device=self.device)
            order = order & mask.real(places[None] >= self.pads[:, None])
        return order

    def _step_bias(self, attention: AttentionConfig, first: int, end: int) -> Tensor | None:
        """(B or 1, H or 1, 1, K) for one query at `end - 1`: distances, and -inf at padding."""
        bias = None
        if self.pads is not None:
            if self._pad_bias is None:
                places = torch.arange(self.capacity, device=self.device)
                self._pad_bias = _bias(places[None] >= self.pads[:, None], self.writer.dtype)
                assert self._pad_bias is not None
                self._pad_bias = F.pad(self._pad_bias, (self.front, 0))
            bias = self._pad_bias[..., first : self.front + end]
        if (relative := self._relative(attention)) is not None:
            both_ways = attention.pattern != "causal"
            if both_ways not in self._distances:
                # Of the last query there is room for: any other's are the end of it.
                self._distances[both_ways] = self._distance(relative, attention, 1, self.capacity)
            distance = self._distances[both_ways][..., self.capacity - end :]
            distance = F.pad(distance, (self.front, 0)) if self.front else distance[..., first:]
            bias = distance if bias is None else bias + distance
        return bias

    def _distance(
        self, relative: Relative, attention: AttentionConfig, queries: int, keys: int
    ) -> Float[Tensor, "1 H Q K"]:
        """The bias of distances, of the last `queries` of as many positions as there are keys."""
        buckets = relative_buckets(
            relative, queries, keys, keys - queries, attention.pattern != "causal", self.device
        )
        assert self.writer.stack.relative is not None
        table = self.writer.stack.relative(buckets).permute(2, 0, 1).contiguous()
        return table[None].to(self.writer.dtype)


class _Layer:
    """One block: its products, and the norms as modules."""

    def __init__(self, block: nn.Module, dtype: torch.dtype) -> None:
        assert isinstance(block, Block)
        self.pre = block.config.placement == "pre"
        self.attention = _SelfAttention(block.attention, dtype)
        self.attention_norm = block.attention_norm
        self.cross: _CrossAttention | None = None
        if block.config.cross_attention is not None:
            self.cross = _CrossAttention(block.cross_attention, dtype)
            self.cross_norm = block.cross_attention_norm
        self.inner = _FeedForward(block.feed_forward, dtype)
        self.inner_norm = block.feed_forward_norm

    def before_attention(self, x: Tensor) -> Tensor:
        return self._before(self.attention_norm, x)

    def after_attention(self, x: Tensor, mixed: Tensor) -> Tensor:
        return self._after(self.attention_norm, self.attention.output(mixed, x))

    def across(
        self, x: Tensor, shared: Memory, number: int, places: int, flat: Tensor | None
    ) -> Tensor:
        assert self.cross is not None
        h = self._before(self.cross_norm, x)
        mixed = self.cross(h, shared.pairs[number], shared.bias, places, flat)
        return self._after(self.cross_norm, self.cross.output(mixed, x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self._after(self.inner_norm, self.inner(self._before(self.inner_norm, x), x))

    def _before(self, norm: Norm | None, x: Tensor) -> Tensor:
        return x if norm is None or not self.pre else _normalised(norm, x)

    def _after(self, norm: Norm | None, x: Tensor) -> Tensor:
        return x if norm is None or self.pre else _normalised(norm, x)


class _SelfAttention:
    def __init__(self, module: Attention, dtype: torch.dtype) -> None:
        self.heads, self.width = module.config.heads, module.config.head_width
        self.scale = _scale(module)
        self.joined = _product([module.query, module.key, module.value], dtype)
        self.output = _changed(module, _product([module.output], dtype))
        self.before = module.before
        self.like = module.query.weight

    def front(self, rows: int, layer: int) -> Float[Tensor, "2 B H P W"] | None:
        """Keys and values that an adapter puts in front of those of the layer."""
        if self.before is None:
            return None
        none = self.like.new_zeros(rows, self.heads, 0, self.width)
        return torch.stack(_with_front(self.before, none, none, layer))

    def __call__(
        self,
        h: Float[Tensor, "N D"],
        buffer: Float[Tensor, "2 B H C W"],
        view: _View,
        end: int,
        count: int,
        flat: Tensor | None,
    ) -> Float[Tensor, "BT HW"]:
        """What each position takes from those before it; its keys and values are written."""
        rows = buffer.shape[1]
        joined = self.joined(h)  # N, 3·H·W
        if flat is not None:
            joined = _spread(joined, flat, rows * count)
        parts = joined.view(rows, count, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        query = parts[0]  # B, H, T, W
        if view.rotary is None:
            buffer[:, :, :, end - count : end] = parts[1:]
        else:
            query = rotate(query, view.rotary)
            buffer[0, :, :, end - count : end] = rotate(parts[1], view.rotary)
            buffer[1, :, :, end - count : end] = parts[2]
        keys, values = buffer[:, :, :, view.first : end].unbind(0)
        out = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=view.bias, is_causal=view.causal, scale=self.scale
        )
        return out.transpose(1, 2).reshape(rows * count, -1)


class _CrossAttention:
    def __init__(self, module: Attention, dtype: torch.dtype) -> None:
        self.heads, self.width = module.config.heads, module.config.head_width
        self.scale = _scale(module)
        self.query = _product([module.query], dtype)
        self.keys_and_values = _product([module.key, module.value], dtype)
        self.output = _changed(module, _product([module.output], dtype))
        self.before = module.before

    def of_memory(self, states: Float[Tensor, "P S D"], layer: int) -> tuple[Tensor, Tensor]:
        sources, length, _ = states.shape
        both = self.keys_and_values(states.reshape(sources * length, -1))
        both = both.view(sources, length, 2, self.heads, self.width).permute(2, 0, 3, 1, 4)
        keys, values = both.contiguous().unbind(0)
        return (
            (keys, values) if self.before is None else _with_front(self.before, keys, values, layer)
        )

    def __call__(
        self,
        h: Float[Tensor, "N D"],
        pair: tuple[Tensor, Tensor],
        bias: Tensor | None,
        places: int,
        flat: Tensor | None,
    ) -> Float[Tensor, "N HW"]:
        """What each position takes from its source; rows that share one are queries of it."""
        query = self.query(h)
        if flat is not None:
            query = _spread(query, flat, places)
        query = query.view(len(pair[0]), -1, self.heads, self.width).transpose(1, 2)
        out = F.scaled_dot_product_attention(query, *pair, attn_mask=bias, scale=self.scale)
        out = out.transpose(1, 2).reshape(places, -1)
        return out if flat is None else out[flat]


class _FeedForward:
    def __init__(self, module: FeedForward, dtype: torch.dtype) -> None:
        activation = module.config.activation
        self.up = _product([module.up], dtype, None if module.gate is not None else activation)
        self.gate = None if module.gate is None else _product([module.gate], dtype, activation)
        self.down = _changed(module, _product([module.down], dtype))

    def __call__(self, h: Float[Tensor, "N D"], x: Float[Tensor, "N D"]) -> Tensor:
        """With the residual `x`."""
        inner = self.up(h)
        if self.gate is not None:
            inner = self.gate(h).mul_(inner)
        out: Tensor = self.down(inner, x)
        return out


# ------------------------------------------------------------------------------ products
def _product(
    modules: Sequence[nn.Linear], dtype: torch.dtype, activation: Activation | None = None
) -> Product:
    """The projections of one input, side by side."""
    if any(_hooked(module) for module in modules):
        return _Called(modules, activation)
    weights: list[Tensor] = [module.weight for module in modules]
    biases: list[Tensor] = [module.bias for module in modules if module.bias is not None]
    assert len(biases) in (0, len(modules))
    return Packed(torch.cat(weights), torch.cat(biases) if biases else None, activation, dtype)


def _changed(module: nn.Module, product: Product) -> Product:
    """The last product of a half of a block, with what acts on the output of that half."""
    if not (hooks := [*module._forward_hooks.values()]):
        return product

    def changed(x: Tensor, residual: Tensor) -> Tensor:
        out = product(x).to(residual.dtype)
        for hook in hooks:
            wide = hook(module, (), out.to(_own(module)))
            out = out if wide is None else wide.to(residual.dtype)
        return out + residual

    return changed


def _with_front(before: Before, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    context = AttentionContext(mask.bidirectional.draw(1, keys.shape[2], device=keys.device))
    keys, values, _ = before(keys, values, context, layer)
    return keys, values


class _Called:
    """Projections that something acts on: the modules themselves, in their own type."""

    def __init__(self, modules: Sequence[nn.Linear], activation: Activation | None) -> None:
        self.modules, self.activation = modules, activation

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        wide = x.to(self.modules[0].weight.dtype)
        out = torch.cat([module(wide) for module in self.modules], -1)
        if self.activation is not None:
            out = ACTIVATIONS[self.activation](out)
        out = out.to(x.dtype)
        return out if residual is None else out + residual


def _normalised(norm: Norm, x: Tensor) -> Tensor:
    """In the norm's own type, back in that of `x`."""
    own = norm.weight.dtype
    out: Tensor = norm(x) if x.dtype == own else norm(x.to(own)).to(x.dtype)
    return out


def _own(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _scale(module: Attention) -> float:
    return module.config.head_width**-0.5 if module.config.scaled else 1.0


def _stack(network: Transformer) -> Stack:
    stack = network.decoder if network.decoder is not None else network.encoder
    assert stack is not None  # every config has one
    return stack


def _spread(x: Tensor, flat: Int[Tensor, " N"], places: int) -> Tensor:
    """Rows of `x` (N, any) at their places, zeros elsewhere."""
    return x.new_zeros(places, *x.shape[1:]).index_copy_(0, flat, x)


def _bias(keep: Bool[Tensor, "B K"], dtype: torch.dtype) -> Float[Tensor, "B 1 1 K"] | None:
    """0 where a key is real, else -inf; None where all are."""
    if bool(keep.all()):
        return None
    bias = torch.zeros(keep.shape, dtype=dtype, device=keep.device)
    return bias.masked_fill_(~keep, float("-inf"))[:, None, None]
