"""A network made ready to answer: the same function, on weights that are laid out once.

    prepare(network) -> Prepared      encode, decode, logits, pool, head     as the network has them
                                      ragged                                 rows without padding

What is different: query, key and value that read the same input are one product; oneDNN is given
weights in its own blocks and adds bias, activation and residual while it writes; there is no
gradient and no dropout. A module that something is attached to from outside (an adapter, a hook) is
called as it is, with all that it does. Looking in (`trace`) is left to the network itself.

Weights are read when the network is prepared: a change afterwards is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.errors import ConfigError
from maskwright.nn.attention import Attention, AttentionContext, attend
from maskwright.nn.block import Block
from maskwright.nn.cache import KVCache
from maskwright.nn.config import Activation, TransformerConfig
from maskwright.nn.feed_forward import ACTIVATIONS, FeedForward
from maskwright.nn.kernels.packed import Packed
from maskwright.nn.mask import AttentionMask, bidirectional
from maskwright.nn.norm import Norm
from maskwright.nn.positions import rotate
from maskwright.nn.selection import Selection
from maskwright.nn.stack import Stack
from maskwright.nn.transformer import Transformer
from maskwright.train.machine.choices import Precision
from maskwright.train.machine.machine import choose

# Which id of a row is read.
Place = Literal["first", "last"]


def prepare(
    network: Transformer,
    *,
    precision: Precision = "auto",
    device: str | None = None,
    give_up: bool = False,
) -> Prepared:
    """`network` made ready to answer.

    Args:
        precision: "auto" is bfloat16 where the device has matrix units for it, else float32.
        device: where to compute; None: where the network is.
        give_up: the caller does not use the network any more: weights that were laid out anew are
            freed there, so that none is in memory twice.

    Raises:
        ConfigError: a device of no known kind.
        ResourceError: a device that is not there.
    """
    machine = choose(precision, str(network.device) if device is None else device)
    weight = network.tokens.weight
    if (weight.dtype, weight.device) != (machine.compute, machine.device):
        network = network if give_up else copy.deepcopy(network)
        network = network.to(device=machine.device, dtype=machine.compute)
    with torch.no_grad():
        return Prepared(network.eval(), give_up)


def attached(*modules: nn.Module | None) -> bool:
    """Whether something acts at one of the modules from outside."""
    return any(
        module is not None
        and (
            bool(module._forward_hooks or module._forward_pre_hooks)
            or getattr(module, "before", None) is not None
        )
        for module in modules
    )


class Projection:
    """`activation(x @ weight.T + bias)`, or that plus a residual, of one or more linear modules
    that read the same input, their outputs side by side.

    Args:
        modules: with equal inputs, all with a bias or none; nothing is attached to them.
        activation: None: none.
        give_up: weights of which a copy is kept are freed in the modules.
    """

    def __init__(
        self, modules: Sequence[nn.Linear], activation: Activation | None, give_up: bool
    ) -> None:
        self.product = Packed(*_joined(modules), activation)
        if give_up and (self.product.fits or len(modules) > 1):
            for module in modules:
                module.weight.data = module.weight.data.new_empty(0)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if x.dim() == 2:
            return self.product(x, residual)
        beside = None if residual is None else residual.flatten(0, -2)
        return self.product(x.flatten(0, -2), beside).unflatten(0, x.shape[:-1])


def _joined(modules: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    if len(modules) == 1:
        bias = modules[0].bias
        return modules[0].weight.detach(), None if bias is None else bias.detach()
    weight = torch.cat([module.weight.detach() for module in modules])
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    return weight, torch.cat(biases) if biases else None


class Called:
    """A module called as it is, where a `Projection` would stand."""

    def __init__(self, *modules: nn.Module, activation: Activation | None = None) -> None:
        self.modules = modules
        self.act = None if activation is None else ACTIVATIONS[activation]

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        parts = [module(x) for module in self.modules]
        out = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        if self.act is not None:
            out = self.act(out)
        return out if residual is None else out + residual


def projection(
    *modules: nn.Linear, activation: Activation | None = None, give_up: bool = False
) -> Projection | Called:
    """Prepared, unless something is attached."""
    if attached(*modules):
        return Called(*modules, activation=activation)
    return Projection(modules, activation, give_up)


class _Norm:
    """`Norm` without its module; the module where something is attached, or it is RMS."""

    def __init__(self, norm: Norm) -> None:
        self.plain = norm if attached(norm) or norm.config.kind != "layer" else None
        self.shape, self.eps = norm.weight.shape, norm.config.eps
        self.weight = norm.weight.detach()
        self.bias = None if norm.bias is None else norm.bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        if self.plain is not None:
            return self.plain(x)
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


def _norm(norm: Norm | None) -> _Norm | None:
    return None if norm is None else _Norm(norm)


class _Attention:
    """Attention over the input itself (`own`), or over a memory."""

    def __init__(self, attention: Attention, own: bool, give_up: bool) -> None:
        config = attention.config
        self.plain = attention if attached(attention) else None
        self.shape = (config.heads, config.head_width)
        self.inner = config.heads * config.head_width
        self.scale = config.head_width**-0.5 if config.scaled else 1.0
        self.joined = own
        if self.plain is not None:
            return
        if own:
            self.all = projection(attention.query, attention.key, attention.value, give_up=give_up)
        else:
            self.query = projection(attention.query, give_up=give_up)
            self.both = projection(attention.key, attention.value, give_up=give_up)
        self.output = projection(attention.output, give_up=give_up)

    def split(self, x: Tensor, count: int) -> tuple[Tensor, ...]:
        """`count` of (B, H, T, W) that lie side by side in `x` (B, T, count * H * W)."""
        heads = x.view(x.shape[0], x.shape[1], count, *self.shape)
        return heads.permute(2, 0, 3, 1, 4).unbind(0)

    def __call__(
        self,
        x: Tensor,
        context: AttentionContext,
        residual: Tensor,
        memory: Tensor | None = None,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Tensor:
        if self.plain is not None:
            return residual + self.plain(x, context, memory=memory, cache=cache, layer=layer)
        if memory is None:
            query, key, value = self._own(x)
        else:
            query, key, value = self._over(x, memory, cache, layer)
        if context.rotary is not None:
            query = rotate(query, context.rotary)
            key = rotate(key, context.key_rotary or context.rotary)
        if memory is None and cache is not None:
            key, value = cache.extend(layer, key, value)
        out = attend(query, key, value, context, scale=self.scale)
        return self.output(out.reshape(x.shape[0], x.shape[1], self.inner), residual)

    def _own(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.joined:
            return self.split(self.all(x), 3)
        return self.split(self.query(x), 1) + self.split(self.both(x), 2)

    def _over(
        self, x: Tensor, memory: Tensor, cache: KVCache | None, layer: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        def make() -> tuple[Tensor, Tensor]:
            key, value = self.split(self.both(memory), 2)
            return key, value

        (query,) = self.split(self.query(x), 1)
        key, value = make() if cache is None else cache.memory(layer, make)
        return query, key, value

    def ragged(
        self,
        x: Tensor,
        residual: Tensor,
        groups: Sequence[Group],
        contexts: Sequence[AttentionContext],
        at: Tensor | None = None,
    ) -> Tensor:
        """Of rows (N, D) that lie one after the other; each group attends for itself. `at` is the
        one position of each row whose query is asked, if not all are."""
        if self.joined:
            sides = [(self.all(x), 3)]
        else:
            sides = [(self.query(x if at is None else x[at]), 1), (self.both(x), 2)]
        rows = [group.count for group in groups]
        places = [group.count * group.length for group in groups]
        cut = [
            side.split(rows if at is not None and count == 1 else places) for side, count in sides
        ]
        out = x.new_empty(len(residual), self.inner)
        begin = 0
        for number, (group, context) in enumerate(zip(groups, contexts, strict=True)):
            query, key, value = (
                part
                for side, (_, count) in zip(cut, sides, strict=True)
                for part in self.split(side[number].view(group.count, -1, side[0].shape[-1]), count)
            )
            if context.rotary is not None:
                query = rotate(query, context.rotary)
                key = rotate(key, context.key_rotary or context.rotary)
            got = attend(query, key, value, context, scale=self.scale)
            end = begin + got.shape[0] * got.shape[1]
            out[begin:end].view(got.shape).copy_(got)
            begin = end
        return self.output(out, residual)


class _FeedForward:
    def __init__(self, half: FeedForward, give_up: bool) -> None:
        config = half.config
        self.plain = half if attached(half) else None
        if self.plain is not None:
            return
        if half.gate is None:
            self.up = projection(half.up, activation=config.activation, give_up=give_up)
        else:
            self.up = projection(half.up, give_up=give_up)
            self.gate = projection(half.gate, activation=config.activation, give_up=give_up)
        self.gated = half.gate is not None
        self.down = projection(half.down, give_up=give_up)

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        if self.plain is not None:
            return residual + self.plain(x)
        inner = self.up(x)
        if self.gated:
            inner = self.gate(x) * inner
        return self.down(inner, residual)


class _Layer:
    """A `Block`, its halves one after the other."""

    def __init__(self, block: Block, selects: bool, give_up: bool) -> None:
        self.pre = block.config.placement == "pre"
        self.plain = block if attached(block) else None
        if self.plain is not None:
            return
        # A layer of which some positions are wanted has queries of those alone.
        self.attention = _Attention(block.attention, not selects, give_up)
        self.attention_norm = _norm(block.attention_norm)
        self.crosses = block.config.cross_attention is not None
        if self.crosses:
            self.cross = _Attention(block.cross_attention, False, give_up)
            self.cross_norm = _norm(block.cross_attention_norm)
        self.feed_forward = _FeedForward(block.feed_forward, give_up)
        self.feed_forward_norm = _norm(block.feed_forward_norm)

    def __call__(
        self,
        x: Tensor,
        context: AttentionContext,
        memory: Tensor | None,
        memory_context: AttentionContext | None,
        cache: KVCache | None,
        layer: int,
        selection: Selection | None,
    ) -> Tensor:
        if self.plain is not None:
            return self.plain(
                x,
                context,
                memory=memory,
                memory_context=memory_context,
                cache=cache,
                layer=layer,
                selection=selection,
            )
        norm = self.attention_norm
        h = x if norm is None or not self.pre else norm(x)
        if selection is None:
            x = self.attention(h, context, x, cache=cache, layer=layer)
        else:
            some = context.of_queries(selection.places)
            x = self.attention(selection.take(h), some, selection.take(x), memory=h, layer=layer)
            if memory_context is not None:
                memory_context = memory_context.of_queries(selection.places)
        x = x if norm is None or self.pre else norm(x)
        if memory is not None and memory_context is not None:
            norm = self.cross_norm
            assert norm is not None
            h = norm(x) if self.pre else x
            x = self.cross(h, memory_context, x, memory=memory, cache=cache, layer=layer)
            x = x if self.pre else norm(x)
        return self._second(x)

    def _second(self, x: Tensor) -> Tensor:
        norm = self.feed_forward_norm
        assert norm is not None
        if self.pre:
            return self.feed_forward(norm(x), x)
        return norm(self.feed_forward(x, x))

    @property
    def takes_ragged(self) -> bool:
        return self.plain is None and self.attention.plain is None and not self.crosses

    def ragged(
        self,
        x: Tensor,
        groups: Sequence[Group],
        contexts: Sequence[AttentionContext],
        at: Tensor | None = None,
    ) -> Tensor:
        norm = self.attention_norm
        h = x if norm is None or not self.pre else norm(x)
        x = self.attention.ragged(h, x if at is None else x[at], groups, contexts, at)
        return self._second(x if norm is None or self.pre else norm(x))


@dataclass(frozen=True)
class Group:
    """`count` rows of `length` ids each, one after the other."""

    count: int
    length: int


class _Stack:
    def __init__(self, stack: Stack, give_up: bool) -> None:
        self.module, self.config = stack, stack.config
        self.plain = attached(stack)
        self.layers: list[_Layer] = []
        if self.plain:
            return
        last = stack.config.weights_of[-1]
        made = {
            source: _Layer(stack.blocks[str(source)], source == last, give_up)  # type: ignore[arg-type]
            for source in dict.fromkeys(stack.config.weights_of)
        }
        self.layers = [made[source] for source in stack.config.weights_of]
        self.final_norm = _norm(stack.final_norm)
        # Layers that see alike share a context; here, which of them each layer has.
        seen = [
            (a.pattern, a.window, a.positions, a.head_width)
            for a in (block.attention for block in stack.config.blocks)
        ]
        different = list(dict.fromkeys(seen))
        self.attentions = [stack.config.blocks[seen.index(one)].attention for one in different]
        self.context_of = [different.index(one) for one in seen]

    @property
    def takes_ragged(self) -> bool:
        return not self.plain and all(layer.takes_ragged for layer in self.layers)

    def __call__(
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
        at: Tensor | None = None,
    ) -> Tensor:
        if self.plain:
            return self.module(
                vectors,
                positions=positions,
                segments=segments,
                visible=visible,
                prefix=prefix,
                memory=memory,
                memory_visible=memory_visible,
                cache=cache,
                at=at,
            )
        start = 0 if cache is None else cache.length
        x = self.module.embeddings(vectors, positions, segments, start)
        count = x.shape[1]
        contexts = self._contexts(x, visible, prefix, positions, start)
        memory_context = None
        if memory is not None:
            facts = bidirectional if memory_visible is None else memory_visible
            memory_context = AttentionContext(
                facts.draw(count, memory.shape[1], start=start, device=x.device)
            )
        selection = None
        if at is not None and cache is None:
            selection = Selection.of(at, len(x), count)
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            x = layer(
                x,
                contexts[self.context_of[number]],
                memory,
                memory_context,
                cache,
                number,
                selection if number == last else None,
            )
        if cache is not None:
            cache.advance(count)
        x = x if self.final_norm is None else self.final_norm(x)
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
    ) -> list[AttentionContext]:
        sight = self.module._sight
        return [sight(a, visible, prefix, positions, start, x, None) for a in self.attentions]

    def ragged(
        self,
        vectors: Tensor,
        segments: Tensor | None,
        groups: Sequence[Group],
        place: Place | None = None,
    ) -> Tensor:
        """Hidden states (N, D) of rows (N, E) that lie one after the other, or (R, D) of one place
        of each row."""
        x = torch.cat(
            [
                self.module.embeddings(one, None, kind).flatten(0, 1)
                for one, kind in zip(_cut(vectors, groups), _cut(segments, groups), strict=True)
            ]
        )
        by_group = [
            self._contexts(part, None, None, None, 0)
            for part in _cut(x, groups)
            if part is not None
        ]
        contexts = [[one[i] for one in by_group] for i in range(len(self.attentions))]
        at = None
        for number, layer in enumerate(self.layers):
            here = contexts[self.context_of[number]]
            if place is not None and number == len(self.layers) - 1:
                at = places_of(groups, place, x.device)
                here = [
                    context.of_queries(_column(group, place, x.device))
                    for context, group in zip(here, groups, strict=True)
                ]
            x = layer.ragged(x, groups, here, at)
        return x if self.final_norm is None else self.final_norm(x)


def _cut(x: Tensor | None, groups: Sequence[Group]) -> Iterator[Any]:
    """The groups' parts, each (count, length, …)."""
    begin = 0
    for group in groups:
        if x is None:
            yield None
            continue
        end = begin + group.count * group.length
        yield x[begin:end].view(group.count, group.length, *x.shape[1:])
        begin = end


def places_of(groups: Sequence[Group], place: Place, device: torch.device) -> Tensor:
    """Where the first or the last ids of all rows stand."""
    lengths = torch.tensor([g.length for g in groups for _ in range(g.count)])
    ends = lengths.cumsum(0)
    return (ends - lengths if place == "first" else ends - 1).to(device)


def _column(group: Group, place: Place, device: torch.device) -> Tensor:
    at = 0 if place == "first" else group.length - 1
    return torch.full((group.count, 1), at, device=device)


class Prepared:
    """A network that answers; `prepare` makes it. Methods are those of `Transformer`, with the same
    arguments, less `trace`; none has a gradient."""

    def __init__(self, network: Transformer, give_up: bool = False) -> None:
        self.network = network
        self.config: TransformerConfig = network.config
        self.dtype = network.tokens.weight.dtype
        self.encoder = None if network.encoder is None else _Stack(network.encoder, give_up)
        self.decoder = None if network.decoder is None else _Stack(network.decoder, give_up)
        self.pooler = None if network.pooler is None else projection(network.pooler)

    @property
    def device(self) -> torch.device:
        return self.network.device

    # ------------------------------------------------------------------------------------- stacks
    @torch.no_grad()
    def encode(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """As `Transformer.encode`."""
        if self.encoder is None:
            raise ConfigError("this model has no encoder", where="encoder", do="use decode")
        vectors = self.network.token_vectors(tokens)
        return self.encoder(vectors, positions=positions, segments=segments, visible=visible, at=at)

    @torch.no_grad()
    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_visible: AttentionMask | None = None,
        cache: KVCache | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """As `Transformer.decode`; a `cache` has this network's `dtype`."""
        if self.decoder is None or self.config.decoder is None:
            raise ConfigError("this model has no decoder", where="decoder", do="use encode")
        crosses = self.config.decoder.blocks[0].cross_attention is not None
        if crosses != (memory is not None):
            raise ConfigError(
                "a decoder with cross-attention needs a memory, and only such a decoder",
                where="decode(memory=...)",
                found="no memory" if memory is None else "a memory",
            )
        return self.decoder(
            self.network.token_vectors(tokens),
            positions=positions,
            segments=segments,
            visible=visible,
            prefix=prefix,
            memory=memory,
            memory_visible=memory_visible,
            cache=cache,
            at=at,
        )

    @torch.no_grad()
    def ragged(
        self,
        tokens: Int[Tensor, " N"],
        groups: Sequence[Group],
        segments: Int[Tensor, " N"] | None = None,
        place: Place | None = None,
    ) -> Float[Tensor, "N D"] | Float[Tensor, "R D"]:
        """Hidden states of rows that lie one after the other, without padding and without a mask
        against other rows: those of a group are equally long and attend together; every other
        operation goes over all ids at once. Of the encoder, or of a decoder that stands alone.
        With `place`, of the first or the last id of each row alone (R, D): the last layer is not
        computed elsewhere.
        """
        stack = self.encoder if self.encoder is not None else self.decoder
        assert stack is not None
        if not stack.takes_ragged:
            run = self.encode if self.encoder is not None else self.decode
            parts = zip(_cut(tokens, groups), _cut(segments, groups), strict=True)
            x = torch.cat([run(ids, segments=kind).flatten(0, 1) for ids, kind in parts])
            return x if place is None else x[places_of(groups, place, x.device)]
        vectors = self.network.token_vectors(tokens[None])[0]
        return stack.ragged(vectors, segments, groups, place)

    # -------------------------------------------------------------------------------------- heads
    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any V"]:
        """As `Transformer.logits`."""
        return self.network.logits(hidden)

    @torch.no_grad()
    def pool(self, hidden_rows: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """As `Transformer.pool`."""
        if self.pooler is None:
            raise ConfigError("this model has no pooler", where="pooler")
        return self.pooler(hidden_rows).tanh()

    @torch.no_grad()
    def head(self, name: str, hidden: Float[Tensor, "*any D"], **how: Any) -> Tensor:
        """As `Transformer.head`."""
        return self.network.head(name, hidden, **how)
