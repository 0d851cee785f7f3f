"""Autoregressive decoding with a key/value cache on a prepared network.

    rows = GrowingRows(prepared, contexts, capacity)   cache for `capacity` positions per row
    hidden = rows.read(contexts)                       last hidden state of each context (B, D)
    hidden = rows.step(tokens)                         append one token to each row (B, D)
    prepared.scores(hidden)                            (B, V)

Keys and values are stored in buffers of a fixed capacity (`model/nn/attention.py`); those of the
encoder output are computed once. Contexts of unequal lengths are padded on the left, so that all
rows append at the same index. Padding is computed in attention only, and the last layer is computed
at the last position of each context only.

Results equal those of `Transformer.decode` (or of `encode`, for a causal encoder) up to rounding.

Letters: B rows, T positions of a context, N real tokens, H heads, W head width, D width, P sources,
S positions of a source, C capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from maskwright.model.inference.blocks import PreparedAttention, spread
from maskwright.model.inference.prepared import Prepared
from maskwright.model.inference.scores import hidden
from maskwright.model.inference.shared_layers import mixed_layer, spans_of
from maskwright.model.nn import mask
from maskwright.model.nn.attention import KVCache, repeat_heads
from maskwright.model.nn.config import Attention, Relative, Rotary, TransformerConfig
from maskwright.model.nn.layers import relative_buckets, rotary_table, rotate

# Number of positions by which the cache grows at least, unless fewer tokens can follow.
ROOM = 64


@dataclass
class Memory:
    """Keys and values of the encoder output for cross-attention.

    Attributes:
        pairs: (keys, values) of each layer, each (P, H, S, W).
        bias: (P, 1, 1, S), 0 at real positions and -inf at padding; None without padding.
        copies: number of consecutive rows that share a source.
    """

    pairs: list[tuple[Tensor, Tensor]]
    bias: Tensor | None
    copies: int

    @classmethod
    @torch.inference_mode()
    def of(
        cls, model: Prepared, states: Float[Tensor, "P S D"], keep: Bool[Tensor, "P S"], copies: int
    ) -> Memory:
        """Compute the keys and values of encoder `states`; `keep` is False at padding."""
        states, bias = states.to(model.dtype), _bias(keep, model.dtype)
        pairs = [
            _of_memory(layer.cross, states, number)
            for number, layer in enumerate(model.writer.layers)
            if layer.cross is not None
        ]
        front = pairs[0][0].shape[2] - states.shape[1]
        return cls(pairs, bias if bias is None else F.pad(bias, (front, 0)), copies)

    def join(self, other: Memory) -> None:
        """Append the sources of `other`; both must have one row per source."""
        sizes = [memory.pairs[0][0].shape[2] for memory in (self, other)]
        biases = []
        for memory, size in zip((self, other), sizes, strict=True):
            keys = memory.pairs[0][0]
            bias = keys.new_zeros(len(keys), 1, 1, size) if memory.bias is None else memory.bias
            biases.append(F.pad(bias, (0, max(sizes) - size), value=float("-inf")))
            padding = (0, 0, 0, max(sizes) - size)
            memory.pairs = [(F.pad(k, padding), F.pad(v, padding)) for k, v in memory.pairs]
        bias = torch.cat(biases)
        self.bias = bias if bool((bias < 0).any()) else None
        self.pairs = [
            (torch.cat([k, other_k]), torch.cat([v, other_v]))
            for (k, v), (other_k, other_v) in zip(self.pairs, other.pairs, strict=True)
        ]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep the sources of `rows`, in which each run of `copies` rows shares one source. A
        single source shared by all rows is kept unchanged."""
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
    """Arguments of attention for all layers of one pattern in one step: cached keys from index
    `first` on are attended to, with `bias` added to the scores."""

    first: int
    bias: Tensor | None
    rotary: tuple[Tensor, Tensor] | None
    causal: bool = False


class GrowingRows:
    """Rows of tokens that grow step by step, with their cached keys and values.

    Args:
        contexts: token ids of each row, the same as will be passed to `read`.
        capacity: maximum number of positions per row, those of the longest context included.
        prefix_lengths: number of initial tokens of each context with bidirectional attention.
        memory: keys and values of the sources, for a decoder with cross-attention.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Prepared,
        contexts: Sequence[Sequence[int]],
        capacity: int,
        prefix_lengths: Sequence[int] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.model, self.stack, self.shared = model, model.writer, memory
        self.device, self.is_decoder = model.device, model.network.decoder is not None
        layers = self.stack.layers
        fronts = [layer.attention.front(len(contexts), n) for n, layer in enumerate(layers)]
        self.front = 0 if fronts[0] is None else fronts[0].shape[3]
        self.cache = KVCache.of(
            self.stack.config,
            len(contexts),
            self.front + capacity,
            dtype=model.dtype,
            device=self.device,
        )
        for buffer, front in zip(self.cache.layers, fronts, strict=True):
            if front is not None:
                buffer[:, :, :, : self.front] = front
        self.cache.advance(self.front)
        length = max(map(len, contexts))
        pads = torch.tensor([length - len(context) for context in contexts], device=self.device)
        self.layers = layers
        self.pads: Int[Tensor, " B"] | None = pads if bool(pads.any()) else None
        self.first = 0
        """Index of the first position that is not padding in every row."""
        self.prefix: Int[Tensor, " B"] | None = None
        if prefix_lengths is not None:
            self.prefix = pads + torch.tensor(prefix_lengths, device=self.device)
        self._pad_bias: Float[Tensor, "B 1 1 C"] | None = None
        self._distances: dict[bool, Float[Tensor, "1 H 1 C"]] = {}

    @property
    def length(self) -> int:
        """Number of cached positions, without the prefix of an adapter."""
        return self.cache.length - self.front

    @property
    def capacity(self) -> int:
        """Maximum number of positions, without the prefix of an adapter."""
        return self.cache.capacity - self.front

    def keep(self, rows: list[int]) -> None:
        """Select and reorder rows: new row i is the previous row `rows[i]`."""
        if rows == list(range(self.cache.rows)):
            return
        index = torch.tensor(rows, device=self.device)
        self.cache.reorder(index)
        self.pads = None if self.pads is None else self.pads[index]
        self.prefix = None if self.prefix is None else self.prefix[index]
        self._pad_bias = None if self._pad_bias is None else self._pad_bias[index]
        self._find_first()

    @torch.inference_mode()
    def join(self, other: GrowingRows) -> None:
        """Append the rows of `other`, whose keys and values have the same shape; the shorter rows
        are padded on the left."""
        pads, prefix = [], []
        length = max(self.length, other.length)
        for rows in (self, other):
            shift = length - rows.length
            no_pads = torch.zeros(rows.cache.rows, dtype=torch.int64, device=self.device)
            pads.append((no_pads if rows.pads is None else rows.pads) + shift)
            if rows.prefix is not None:
                prefix.append(rows.prefix + shift)
        self.cache.join(other.cache, front=self.front)
        self.pads = torch.cat(pads)
        self.prefix = torch.cat(prefix) if prefix else None
        if self.shared is not None and other.shared is not None:
            self.shared.join(other.shared)
        self._find_first()
        self._pad_bias, self._distances = None, {}

    @torch.inference_mode()
    def make_room(self, most: int) -> None:
        """Enlarge a full cache by at most `most` positions, and drop positions that are padding in
        all rows."""
        length = self.length - self.first
        capacity = length + max(1, min(most, max(ROOM, length // 2)))
        self.cache.move(
            -self.first,
            front=self.front,
            capacity=self.front + capacity,
            rows=self.cache.rows,
        )
        if self.pads is not None:
            self.pads = self.pads - self.first
            self.prefix = None if self.prefix is None else self.prefix - self.first
        self._find_first()
        self._pad_bias, self._distances = None, {}

    def _find_first(self) -> None:
        if self.pads is not None and not bool(self.pads.any()):
            self.pads = self._pad_bias = None
        self.first = 0 if self.pads is None else int(self.pads.min())

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B D"]:
        """Process the contexts and return the hidden state of the last token of each."""
        count = max(map(len, contexts))
        tokens = torch.tensor([token for context in contexts for token in context])
        token_positions = torch.tensor(
            [position for context in contexts for position in range(len(context))]
        )
        last_indices = torch.tensor([len(context) for context in contexts]).cumsum(0) - 1
        flat = None
        if self.pads is not None:
            rows = torch.arange(len(contexts)).repeat_interleave(
                torch.tensor([*map(len, contexts)])
            )
            flat = (rows * count + token_positions).to(self.device) + self.pads[
                rows.to(self.device)
            ]
        positions = token_positions.to(self.device)[None]
        x = self._embedded(tokens[None], positions, 0)[0]
        grid = positions[0] if flat is None else spread(positions[0], flat, len(contexts) * count)
        views = self._views(count, grid.view(len(contexts), count))
        return self._through(x, views, count, flat, last_indices.to(self.device))

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> Float[Tensor, "B D"]:
        """Append one token to each row and return its hidden state."""
        ids, start = torch.tensor(tokens)[:, None], self.length
        positions = None
        if self.pads is not None:
            positions = (start - self.pads)[:, None]
        x = self._embedded(ids, positions, start)[:, 0]
        return self._through(x, self._views(1, positions), 1, None, None)

    # ------------------------------------------------------------------------------ the layers
    def _embedded(self, tokens: Tensor, positions: Tensor | None, start: int) -> Tensor:
        vectors = self.model.network.token_vectors(tokens.to(self.device))
        embedded: Tensor = self.stack.module.embeddings(vectors, positions, None, start)
        return embedded.to(self.model.dtype)

    def _through(
        self,
        x: Float[Tensor, "N D"],
        views: list[_View],
        count: int,
        flat: Int[Tensor, " N"] | None,
        last_indices: Int[Tensor, " B"] | None,
    ) -> Float[Tensor, "B D"]:
        """Apply all layers and the final norm to embedded tokens, `count` positions in each row.

        Args:
            flat: flat index b*T + t of each token; None without padding.
            last_indices: index in `x` of the last token of each row; None for one token per row.
        """
        cache, shared = self.cache, self.shared
        end = cache.length + count
        for number, (layer, view) in enumerate(zip(self.layers, views, strict=True)):
            half = layer.attention
            mixed = _mixed(half, half.enter(x), cache.layers[number], view, end, count, flat)
            if last_indices is not None and number == len(views) - 1:
                x = x[last_indices]
                mixed, flat = mixed.view(cache.rows, count, -1)[:, -1], None
                count = 1
            elif flat is not None:
                mixed = mixed[flat]
            x = half.leave(mixed, x)
            if layer.cross is not None:
                assert shared is not None
                pair, num_positions = shared.pairs[number], cache.rows * count
                h = layer.cross.enter(x)
                x = layer.cross.leave(
                    _crossed(layer.cross, h, pair, shared.bias, num_positions, flat), x
                )
            x = layer.feed_forward(x)
        cache.advance(end - cache.length)
        norm = self.stack.final_norm
        return x if norm is None else norm(x)

    # ------------------------------------------------------------------------------ attention masks
    def _views(self, count: int, positions: Tensor | None) -> list[_View]:
        view_of: dict[tuple[object, ...], _View] = {}
        views: list[_View] = []
        for block in self.stack.config.attention_blocks:
            attention = block.attention
            key = attention.view(False)
            if key not in view_of:
                view_of[key] = self._view(attention, count, positions)
            views.append(view_of[key])
        return views

    def _view(self, attention: Attention, count: int, positions: Tensor | None) -> _View:
        start, rotary = self.length, None
        if isinstance(attention.positions, Rotary):
            if positions is None:
                positions = torch.full((1, 1), start, device=self.device)
            rotary = rotary_table(attention.positions, positions, attention.head_width)
        if count == 1 and (attention.window is None or (self.prefix is None and not self.front)):
            begin = 0 if self.front else self.first
            if attention.window is not None:
                begin = max(begin, start - attention.window[0])
            return _View(begin, self._step_bias(attention, begin, start + 1), rotary)
        visible = self._mask(attention).draw(count, start + count, start=start, device=self.device)
        relative = self._relative(attention)
        if visible.mask.form == "causal" and start == self.front == 0 and relative is None:
            return _View(0, None, rotary, causal=count > 1)
        bias = visible.bias(self.model.dtype)
        if relative is not None:
            distance = self._distance(relative, attention, count, start + count)
            bias = distance if bias is None else distance + bias
        return _View(0, bias if bias is None else F.pad(bias, (self.front, 0)), rotary)

    def _relative(self, attention: Attention) -> Relative | None:
        return attention.positions if isinstance(attention.positions, Relative) else None

    def _mask(self, attention: Attention) -> mask.AttentionMask:
        """Return the attention mask that `StackModule` and `Transformer.encode` would use."""
        limits = mask.pattern(attention.pattern, attention.window)
        order = limits if self.is_decoder else mask.causal
        if self.prefix is not None:
            order = order | mask.prefix(self.prefix)
        if not self.is_decoder:
            order = limits & order
        if self.pads is not None:
            positions = torch.arange(self.capacity, device=self.device)
            order = order & mask.real(positions[None] >= self.pads[:, None])
        return order

    def _step_bias(self, attention: Attention, begin: int, end: int) -> Tensor | None:
        """Return the attention bias (B or 1, H or 1, 1, K) of one query at position `end - 1`:
        relative position bias plus -inf at padding; None if there is neither."""
        bias = None
        if self.pads is not None:
            if self._pad_bias is None:
                positions = torch.arange(self.capacity, device=self.device)
                self._pad_bias = _bias(positions[None] >= self.pads[:, None], self.model.dtype)
                assert self._pad_bias is not None
                self._pad_bias = F.pad(self._pad_bias, (self.front, 0))
            bias = self._pad_bias[..., begin : self.front + end]
        if (relative := self._relative(attention)) is not None:
            bidirectional = attention.pattern != "causal"
            if bidirectional not in self._distances:
                # For the last position of the cache; that of an earlier query is a suffix of it.
                distance = self._distance(relative, attention, 1, self.capacity)
                self._distances[bidirectional] = distance
            distance = self._distances[bidirectional][..., self.capacity - end :]
            distance = F.pad(distance, (self.front, 0)) if self.front else distance[..., begin:]
            bias = distance if bias is None else bias + distance
        # CUDA kernels read 16 bytes at once, and fail where a slice begins or a row of it lies
        # between two such blocks ("misaligned address").
        return None if bias is None else bias.clone(memory_format=torch.contiguous_format)

    def _distance(
        self, relative: Relative, attention: Attention, queries: int, keys: int
    ) -> Float[Tensor, "1 H Q K"]:
        """Return the relative position bias of the last `queries` of `keys` positions."""
        buckets = relative_buckets(
            relative, queries, keys, keys - queries, attention.pattern != "causal", self.device
        )
        assert self.stack.module.relative is not None
        table = self.stack.module.relative(buckets).permute(2, 0, 1).contiguous()
        return table[None].to(self.model.dtype)


def _mixed(
    half: PreparedAttention,
    h: Float[Tensor, "N D"],
    buffer: Float[Tensor, "2 B H C W"],
    view: _View,
    end: int,
    count: int,
    flat: Tensor | None,
) -> Float[Tensor, "BT HW"]:
    """Write the keys and values of `h` to the cache, which then has length `end`, and return the
    self-attention output at the `count` new positions; `flat` as for `GrowingRows._through`."""
    rows = buffer.shape[1]
    projected = []
    for projection, number in half.own(h):
        projection = projection if flat is None else spread(projection, flat, rows * count)
        projected.append(half.split(projection.view(rows, count, -1), number))
    query = projected[0][0]  # B, H, T, W
    pair = projected[0][1:] if half.joined else projected[1]
    if view.rotary is None:
        buffer[:, :, :, end - count : end] = pair
    else:
        query = rotate(query, view.rotary)
        buffer[0, :, :, end - count : end] = rotate(pair[0], view.rotary)
        buffer[1, :, :, end - count : end] = pair[1]
    keys, values = (repeat_heads(x, query) for x in buffer[:, :, :, view.first : end].unbind(0))
    out = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=view.bias, is_causal=view.causal, scale=half.scale
    )
    return out.transpose(1, 2).reshape(rows * count, -1)


def _of_memory(
    half: PreparedAttention, states: Float[Tensor, "P S D"], layer: int
) -> tuple[Float[Tensor, "P H S W"], Float[Tensor, "P H S W"]]:
    key, value = half.split(half.both(states), 2).contiguous().unbind(0)
    return half.with_front(key, value, layer)


def _crossed(
    half: PreparedAttention,
    h: Float[Tensor, "N D"],
    pair: tuple[Tensor, Tensor],
    bias: Tensor | None,
    num_positions: int,
    flat: Tensor | None,
) -> Float[Tensor, "N HW"]:
    """Return the cross-attention output; rows with the same source are queries of one batch item.
    `flat` as for `GrowingRows._through`."""
    query = half.query(h)
    if flat is not None:
        query = spread(query, flat, num_positions)
    query = query.view(len(pair[0]), -1, half.heads, half.width).transpose(1, 2)
    out = F.scaled_dot_product_attention(query, *pair, attn_mask=bias, scale=half.scale)
    out = out.transpose(1, 2).reshape(num_positions, -1)
    return out if flat is None else out[flat]


def _bias(keep: Bool[Tensor, "B K"], dtype: torch.dtype) -> Float[Tensor, "B 1 1 K"] | None:
    """Return 0 where `keep` is True and -inf elsewhere; None if all are True."""
    if bool(keep.all()):
        return None
    bias = torch.zeros(keep.shape, dtype=dtype, device=keep.device)
    return bias.masked_fill_(~keep, float("-inf"))[:, None, None]


class ContextReader:
    """Next-token scores of growing texts. Keys and values are kept between steps, unless the stack
    has hooks that prepared blocks cannot apply: it reads the whole texts each time.

    Args:
        limit: maximum number of tokens of context; None for no limit.
        sources: encoder inputs of an encoder-decoder model, each for `copies` consecutive rows.
        prefix_lengths: number of initial tokens of each text with bidirectional attention.
    """

    @torch.inference_mode()
    def __init__(
        self,
        network: Prepared,
        limit: int | None,
        *,
        sources: Sequence[Sequence[int]] | None = None,
        copies: int = 1,
        prefix_lengths: Sequence[int] | None = None,
    ) -> None:
        self.network, self.limit = network, limit
        self.runs: list[tuple[Prepared, int]] = []  # set by `use`, for rows of several networks
        self.starts: list[int] = []
        self.prefix_lengths = None if prefix_lengths is None else list(prefix_lengths)
        self.rows: GrowingRows | None = None
        self.memory: Memory | None = None
        self.states: list[Float[Tensor, "S D"]] | None = None  # instead of memory, for each row
        if sources is None:
            return
        if network.writer.plain:
            ids = [torch.tensor([source], device=network.device) for source in sources]
            states = [network.network.encode(source_ids)[0] for source_ids in ids]
            self.states = [states_of_row for states_of_row in states for _ in range(copies)]
            return
        lengths = torch.tensor([len(source) for source in sources])
        is_real = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).to(network.device)
        states_of_sources = pad_sequence(hidden(network, sources), batch_first=True)
        self.memory = Memory.of(network, states_of_sources, is_real, copies)

    @torch.inference_mode()
    def next_scores(self, texts: Sequence[Sequence[int]], remaining: int) -> Float[Tensor, "B V"]:
        """Return the scores of the token after each text. `remaining` is the number of tokens still
        to be generated, this one included."""
        starts = [context_start(len(text), self.limit) for text in texts]
        if self.network.writer.plain:
            self.starts = starts
            return self.network.network.logits(self._read_plainly(texts)).cpu()
        if self.rows is None or starts != self.starts:
            self.starts = starts
            states = self._read(texts, remaining)
        else:
            if self.rows.length == self.rows.capacity:
                self.rows.make_room(remaining)
            states = self.rows.step([text[-1] for text in texts])
        if len({network.vocabulary_key for network, _ in self.runs}) <= 1:
            return self.network.scores(states).cpu()
        run_states = states.split([count for _, count in self.runs])
        runs = zip(self.runs, run_states, strict=True)
        return torch.cat(
            [network.scores(states_of_run) for (network, _), states_of_run in runs]
        ).cpu()

    @torch.inference_mode()
    def keep(self, rows: list[int]) -> None:
        """Select and reorder rows: new row i is the previous row `rows[i]`. Rows that share a
        source must still do so afterwards."""
        self.starts = [self.starts[row] for row in rows]
        if self.prefix_lengths is not None:
            self.prefix_lengths = [self.prefix_lengths[row] for row in rows]
        if self.states is not None:
            self.states = [self.states[row] for row in rows]
        if self.memory is not None:
            self.memory.keep(rows)
        if self.rows is not None:
            self.rows.keep(rows)

    def join(self, other: ContextReader) -> None:
        """Append the rows of `other`, which has read its texts."""
        self.starts += other.starts
        if self.prefix_lengths is not None and other.prefix_lengths is not None:
            self.prefix_lengths += other.prefix_lengths
        if self.states is not None and other.states is not None:
            self.states += other.states
        if self.rows is not None and other.rows is not None:
            self.rows.join(other.rows)

    def use(self, networks: Sequence[Prepared]) -> None:
        """Set the network of each row, for which `can_write_together` holds; rows of a network are
        consecutive."""
        self.runs = [(network, len(list(rows))) for network, rows in groupby(networks)]
        self.network = self.runs[0][0]
        if self.rows is not None:
            spans = spans_of([count for _, count in self.runs])
            stacks = [network.writer.layers for network, _ in self.runs]
            self.rows.layers = [mixed_layer(layers, spans) for layers in zip(*stacks, strict=True)]

    def _read(self, texts: Sequence[Sequence[int]], remaining: int) -> Tensor:
        """Process the contexts from their beginning, with a new cache."""
        contexts, prefix_lengths = self._contexts(texts)
        length = max(map(len, contexts))
        # Enough until the context of a row is truncated: no context is longer than the limit.
        room = length + remaining - 1
        capacity = room if self.limit is None else min(room, length + self.limit)
        self.rows = None  # free the previous buffers before allocating new ones
        self.rows = GrowingRows(self.network, contexts, capacity, prefix_lengths, self.memory)
        return self.rows.read(contexts)

    def _contexts(
        self, texts: Sequence[Sequence[int]]
    ) -> tuple[list[Sequence[int]], list[int] | None]:
        contexts = [text[start:] for text, start in zip(texts, self.starts, strict=True)]
        if self.prefix_lengths is None:
            return contexts, None
        pairs = zip(self.prefix_lengths, self.starts, strict=True)
        return contexts, [max(0, prefix_length - start) for prefix_length, start in pairs]

    def _read_plainly(self, texts: Sequence[Sequence[int]]) -> Float[Tensor, "B D"]:
        """Run the network on the whole contexts, aligned at their ends."""
        contexts, prefix_lengths = self._contexts(texts)
        network, device = self.network.network, self.network.device
        length = max(map(len, contexts))
        pads = torch.tensor([length - len(context) for context in contexts])
        tokens = torch.tensor([[0] * (length - len(c)) + list(c) for c in contexts])  # B, T
        positions = (torch.arange(length)[None] - pads[:, None]).clamp(min=0).to(device)
        prefix = visible = None
        if prefix_lengths is not None:
            prefix = (pads + torch.tensor(prefix_lengths)).to(device)
        if bool(pads.any()):
            visible = mask.real((torch.arange(length)[None] >= pads[:, None]).to(device))
        if network.decoder is None:
            order = mask.causal if prefix is None else mask.causal | mask.prefix(prefix)
            visible = order if visible is None else order & visible
            return network.encode(tokens.to(device), positions=positions, visible=visible)[:, -1]
        memory = memory_visible = None
        if self.states is not None:
            memory = pad_sequence(self.states, batch_first=True)
            lengths = torch.tensor([len(states) for states in self.states])
            is_real = torch.arange(memory.shape[1])[None] < lengths[:, None]
            memory_visible = mask.real(is_real.to(device))
        return network.decode(
            tokens.to(device),
            positions=positions,
            visible=visible,
            prefix=prefix,
            memory=memory,
            memory_visible=memory_visible,
        )[:, -1]


def trained_length(config: TransformerConfig) -> int | None:
    """Return the maximum length of a text in tokens; None if the model has no maximum."""
    stack = config.decoder or config.encoder
    return None if stack is None else stack.longest


def context_start(length: int, limit: int | None) -> int:
    """Return the index of the first token of context in a text of `length` tokens: 0 up to `limit`
    tokens; beyond that the context is cut to its last half each time it exceeds `limit`."""
    if limit is None or length <= limit:
        return 0
    half = max(1, limit // 2)
    beyond = length - limit - 1
    return limit + 1 - half + beyond // (limit - half + 1) * (limit - half + 1)
