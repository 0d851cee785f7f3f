"""A network prepared for inference: the same function, with weights repacked once.

    prepare(network) -> Prepared      encode, decode, logits, pool, head     as of `Transformer`
                                      ragged                                 rows without padding
                                      scores                                 for `growing_rows.py`

There are no gradients and no dropout. Weights are packed when a stack is first used: later changes
have no effect, unless the network was prepared with `live`.

A stack with hooks that its prepared blocks cannot apply (`blocks.fits`: vectors in front of the
input, a hook on a layer) is called unchanged, in the dtype of the network. All other stacks run on
the prepared blocks, also when attention weights or hidden states are recorded.

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
    PackedWeight,
    PreparedAttention,
    PreparedLayer,
    PreparedNorm,
    Products,
    fits,
    layers_of,
)
from maskwright.model.nn.attention import AttentionContext, PastKeys
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.stack import PreparedLayers, Selection, StackModule
from maskwright.model.nn.transformer import Transformer

# The position of a row whose hidden state is returned.
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
    """Prepare `network` for inference.

    Args:
        precision: dtype of matrix products; "auto" is bfloat16 on devices with matrix units, else
            float32.
        device: device to compute on; None for that of the network.
        give_up: free the weights of `network` that have been repacked, so that none is in memory
            twice; `network` cannot be used until `Prepared.restore`.
        live: do not repack weights; for a few calls on weights that will change.
        like: a prepared network of this precision; weights that both share are packed once.

    Raises:
        ConfigError: the device is of an unknown type.
        ResourceError: the device is not available.
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
    """Return `model` if it is prepared, else prepare it with products in its own dtype."""
    if isinstance(model, Prepared):
        return model
    return Prepared(model, Products(model.tokens.weight.dtype, live=live))


@contextmanager
def answering(model: Transformer | Prepared, *, live: bool = False) -> Iterator[Prepared]:
    """Context manager: `prepared(model)` in evaluation mode; the mode is restored on exit."""
    network = prepared(model, live=live)
    was_training = network.network.training
    network.network.eval()
    try:
        yield network
    finally:
        network.network.train(was_training)


class PreparedStack:
    """The prepared layers of an encoder or decoder, applied to whole rows.

    Attributes:
        plain: the stack cannot be prepared (`blocks.fits`); its module is called instead.
        attentions: the distinct attention settings of the layers.
        context_of: for each layer, the index of its settings in `attentions`.
    """

    def __init__(self, stack: StackModule, products: Products) -> None:
        self.module, self.config, self.dtype = stack, stack.config, products.dtype
        self.own = next((p.dtype for p in stack.parameters()), products.dtype)
        self.plain = not fits(stack)
        self.layers: list[PreparedLayer] = []
        if self.plain:
            return
        self.layers = layers_of(stack, products)
        norm = stack.final_norm
        self.final_norm = (
            None if norm is None else PreparedNorm(norm, products.dtype, products.live)
        )
        # Layers with equal pattern, window and positions share an attention context.
        blocks = stack.config.attention_blocks
        attention_kinds = [block.attention.view(stack.training) for block in blocks]
        distinct_kinds = list(dict.fromkeys(attention_kinds))
        self.attentions = [
            stack.config.attention_blocks[attention_kinds.index(kind)].attention
            for kind in distinct_kinds
        ]
        self.context_of = [distinct_kinds.index(kind) for kind in attention_kinds]

    @property
    def takes_ragged(self) -> bool:
        return not self.plain and all(layer.cross is None for layer in self.layers)

    def __call__(self, vectors: Float[Tensor, "B T E"], **facts: Any) -> Tensor:
        """Return hidden states; arguments as for `StackModule.forward`."""
        if self.plain and facts.get("memory") is not None:
            facts["memory"] = facts["memory"].to(self.own)
        layers = None if self.plain else PreparedLayers(self.dtype, self.apply, self.final_norm)
        out: Tensor = self.module(vectors, prepared=layers, **facts)
        return out.to(self.dtype)

    def apply(
        self,
        x: Tensor,
        context: AttentionContext,
        *,
        layer: int,
        memory: Tensor | None = None,
        memory_context: AttentionContext | None = None,
        cache: PastKeys | None = None,
        selection: Selection | None = None,
    ) -> Tensor:
        """Apply a layer; arguments as for `BlockModule.forward`, without a cache."""
        assert cache is None, "`GrowingRows` keeps the keys and values of prepared layers"
        prepared_layer = self.layers[layer]
        x = _attended(prepared_layer.attention, x, context, layer, selection)
        if prepared_layer.cross is not None and memory is not None and memory_context is not None:
            if selection is not None:
                memory_context = memory_context.of_queries(selection.positions)
            half = prepared_layer.cross
            query = half.split(half.query(half.enter(x)), 1)[0]
            key, value = half.split(half.both(memory), 2)
            x = half.leave(half.mixed(query, key, value, memory_context, layer), x)
        return prepared_layer.feed_forward(x)

    def ragged(
        self,
        vectors: Tensor,
        segments: Tensor | None,
        groups: Sequence[RowGroup],
        position: Place | None = None,
        global_tokens: Sequence[Tensor | None] | None = None,
    ) -> Tensor:
        """Return hidden states (N, D) of concatenated rows (N, E); with `position`, those of that
        position of each row (R, D)."""
        x = self.embedded(vectors, segments, groups)
        contexts = self.contexts(x, groups, global_tokens)
        for number, layer in enumerate(self.layers):
            at = position if number == len(self.layers) - 1 else None
            x = read_layer(layer, number, x, groups, contexts[self.context_of[number]], at)
        if position is not None and not self.layers:
            x = x[places_of(groups, position, x.device)]
        return x if self.final_norm is None else self.final_norm(x)

    def embedded(
        self, vectors: Tensor, segments: Tensor | None, groups: Sequence[RowGroup]
    ) -> Tensor:
        """Return the input (N, D) of the first layer for concatenated rows (N, E)."""
        rows = zip(cut(vectors, groups), cut(segments, groups), strict=True)
        embed = self.module.embeddings
        return torch.cat([embed(x, None, kind).flatten(0, 1) for x, kind in rows]).to(self.dtype)

    def contexts(
        self,
        x: Tensor,
        groups: Sequence[RowGroup],
        global_tokens: Sequence[Tensor | None] | None = None,
    ) -> list[list[AttentionContext]]:
        """Return the attention contexts [i][g] of `attentions[i]` in group g of the rows (N, D),
        with the `global_tokens` of each group."""
        marks = [None] * len(groups) if global_tokens is None else global_tokens
        by_group = [
            [
                self.module._sight(kind, None, None, None, 0, group, None, marked)
                for kind in self.attentions
            ]
            for group, marked in zip(cut(x, groups), marks, strict=True)
        ]
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
    """Apply one layer to concatenated rows; with `position`, only return states there (R, D)."""
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
    layer: int,
    selection: Selection | None,
) -> Tensor:
    """Apply a layer's self-attention at all positions or at the selected ones."""
    h = half.enter(x)
    if selection is None:
        inputs = (h, h)
        query, key, value = (p for out, count in half.own(h) for p in half.split(out, count))
    else:
        context, x = context.of_queries(selection.positions), selection.take(x)
        inputs = (selection.take(h), h)
        query = half.split(half.query(inputs[0]), 1)[0]
        key, value = half.split(half.both(h), 2)
    return half.leave(half.mixed(query, key, value, context, layer, inputs), x)


def _ragged(
    half: PreparedAttention,
    x: Tensor,
    groups: Sequence[RowGroup],
    contexts: Sequence[AttentionContext],
    layer: int,
    at: Tensor | None = None,
) -> Tensor:
    """Apply self-attention to concatenated rows (N, D), group by group. `at` is the flat index of
    the only query of each row; None if all positions are queries."""
    h = half.enter(x)
    chosen = h if at is None else h[at]
    outputs = half.own(h) if at is None else [(half.query(chosen), 1), (half.both(h), 2)]
    x = x if at is None else x[at]
    rows = [group.count for group in groups]
    num_positions = [group.count * group.length for group in groups]
    selected = at is not None
    parts = [p.split(rows if selected and count == 1 else num_positions) for p, count in outputs]
    inputs: list[list[Tensor]] = []
    if any(context.global_rows is not None for context in contexts):
        inputs = [
            [
                source.unflatten(0, (group.count, -1))
                for group, source in zip(groups, sources, strict=True)
            ]
            for sources in (
                chosen.split(rows if selected else num_positions),
                h.split(num_positions),
            )
        ]
    out = x.new_empty(len(x), half.heads * half.width)
    begin = 0
    for number, (group, context) in enumerate(zip(groups, contexts, strict=True)):
        query, key, value = (
            heads
            for part, (_, count) in zip(parts, outputs, strict=True)
            for heads in half.split(part[number].unflatten(0, (group.count, -1)), count)
        )
        sources = (inputs[0][number], inputs[1][number]) if inputs else None
        mixed = half.mixed(query, key, value, context, layer, sources)
        end = begin + mixed.shape[0] * mixed.shape[1]
        out[begin:end].view(mixed.shape).copy_(mixed)
        begin = end
    return half.leave(out, x)


def cut(x: Tensor | None, groups: Sequence[RowGroup]) -> Iterator[Any]:
    """Yield the part of `x` (N, …) of each group as (count, length, …); None if `x` is None."""
    begin = 0
    for group in groups:
        if x is None:
            yield None
            continue
        end = begin + group.count * group.length
        yield x[begin:end].view(group.count, group.length, *x.shape[1:])
        begin = end


def places_of(groups: Sequence[RowGroup], position: Place, device: torch.device) -> Tensor:
    """Return the flat index (R,) of the first or last id of each row."""
    lengths = torch.tensor([g.length for g in groups for _ in range(g.count)])
    ends = lengths.cumsum(0)
    return (ends - lengths if position == "first" else ends - 1).to(device)


def _column(group: RowGroup, position: Place, device: torch.device) -> Tensor:
    at = 0 if position == "first" else group.length - 1
    return torch.full((group.count, 1), at, device=device)


class Prepared:
    """A network prepared for inference by `prepare`. Methods have the same arguments as those of
    `Transformer`; none computes gradients. Hidden states have the dtype of the products, scores
    that of the network. A stack is packed when it is first used."""

    # Another engine that computes hidden states instead of the stacks, in `ragged` only.
    engine: Any = None

    def __init__(self, network: Transformer, products: Products) -> None:
        self.network, self.products = network, products
        self.config: TransformerConfig = network.config
        self.own, self.dtype = network.tokens.weight.dtype, products.dtype

    @property
    def device(self) -> torch.device:
        return self.network.device

    def restore(self) -> None:
        """Restore the weights of the network that `give_up` has freed."""
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
        facts["global_tokens"] = self.network.global_tokens(tokens, facts.get("positions"))
        facts["visible"] = self.network.visible_words(tokens, facts.get("visible"))
        return self.encoder(self.network.token_vectors(tokens), **facts)

    @torch.no_grad()
    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        memory: Float[Tensor, "B S D"] | None = None,
        **facts: Any,
    ) -> Tensor:
        """As `Transformer.decode`, with its arguments but `cache`."""
        self.network.require_decoder(with_memory=memory is not None)
        assert self.decoder is not None
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
        """Return hidden states of concatenated rows without padding, from the encoder or from a
        decoder without one.

        Rows of a group have equal lengths and share one call of attention; all other operations
        run over all ids at once. With `position`, return only the states of the first or last id of
        each row (R, D); the last layer is not computed elsewhere.
        """
        stack = self.reader
        if not stack.takes_ragged:
            run = self.encode if self.encoder is not None else self.decode
            groups_of_ids = zip(cut(tokens, groups), cut(segments, groups), strict=True)
            x = torch.cat([run(ids, segments=kind).flatten(0, 1) for ids, kind in groups_of_ids])
            return x if position is None else x[places_of(groups, position, x.device)]
        vectors = self.network.token_vectors(tokens[None])[0]
        return stack.ragged(vectors, segments, groups, position, self.marks(tokens, groups))

    def marks(self, tokens: Int[Tensor, " N"], groups: Sequence[RowGroup]) -> list[Tensor | None]:
        """Return the global tokens of each group of concatenated rows."""
        return [self.network.global_tokens(ids) for ids in cut(tokens, groups)]

    @property
    def reader(self) -> PreparedStack:
        """The stack that encodes texts: the encoder, or a decoder without one."""
        stack = self.encoder if self.encoder is not None else self.decoder
        assert stack is not None  # every config has one
        return stack

    # -------------------------------------------------------------------------------------- heads
    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any V"]:
        """As `Transformer.logits`."""
        if self.dtype == self.own:
            return self.network.logits(hidden)
        x = self.head_hidden(hidden).to(self.dtype)
        return self.vocabulary(x.flatten(0, -2)).unflatten(0, hidden.shape[:-1]).to(self.own)

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
        """The stack that generates: the decoder, or a causal encoder."""
        stack = self.decoder if self.network.decoder is not None else self.encoder
        assert stack is not None  # every config has one
        return stack

    @cached_property
    def vocabulary(self) -> PackedWeight:
        with torch.no_grad():
            return self.products.projection(self.head_weight, self.head_bias)

    @cached_property
    def vocabulary_key(self) -> tuple[int, ...]:
        """A key that is equal for networks that compute vocabulary scores in the same way."""
        head = self.network.vocabulary_head
        return (id(self.head_weight), *map(id, [] if head is None else head.parameters()))

    @torch.inference_mode()
    def scores(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """Return float32 scores over the vocabulary; meant for a few states at a time."""
        head_inputs = self.head_hidden(hidden)
        if self.products.live:
            return finite(F.linear(head_inputs, self.head_weight, self.head_bias).float())
        return finite(self.vocabulary(head_inputs.to(self.dtype)).float())


def finite(values: Tensor, where: object = None) -> Tensor:
    """Return `values`; raise a `CheckpointError` if one is infinite or NaN, as products of finite
    weights can be."""
    if not bool(values.isfinite().all()):
        raise CheckpointError(
            "the model computes numbers that are not finite",
            where=where,
            found=f"{int((~values.isfinite()).sum())} of {values.numel()} are infinite or NaN",
            wanted="weights whose products are numbers",
            do="use an earlier checkpoint, or train it again at a smaller learning rate",
        )
    return values
