"""Attention, and the keys and values that it keeps.

`KVCache` has keys and values that were computed before, in buffers of a fixed capacity, for
`inference/growing_rows.py`, which writes the new positions behind the old ones and reads all of
them as a view, without copying. Rows leave, or take each other's places, within the same buffers.
Exported graphs have them as inputs (`PastKeys`).

A mask whose keys lie in a band around each query is computed in blocks of queries, each with the
keys of its band and those that are seen from everywhere, so that time and memory grow with the
length and not with its square. Global tokens (`GlobalRows`) have projections of their own. Where
texts are cut into blocks (`block_sparse.py`), blocks of queries are computed with those they see.

Within a block, or without a band, `attend` chooses between two kernels that agree to rounding: an
explicit one (matrix product, bias, softmax, dropout, matrix product), and PyTorch's scaled-dot-
product attention. The table `KERNELS` holds the choice, made by measurement; the explicit kernel is
also taken where weights are asked for, or a learned bias wants a gradient. While a program is
exported it is the explicit one without reshaping, which is read as four operations. What a layer
may see arrives as an `AttentionContext`, made once per distinct pattern and forward and shared by
its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from maskwright.model.nn.block_sparse import BlockSight
from maskwright.model.nn.config import Attention, Stack
from maskwright.model.nn.kernels.dropout import dropout as drop
from maskwright.model.nn.kernels.dropout import dropped_product, softmax
from maskwright.model.nn.kernels.linear import Linear, scaled_product
from maskwright.model.nn.layers import rotate
from maskwright.model.nn.mask import SizedMask, bidirectional

# ------------------------------------------------------------------------------ keys and values
Pair = tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]


@runtime_checkable
class PastKeys(Protocol):
    """The keys and values of earlier positions, of which there are `length`."""

    length: int

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Pair:
        """Append keys and values (B, H, T, W); return all of the layer."""

    def memory(self, layer: int, states: Tensor, project: Callable[[Tensor], Pair]) -> Pair:
        """Return the layer's keys and values of the encoder's `states`, which `project` makes."""


class KVCache:
    """One buffer (2, B, H, capacity, W) of keys and values per layer.

    Attributes:
        length: how many positions are filled.
        capacity: how many there is room for.
    """

    def __init__(self, layers: list[Float[Tensor, "2 B _ C W"]]) -> None:
        self.layers = self._storage = layers
        self.capacity = layers[0].shape[3]
        self.length = 0

    @classmethod
    def of(
        cls,
        stack: Stack,
        rows: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """Empty buffers for a stack that is read from left to right, be it an encoder."""
        # Zeros, not empty memory: a masked position is multiplied by weight 0, and 0 * NaN is NaN.
        return cls(
            [
                torch.zeros(
                    (2, rows, block.attention.num_key_heads, capacity, block.attention.head_width),
                    dtype=dtype,
                    device=device,
                )
                for block in stack.attention_blocks
            ]
        )

    @property
    def rows(self) -> int:
        return self.layers[0].shape[1]

    def advance(self, count: int) -> None:
        """All layers have written `count` positions."""
        self.length += count

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Let row i continue row `rows[i]` (beam search). Only rows that change are copied."""
        sources = rows.tolist()
        if len(sources) > self.rows:
            self.layers = [self._grown(buffer, rows.to(buffer.device)) for buffer in self.layers]
            self._storage = self.layers
            return
        moved = [(to, source) for to, source in enumerate(sources) if to != source]
        if moved:
            device = self.layers[0].device
            to, source = torch.tensor(moved, device=device).T
            for buffer in self.layers:
                filled = buffer[:, :, :, : self.length]
                filled[:, to] = filled[:, source]
        self.layers = [buffer[:, : len(sources)] for buffer in self.layers]

    def move(self, by: int, *, front: int, capacity: int, rows: int) -> None:
        """Copy to new buffers with this capacity; positions behind the first `front` move by `by`,
        and those that would overlap the front are dropped."""
        begin = front + max(0, -by)
        moved = []
        for old in self.layers:
            shape = (2, max(rows, self.rows), *old.shape[2:3], capacity, *old.shape[4:])
            fresh = old.new_zeros(shape)
            fresh[:, : self.rows, :, :front] = old[:, :, :, :front]
            filled = old[:, :, :, begin : self.length]
            fresh[:, : self.rows, :, begin + by : self.length + by] = filled
            moved.append(fresh)
        count = self.rows
        self._storage, self.layers = moved, [buffer[:, :count] for buffer in moved]
        self.length, self.capacity = self.length + by, capacity

    def join(self, other: KVCache, *, front: int = 0) -> None:
        """Append the rows of `other`; all rows end together, and begin with their `front`
        positions."""
        shift, count, before = max(0, other.length - self.length), self.rows + other.rows, self.rows
        spare = self._storage[0].shape[1]
        if shift or count > spare:
            rows = spare if count <= spare else max(count, 2 * before)
            self.move(
                shift, front=front, capacity=max(self.capacity, self.length + shift), rows=rows
            )
        begin = front + self.length - other.length
        for buffer, theirs in zip(self._storage, other.layers, strict=True):
            buffer[:, before:count, :, :front] = theirs[:, :, :, :front]
            filled = theirs[:, :, :, front : other.length]
            buffer[:, before:count, :, begin : self.length] = filled
        self.layers = [buffer[:, :count] for buffer in self._storage]

    def _grown(self, buffer: Tensor, rows: Tensor) -> Tensor:
        shape = (2, len(rows), *buffer.shape[2:])
        fresh = buffer.new_zeros(shape)
        fresh[:, :, :, : self.length] = buffer[:, :, :, : self.length].index_select(1, rows)
        return fresh


# ------------------------------------------------------------------------------ attention
Kernel = Literal["explicit", "sdpa", "traced"]


class KernelCase(NamedTuple):
    """What the choice of a kernel looks at."""

    gradient: bool  # a backward pass will follow
    dropout: bool  # weights are dropped
    narrow: bool  # the type is narrower than float32


# Measured on CPUs, time of forward and backward; a case that is not listed takes "sdpa". The
# library's kernel has a slow backward pass in bfloat16, and draws dropout one number per element
# (docs/log.md).
KERNELS: dict[tuple[str, KernelCase], Kernel] = {
    ("cpu", KernelCase(gradient=True, dropout=False, narrow=True)): "explicit",
    ("cpu", KernelCase(gradient=True, dropout=True, narrow=True)): "explicit",
    ("cpu", KernelCase(gradient=True, dropout=True, narrow=False)): "explicit",
}


# Measured on CPUs (docs/log.md): the largest and the smallest block of queries, and how many times
# longer than what a block reads a row must be.
LARGEST_BLOCK, SMALLEST_BLOCK, WORTH_BLOCKS = 256, 32, 1.5

# Positions (B, G) of global tokens in each row, and which of these count (B, G).
GlobalPlaces = tuple[Int[Tensor, "B G"], Bool[Tensor, "B G"]]


def places_of(marked: Bool[Tensor, "B K"]) -> GlobalPlaces | None:
    """The positions that are `marked`; None without any. Rows have as many places as the row with
    the most of them needs; those that are left over do not count."""
    counts = marked.sum(1)
    order = (~marked).to(torch.int8).argsort(dim=1, stable=True)[:, : int(counts.max())]
    numbers = torch.arange(order.shape[1], device=marked.device)
    return (order, numbers < counts[:, None]) if order.shape[1] else None


def block_size(window: tuple[int, int], length: int) -> int | None:
    """How many queries of a row of `length` are computed together when each sees a `window`; None
    where all are, because the row is short."""
    size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, *window))
    num_keys = size * (1 + sum(-(-side // size) for side in window))
    return size if length >= WORTH_BLOCKS * num_keys else None


def _blocks(
    window: tuple[int, int], size: int, length: int
) -> Iterator[tuple[slice, slice, slice]]:
    """(queries, pieces, keys) of each block; pieces of `size` keys that hold the window."""
    before, after = (-(-side // size) for side in window)
    for number, begin in enumerate(range(0, length, size)):
        pieces = slice(max(0, number - before), number + 1 + after)
        keys = slice(pieces.start * size, min(length, pieces.stop * size))
        yield slice(begin, min(length, begin + size)), pieces, keys


def keys_read(window: tuple[int, int] | None, length: int) -> float:
    """How many keys are computed for a query of a row of `length`, on average."""
    size = None if window is None else block_size(window, length)
    if size is None or window is None:
        return float(length)
    blocks = _blocks(window, size, length)
    return sum((q.stop - q.start) * (k.stop - k.start) for q, _, k in blocks) / length


class Band(NamedTuple):
    """Blocks of `size` queries, and the keys that each of them reads: pieces of the same size, and
    in front of them `columns`, those of the global tokens.

    Attributes:
        blocks: (pieces, context) of each block.
    """

    size: int
    columns: GlobalPlaces | None
    blocks: list[tuple[slice, AttentionContext]]

    def keys(self, keys: Float[Tensor, "B H K W"]) -> list[Float[Tensor, "B H N W"]]:
        """The keys, or the values, of each block."""
        pieces = keys.split(self.size, 2)
        front: tuple[Tensor, ...] = ()
        if self.columns is not None:
            index = self.columns[0][:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
            front = (keys.gather(2, index),)
        return [torch.cat((*front, *pieces[numbers]), 2) for numbers, _ in self.blocks]


@dataclass
class GlobalRows:
    """Queries that see all keys of their text, through projections of their own.

    Attributes:
        marked: which queries these are.
        global_places: where they are; None: all queries are computed so, and the others dropped.
        everywhere: what they would see at all positions.
    """

    marked: Bool[Tensor, "B Q"]
    global_places: GlobalPlaces | None
    everywhere: AttentionContext

    @cached_property
    def context(self) -> AttentionContext:
        """What the computed queries see."""
        if self.global_places is None:
            return self.everywhere
        return self.everywhere.of_queries(self.global_places[0])

    def of_queries(self, positions: Int[Tensor, "B Q"]) -> GlobalRows:
        marked = self.marked.gather(1, positions)
        return GlobalRows(marked, None, self.everywhere.of_queries(positions))

    def take(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B G D"]:
        """The inputs of the computed queries."""
        if self.global_places is None:
            return x
        return x.gather(1, self.global_places[0][..., None].expand(-1, -1, x.shape[-1]))

    def put(
        self, out: Float[Tensor, "B Q *any"], rows: Float[Tensor, "B G *any"]
    ) -> Float[Tensor, "B Q *any"]:
        """`out` with the outputs of these queries in place of its own."""
        if self.global_places is None:
            return torch.where(self.marked.view(*out.shape[:2], *[1] * (out.dim() - 2)), rows, out)
        positions, counts = self.global_places
        begins = torch.arange(len(positions), device=out.device)[:, None] * out.shape[1]
        flat = (begins + positions)[counts]
        return out.flatten(0, 1).index_copy(0, flat, rows[counts]).view(out.shape)


@dataclass
class AttentionContext:
    """What the layers of one pattern see in one forward.

    Attributes:
        mask_at_size: the mask at the sizes of this forward.
        distance: a bias of each head: learned by distance and shared by the layers of a stack, or
            for how often a head sees a key (`BlockSight.log_counts`).
        rotary: cosines and signed sines of the queries' positions.
        key_rotary: of the keys' positions, where they are not those of the queries.
        weights: where attention weights (B, H, Q, K) are appended, layer by layer, if wanted.
        global_rows: those of the queries that are global tokens.
        blocks: in which queries are computed, where texts are cut so.
    """

    mask_at_size: SizedMask
    distance: Float[Tensor, "#B H Q K"] | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    key_rotary: tuple[Tensor, Tensor] | None = None
    weights: list[Tensor] | None = None
    global_rows: GlobalRows | None = None
    blocks: BlockSight | None = None
    _joined: dict[torch.dtype, Tensor | None] = field(default_factory=dict)
    _with_prefix_keys: dict[int, AttentionContext] = field(default_factory=dict)

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """Mask and distance as one tensor that is added to the scores, joined once."""
        if dtype not in self._joined:
            mask = self.mask_at_size.bias(dtype)
            if self.distance is None:
                self._joined[dtype] = mask
            else:
                distance = self.distance.to(dtype)
                self._joined[dtype] = distance if mask is None else distance + mask
        return self._joined[dtype]

    @property
    def _head_bias(self) -> Float[Tensor, "#B H Q K"] | None:
        return self.distance if self.blocks is None else self.blocks.log_counts

    @cached_property
    def band(self) -> Band | None:
        """The blocks of queries that are computed one after the other; None: all together."""
        mask_at_size, mask = self.mask_at_size, self.mask_at_size.mask
        length = mask_at_size.queries
        is_square = (
            mask_at_size.start == 0 and mask_at_size.keys == length and self.distance is None
        )
        if mask.band is None or not is_square or self.weights is not None:
            return None
        if torch.compiler.is_exporting() or (size := block_size(mask.band, length)) is None:
            return None
        columns = None if mask.columns is None else places_of(mask.columns)
        blocks = [
            (pieces, AttentionContext(mask_at_size.of_block(queries, keys, columns)))
            for queries, pieces, keys in _blocks(mask.band, size, length)
        ]
        return Band(size, columns, blocks)

    def with_prefix_keys(self, count: int) -> AttentionContext:
        """The same with `count` keys in front that every query sees, at no distance; made once."""
        if count not in self._with_prefix_keys:
            distance = self._head_bias
            distance = None if distance is None else F.pad(distance, (count, 0))
            mask_at_size = self.mask_at_size.with_prefix_keys(count)
            self._with_prefix_keys[count] = AttentionContext(
                mask_at_size, distance, weights=self.weights, global_rows=self.global_rows
            )
        return self._with_prefix_keys[count]

    def of_queries(self, positions: Int[Tensor, "B Q"]) -> AttentionContext:
        """What the queries at `positions` of each row see, and no others."""
        distance, rotary = self._head_bias, self.rotary
        if distance is not None:
            row = torch.arange(len(positions), device=positions.device)[:, None]
            distance = distance.expand(len(positions), -1, -1, -1).transpose(1, 2)[row, positions]
            distance = distance.transpose(1, 2).contiguous()  # B, H, Q, K
        if rotary is not None:
            row = torch.arange(len(positions), device=positions.device)[:, None]
            cosine, sine = (
                t.expand(len(positions), -1, -1, -1)[row, 0, positions][:, None] for t in rotary
            )
            rotary = (cosine, sine)
        return AttentionContext(
            self.mask_at_size.of_queries(positions),
            distance,
            rotary,
            self.rotary,
            self.weights,
            None if self.global_rows is None else self.global_rows.of_queries(positions),
        )


# (keys, values, context, layer) -> the same with more keys and values in front, and who sees them.
Before = Callable[[Tensor, Tensor, AttentionContext, int], tuple[Tensor, Tensor, AttentionContext]]


def attend(
    query: Float[Tensor, "B H Q W"],
    key: Float[Tensor, "B G K W"],
    value: Float[Tensor, "B G K W"],
    context: AttentionContext,
    *,
    scale: float,
    dropout: float = 0.0,
    training: bool = False,
) -> Float[Tensor, "B Q H W"]:
    """Softmax of `scale * query · key + bias`, times the values; each of the G heads of keys and
    values serves H / G heads of queries.

    Args:
        context: what is visible; a query that sees nothing gets zeros.
        scale: the factor on the scores, 1 or W^-0.5.
        dropout: the rate at which weights are dropped when `training`.
    """
    dropout = dropout if training else 0.0
    key, value = repeat_heads(key, query), repeat_heads(value, query)
    if context.blocks is not None:
        run = partial(attend, scale=scale, dropout=dropout, training=training)
        return _in_blocks(query, key, value, context.blocks, run)
    if (band := context.band) is not None:
        blocks = zip(
            query.split(band.size, 2), band.keys(key), band.keys(value), band.blocks, strict=True
        )
        return torch.cat(
            [
                attend(q, k, v, block, scale=scale, dropout=dropout, training=training)
                for q, k, v, (_, block) in blocks
            ],
            1,
        )
    kernel = _kernel(query, context, dropout)
    if kernel == "traced":
        out = _traced(query, key, value, context, scale)
    elif kernel == "explicit":
        out = _explicit(query, key, value, context, scale, dropout)
    else:
        out = _sdpa(query, key, value, context, scale, dropout)
    blind = context.mask_at_size.blind
    return out if blind is None else out.masked_fill(blind.transpose(1, 2), 0.0)


def repeat_heads(x: Float[Tensor, "B G K W"], query: Tensor) -> Float[Tensor, "B H K W"]:
    """Keys or values, each as often as heads of the `query` share it."""
    group = query.shape[1] // x.shape[1]
    return x if group == 1 else x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)


def _in_blocks(
    query: Float[Tensor, "B H T W"],
    key: Float[Tensor, "B H T W"],
    value: Float[Tensor, "B H T W"],
    blocks: BlockSight,
    attend: Callable[[Tensor, Tensor, Tensor, AttentionContext], Tensor],
) -> Float[Tensor, "B T H W"]:
    """Each tile of blocks with the keys that it sees; heads stand in place of rows."""
    heads, width = query.shape[1], query.shape[3]
    sources = [blocks.split(x) for x in (query, key, value)]
    begins = torch.arange(0, len(sources[0]), len(sources[0]) // heads, device=query.device)
    outputs = []
    for tile in blocks.tiles:
        q, k, v = (
            source.index_select(0, (begins[:, None, None] + numbers).flatten()).view(
                heads, numbers.shape[1], -1, width
            )
            for source, numbers in zip(
                sources, (tile.queries[None], tile.keys, tile.keys), strict=True
            )
        )
        sized = SizedMask(bidirectional, q.shape[2], k.shape[2], 0, query.device)
        out = attend(q, k, v, AttentionContext(sized, tile.bias))
        outputs.append(out.transpose(1, 2).reshape(heads, -1, sources[0].shape[1]))
    return blocks.join(torch.cat(outputs, 1))


def see_all(
    query: Float[Tensor, "B H G W"],
    key: Float[Tensor, "B H K W"],
    value: Float[Tensor, "B H K W"],
    rows: GlobalRows,
    before: Before | None,
    layer: int,
    attend: Callable[[Tensor, Tensor, Tensor, AttentionContext], Tensor],
) -> Float[Tensor, "B G H W"]:
    """The outputs of the global `rows`, over the keys and values of their own projections."""
    context = rows.context
    if before is not None:
        key, value, context = before(key, value, context, layer)
    out = attend(query, key, value, context)
    if context.weights is not None:
        *_, local, theirs = context.weights
        context.weights[-2:] = [torch.where(rows.marked[:, None, :, None], theirs, local)]
    return out


def _kernel(query: Tensor, context: AttentionContext, dropout: float) -> Kernel:
    if context.weights is not None:
        return "explicit"
    if torch.compiler.is_exporting() and dropout == 0.0:
        return "traced"
    gradient = torch.is_grad_enabled() and query.requires_grad
    learned = context.distance is not None and context.distance.requires_grad
    if gradient and learned and query.device.type == "cpu":
        return "explicit"  # the library's fast kernels give a learned bias no gradient
    case = KernelCase(gradient, dropout > 0.0, query.dtype.itemsize < 4)
    return KERNELS.get((query.device.type, case), "sdpa")


def _explicit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: AttentionContext,
    scale: float,
    dropout: float,
) -> Tensor:
    rows, heads, queries, width = query.shape
    keys = key.shape[2]
    flat = (rows * heads, -1, width)
    bias = context.bias(query.dtype)
    joins = bias is not None and bias.shape[:2] == (1, 1)  # alike for all rows and heads
    scores = scaled_product(
        query.reshape(flat),
        key.reshape(flat).transpose(1, 2),
        scale,
        bias[0] if bias is not None and joins else None,
    ).view(rows, heads, queries, keys)
    if bias is not None and not joins:
        scores = scores + bias  # adding in place to a view costs three copies of the gradient
    weights = softmax(scores)  # B, H, Q, K
    if context.weights is not None:
        context.weights.append(weights)
    weights = weights.view(rows * heads, queries, keys)
    out = dropped_product(weights, value.reshape(flat), dropout)
    return out.view(rows, heads, queries, width).transpose(1, 2)


def _traced(
    query: Tensor, key: Tensor, value: Tensor, context: AttentionContext, scale: float
) -> Tensor:
    scores = (query * scale) @ key.transpose(-1, -2)
    bias = context.bias(query.dtype)
    weights = torch.softmax(scores if bias is None else scores + bias, -1)  # B, H, Q, K
    return (weights @ value).transpose(1, 2)


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: AttentionContext,
    scale: float,
    dropout: float,
) -> Tensor:
    mask_arguments = context.mask_at_size.for_sdpa(query.dtype)
    if context.distance is not None:
        mask_arguments = {"attn_mask": context.bias(query.dtype), "is_causal": False}
    out = F.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, scale=scale, **mask_arguments
    )
    return out.transpose(1, 2)


class AttentionModule(nn.Module):
    """Projections to heads, `attend`, projection back; self-attention, or over a memory."""

    def __init__(self, config: Attention, width: int) -> None:
        super().__init__()
        self.config = config
        inner = config.heads * config.head_width
        keys = config.num_key_heads * config.head_width
        self.query = Linear(width, inner, bias=config.bias)
        self.key = Linear(width, keys, bias=config.bias)
        self.value = Linear(width, keys, bias=config.bias)
        self.output = Linear(inner, width, bias=config.bias)
        if config.global_tokens is not None:
            self.query_global = Linear(width, inner, bias=config.bias)
            self.key_global = Linear(width, inner, bias=config.bias)
            self.value_global = Linear(width, inner, bias=config.bias)
        # Set from outside by a method of adaptation (model/adapters/prefix.py).
        self.before: Before | None = None

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        context: AttentionContext,
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        cache: PastKeys | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B Q D"]:
        """
        Args:
            memory: what is read instead of `x`: a memory, or all positions where `x` is some.
            cache: keys and values of earlier positions; `layer` names this layer's place there.
        """
        query, project = self._heads(self.query(x)), self._keys_and_values
        if memory is None or cache is None:
            key, value = project(x if memory is None else memory)
        else:
            key, value = cache.memory(layer, memory, project)
        if context.rotary is not None:
            query = rotate(query, context.rotary)
            key = rotate(key, context.key_rotary or context.rotary)
        if memory is None and cache is not None:
            key, value = cache.extend(layer, key, value)
        if self.before is not None:
            key, value, context = self.before(key, value, context, layer)
        out = self._attend(query, key, value, context)
        if (rows := context.global_rows) is not None:
            source = x if memory is None else memory
            pair = self._heads(self.key_global(source)), self._heads(self.value_global(source))
            query = self._heads(self.query_global(rows.take(x)))
            out = rows.put(out, see_all(query, *pair, rows, self.before, layer, self._attend))
        out = self.output(out.reshape(*x.shape[:2], -1))
        return drop(out, self.config.output_dropout, self.training)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, context: AttentionContext
    ) -> Tensor:
        scale = self.config.head_width**-0.5 if self.config.scaled else 1.0
        rate = self.config.dropout
        return attend(query, key, value, context, scale=scale, dropout=rate, training=self.training)

    def _heads(self, x: Tensor) -> Tensor:
        width = self.config.head_width  # -1 would be ambiguous where T is 0
        heads = x.view(*x.shape[:2], x.shape[2] // width, width)
        return heads.transpose(1, 2)  # B, H or G, T, W

    def _keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._heads(self.key(x)), self._heads(self.value(x))
