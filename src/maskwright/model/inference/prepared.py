"""A network made ready to answer: the same function, on weights that are laid out once.

    prepare(network) -> Prepared      encode, decode, logits, pool, head     as the network has them
                                      ragged                                 rows without padding
                                      scores                                 for `growing_rows.py`

There is no gradient and no dropout. Weights are read when a stack is first asked: a change
afterwards is not seen, unless the network was prepared `live`.

The rule for what cannot be prepared: a stack on which something acts where its blocks would not see
it (`blocks.fits`: vectors in front of what it reads, a hook on a layer) is called as it is, in the
network's own type. Everything else, attention weights and hidden states that are looked at
included, is answered by the blocks.

Letters: B rows, T positions, N ids of all rows, R rows of all groups, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base.errors import CheckpointError, ConfigError
from maskwright.model.device.choices import Precision
from maskwright.model.device.machine import choose
from maskwright.model.inference.batches import RowGroup
from maskwright.model.inference.blocks import (
    PreparedAttention,
    PreparedLayer,
    PreparedNorm,
    Products,
    fits,
    layers_of,
)
from maskwright.model.nn.attention import AttentionContext
from maskwright.model.nn.cache import KVCache
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.kernels.packed import PackedWeight
from maskwright.model.nn.mask import AttentionMask, bidirectional
from maskwright.model.nn.stack import Selection, StackModule, Trace
from maskwright.model.nn.transformer import Transformer

# Which id of a row is read.
Place = Literal["first", "last"]


def prepare(
    network: Transformer,
    *,
    precision: Precision = "auto",
    device: str | None = None,
    give_up: bool = False,
    live: bool = False,
    like: Prepared | None = None,
) -> Prepared:
    """`network` prepared for inference.

    Args:
        precision: of products; "auto" is bfloat16 where the device has matrix units, else float32.
        device: where to compute; None: where the network is.
        give_up: the network itself is not asked meanwhile: weights that were laid out anew are
            freed there, so that none is in memory twice, until `Prepared.restore`.
        live: nothing is laid out: for few questions to weights that will change.
        like: a prepared network of this precision that shares weights with this one: what both
            have is laid out once.

    Raises:
        ConfigError: a device of no known kind.
        ResourceError: a device that is not there.
    """
    machine = choose(precision, str(network.device) if device is None else device)
    if network.device != machine.device:
        network = network if give_up else copy.deepcopy(network)
        network = network.to(machine.device)
    if like is not None:
        return Prepared(network.eval(), like.products)
    if live:
        return Prepared(network, Products(network.tokens.weight.dtype, live=True))
    return Prepared(network.eval(), Products(machine.compute, give_up=give_up))


def prepared(model: Transformer | Prepared, *, live: bool = False) -> Prepared:
    """The network if it was prepared before, else prepared now with products in its own dtype."""
    if isinstance(model, Prepared):
        return model
    return Prepared(model, Products(model.tokens.weight.dtype, live=live))


@contextmanager
def answering(model: Transformer | Prepared, *, live: bool = False) -> Iterator[Prepared]:
    """Context: `prepared(model)` in evaluation mode; its mode is restored."""
    ready = prepared(model, live=live)
    was_training = ready.network.training
    ready.network.eval()
    try:
        yield ready
    finally:
        ready.network.train(was_training)


class PreparedStack:
    """The layers of one stack that read whole rows."""

    def __init__(self, stack: StackModule, products: Products) -> None:
        self.module, self.config, self.dtype = stack, stack.config, products.dtype
        self.own = next(stack.parameters()).dtype
        self.plain = not fits(stack)
        self.layers: list[PreparedLayer] = []
        if self.plain:
            return
        self.layers = layers_of(stack, products)
        norm = stack.final_norm
        self.final_norm = (
            None if norm is None else PreparedNorm(norm, products.dtype, products.live)
        )
        # Layers that see alike share a context; here, which of them each layer has.
        attention_kinds = [
            (a.pattern, a.window, a.positions, a.head_width)
            for a in (block.attention for block in stack.config.blocks)
        ]
        different = list(dict.fromkeys(attention_kinds))
        self.attentions = [
            stack.config.blocks[attention_kinds.index(kind)].attention for kind in different
        ]
        self.context_of = [different.index(kind) for kind in attention_kinds]

    @property
    def takes_ragged(self) -> bool:
        return not self.plain and all(layer.cross is None for layer in self.layers)

    def __call__(self, vectors: Float[Tensor, "B T E"], **facts: Any) -> Tensor:
        """As `Stack.forward`."""
        if not self.plain:
            return self._read(vectors, **facts)
        if facts.get("memory") is not None:
            facts["memory"] = facts["memory"].to(self.own)
        out: Tensor = self.module(vectors, **facts)
        return out.to(self.dtype)

    def _read(
        self,
        vectors: Tensor,
        *,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        visible: AttentionMask | None = None,
        prefix: Tensor | None = None,
        memory: Tensor | None = None,
        memory_visible: AttentionMask | None = None,
        cache: KVCache | None = None,
        trace: Trace | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        start = 0 if cache is None else cache.length
        x = self.module.embeddings(vectors, positions, segments, start).to(self.dtype)
        count = x.shape[1]
        contexts = self._contexts(x, visible, prefix, positions, start, trace)
        memory_context = None
        if memory is not None:
            facts = bidirectional if memory_visible is None else memory_visible
            memory_context = AttentionContext(
                facts.draw(count, memory.shape[1], start=start, device=x.device),
                weights=None if trace is None else trace.cross_weights,
            )
        selection = None
        if at is not None and cache is None and trace is None:
            selection = Selection.of(at, len(x), count)
        last_layer = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            if trace is not None:
                trace.hidden.append(x)
            chosen = selection if number == last_layer else None
            x = _attended(
                layer.attention, x, contexts[self.context_of[number]], cache, number, chosen
            )
            if memory is not None and memory_context is not None and layer.cross is not None:
                if chosen is not None:
                    memory_context = memory_context.of_queries(chosen.places)
                x = _across(layer.cross, x, memory, memory_context, cache, number)
            x = layer.feed_forward(x)
        if cache is not None:
            cache.advance(count)
        x = x if self.final_norm is None else self.final_norm(x)
        if trace is not None:
            trace.hidden.append(x)
        if selection is not None:
            return selection.pick(x)
        return x if at is None else x.reshape(-1, x.shape[-1]).index_select(0, at)

    def _contexts(
        self,
        x: Tensor,
        visible: AttentionMask | None,
        prefix: Tensor | None,
        positions: Tensor | None,
        start: int,
        trace: Trace | None,
    ) -> list[AttentionContext]:
        context_of = self.module._sight
        return [context_of(a, visible, prefix, positions, start, x, trace) for a in self.attentions]

    def ragged(
        self,
        vectors: Tensor,
        segments: Tensor | None,
        groups: Sequence[RowGroup],
        position: Place | None = None,
    ) -> Tensor:
        """Hidden states (N, D) of concatenated rows (N, E), or (R, D) of one position of each
        row."""
        x = torch.cat(
            [
                self.module.embeddings(group_vectors, None, kind).flatten(0, 1)
                for group_vectors, kind in zip(
                    cut(vectors, groups), cut(segments, groups), strict=True
                )
            ]
        ).to(self.dtype)
        contexts = self.contexts(x, groups)
        for number, layer in enumerate(self.layers):
            at = position if number == len(self.layers) - 1 else None
            x = read_layer(layer, number, x, groups, contexts[self.context_of[number]], at)
        return x if self.final_norm is None else self.final_norm(x)

    def contexts(self, x: Tensor, groups: Sequence[RowGroup]) -> list[list[AttentionContext]]:
        """The context of each kind of attention in each group of rows (N, D)."""
        by_group = [self._contexts(group, None, None, None, 0, None) for group in cut(x, groups)]
        return [
            [group_contexts[i] for group_contexts in by_group] for i in range(len(self.attentions))
        ]


def read_layer(
    layer: PreparedLayer,
    number: int,
    x: Float[Tensor, "N D"],
    groups: Sequence[RowGroup],
    contexts: Sequence[AttentionContext],
    position: Place | None = None,
) -> Tensor:
    """Compute one layer of concatenated rows; with `position` its states (R, D) there alone."""
    at = None
    if position is not None:
        at = places_of(groups, position, x.device)
        contexts = [
            context.of_queries(_column(group, position, x.device))
            for context, group in zip(contexts, groups, strict=True)
        ]
    return layer.feed_forward(_ragged(layer.attention, x, groups, contexts, number, at))


def _attended(
    half: PreparedAttention,
    x: Tensor,
    context: AttentionContext,
    cache: KVCache | None,
    layer: int,
    selection: Selection | None,
) -> Tensor:
    """Apply a layer's self-attention at all positions or at the selected ones."""
    h = half.enter(x)
    if selection is None:
        query, key, value = (p for side, count in half.own(h) for p in half.split(side, count))
    else:
        context, x = context.of_queries(selection.places), selection.take(x)
        query = half.split(half.query(selection.take(h)), 1)[0]
        key, value = half.split(half.both(h), 2)
    return half.leave(half.mixed(query, key, value, context, cache, layer), x)


def _across(
    half: PreparedAttention,
    x: Tensor,
    memory: Tensor,
    context: AttentionContext,
    cache: KVCache | None,
    layer: int,
) -> Tensor:
    """Apply a layer's cross-attention; a cache keeps the keys and values of the memory."""

    def make() -> tuple[Tensor, Tensor]:
        key, value = half.split(half.both(memory), 2)
        return key, value

    query = half.split(half.query(half.enter(x)), 1)[0]
    key, value = make() if cache is None else cache.memory(layer, make)
    return half.leave(half.mixed(query, key, value, context, None, layer), x)


def _ragged(
    half: PreparedAttention,
    x: Tensor,
    groups: Sequence[RowGroup],
    contexts: Sequence[AttentionContext],
    layer: int,
    at: Tensor | None = None,
) -> Tensor:
    """Attention of concatenated rows (N, D), by group. `at` is the one query of each row, or
    None."""
    h = half.enter(x)
    sides = half.own(h) if at is None else [(half.query(h[at]), 1), (half.both(h), 2)]
    x = x if at is None else x[at]
    rows = [group.count for group in groups]
    num_positions = [group.count * group.length for group in groups]
    selected = at is not None
    cut = [side.split(rows if selected and count == 1 else num_positions) for side, count in sides]
    out = x.new_empty(len(x), half.heads * half.width)
    begin = 0
    for number, (group, context) in enumerate(zip(groups, contexts, strict=True)):
        query, key, value = (
            heads
            for side, (_, count) in zip(cut, sides, strict=True)
            for heads in half.split(
                side[number].view(group.count, -1, side[number].shape[-1]), count
            )
        )
        mixed = half.mixed(query, key, value, context, layer=layer)
        end = begin + mixed.shape[0] * mixed.shape[1]
        out[begin:end].view(mixed.shape).copy_(mixed)
        begin = end
    return half.leave(out, x)


def cut(x: Tensor | None, groups: Sequence[RowGroup]) -> Iterator[Any]:
    """The groups' parts, each (count, length, …)."""
    begin = 0
    for group in groups:
        if x is None:
            yield None
            continue
        end = begin + group.count * group.length
        yield x[begin:end].view(group.count, group.length, *x.shape[1:])
        begin = end


def places_of(groups: Sequence[RowGroup], position: Place, device: torch.device) -> Tensor:
    """The flat positions of the first or last ids of all rows."""
    lengths = torch.tensor([g.length for g in groups for _ in range(g.count)])
    ends = lengths.cumsum(0)
    return (ends - lengths if position == "first" else ends - 1).to(device)


def _column(group: RowGroup, position: Place, device: torch.device) -> Tensor:
    at = 0 if position == "first" else group.length - 1
    return torch.full((group.count, 1), at, device=device)


class Prepared:
    """A network that answers; `prepare` makes it. Methods are those of `Transformer`, with the same
    arguments; none has a gradient. States have the type of the products, scores that of the
    network. A stack is laid out when it is first asked."""

    # Another engine that reads texts in place of the stacks, by `ragged` alone.
    engine: Any = None

    def __init__(self, network: Transformer, products: Products) -> None:
        self.network, self.products = network, products
        self.config: TransformerConfig = network.config
        self.own, self.dtype = network.tokens.weight.dtype, products.dtype

    @property
    def device(self) -> torch.device:
        return self.network.device

    def restore(self) -> None:
        """Restore the weights that the network gave up."""
        self.products.restore()

    # ------------------------------------------------------------------------------------- stacks
    @cached_property
    def encoder(self) -> PreparedStack | None:
        return self._stack(self.network.encoder)

    @cached_property
    def decoder(self) -> PreparedStack | None:
        return self._stack(self.network.decoder)

    @torch.no_grad()
    def _stack(self, stack: StackModule | None) -> PreparedStack | None:
        if stack is None:
            return None
        with self.products.whole(stack):
            return PreparedStack(stack, self.products)

    @torch.no_grad()
    def encode(self, tokens: Int[Tensor, "B T"], **facts: Any) -> Tensor:
        """As `Transformer.encode`, with its arguments."""
        if self.encoder is None:
            raise ConfigError("this model has no encoder", where="encoder", do="use decode")
        return self.encoder(self.network.token_vectors(tokens), **facts)

    @torch.no_grad()
    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        **facts: Any,
    ) -> Tensor:
        """As `Transformer.decode`, with its arguments; a `cache` has this network's `dtype`."""
        if self.decoder is None or self.config.decoder is None:
            raise ConfigError("this model has no decoder", where="decoder", do="use encode")
        crosses = self.config.decoder.blocks[0].cross_attention is not None
        if crosses != (memory is not None):
            raise ConfigError(
                "a decoder with cross-attention needs a memory, and only such a decoder",
                where="decode(memory=...)",
                found="no memory" if memory is None else "a memory",
            )
        facts["memory"] = None if memory is None else memory.to(self.dtype)
        return self.decoder(self.network.token_vectors(tokens), **facts)

    @torch.no_grad()
    def ragged(
        self,
        tokens: Int[Tensor, " N"],
        groups: Sequence[RowGroup],
        segments: Int[Tensor, " N"] | None = None,
        position: Place | None = None,
    ) -> Float[Tensor, "N D"] | Float[Tensor, "R D"]:
        """Hidden states of rows that lie one after the other, without padding and without a mask
        against other rows: those of a group are equally long and attend together; every other
        operation goes over all ids at once. Of the encoder, or of a decoder that stands alone.
        With `position`, of the first or the last id of each row alone (R, D): the last layer is not
        computed elsewhere.
        """
        stack = self.reader
        if not stack.takes_ragged:
            run = self.encode if self.encoder is not None else self.decode
            groups_of_ids = zip(cut(tokens, groups), cut(segments, groups), strict=True)
            x = torch.cat([run(ids, segments=kind).flatten(0, 1) for ids, kind in groups_of_ids])
            return x if position is None else x[places_of(groups, position, x.device)]
        vectors = self.network.token_vectors(tokens[None])[0]
        return stack.ragged(vectors, segments, groups, position)

    @property
    def reader(self) -> PreparedStack:
        """The stack that reads texts: the encoder, or a decoder without one."""
        stack = self.encoder if self.encoder is not None else self.decoder
        assert stack is not None  # every config has one
        return stack

    # -------------------------------------------------------------------------------------- heads
    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any V"]:
        """As `Transformer.logits`."""
        if self.dtype == self.own:
            return self.network.logits(hidden)
        read = self.head_hidden(hidden).to(self.dtype)
        return self.vocabulary(read.flatten(0, -2)).unflatten(0, hidden.shape[:-1]).to(self.own)

    @torch.no_grad()
    def head_hidden(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any E"]:
        """As `Transformer.head_hidden`."""
        return self.network.head_hidden(hidden.to(self.own))

    @property
    def head_weight(self) -> Float[Tensor, "V E"]:
        return self.network.head_weight

    @property
    def head_bias(self) -> Float[Tensor, " V"] | None:
        return self.network.head_bias

    @torch.no_grad()
    def pool(self, hidden_rows: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """As `Transformer.pool`."""
        return self.network.pool(hidden_rows.to(self.own))

    @torch.no_grad()
    def head(self, name: str, hidden: Float[Tensor, "*any D"], **options: Any) -> Tensor:
        """As `Transformer.head`."""
        return self.network.head(name, hidden.to(self.own), **options)

    # ------------------------------------------------------------------- one token after another
    @cached_property
    def writer(self) -> PreparedStack:
        """The stack that reads from left to right."""
        stack = self.decoder if self.network.decoder is not None else self.encoder
        assert stack is not None  # every config has one
        return stack

    @cached_property
    def vocabulary(self) -> PackedWeight:
        with torch.no_grad():
            return self.products.projection(self.head_weight, self.head_bias)

    @cached_property
    def vocabulary_key(self) -> tuple[int, ...]:
        """A key that is equal for networks with the same function to vocabulary scores."""
        head = self.network.vocabulary_head
        return (id(self.head_weight), *map(id, [] if head is None else head.parameters()))

    @torch.inference_mode()
    def scores(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """Scores over the vocabulary of a few states, in float32."""
        read = self.head_hidden(hidden)
        if self.products.live:
            return finite(F.linear(read, self.head_weight, self.head_bias).float())
        return finite(self.vocabulary(read.to(self.dtype)).float())


def finite(values: Tensor, where: object = None) -> Tensor:
    """The values.

    Raises:
        CheckpointError: not all are finite: products of finite weights can be too large.
    """
    if not bool(values.isfinite().all()):
        raise CheckpointError(
            "the model computes numbers that are not finite",
            where=where,
            found=f"{int((~values.isfinite()).sum())} of {values.numel()} are infinite or NaN",
            wanted="weights whose products are numbers",
            do="use an earlier checkpoint, or train it again at a smaller learning rate",
        )
    return values
