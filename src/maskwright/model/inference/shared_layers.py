"""Networks that share weights, run together: the product of a shared weight is computed once for
the rows of all networks, the adapters of a network (LoRA, (IA)³, bottleneck) on its own rows only.

    networks   A (base)  B (LoRA in layer 1)         one text for both
    layer 0    [text             ]                   computed once: the networks are still equal
    layer 1    [text of A][text of B]                x @ W.T for both, + x A B for the second
    states     [        ] [        ]                 of each network

From the first layer in which the requested networks differ, a text is computed once for each.

Letters: G networks, T texts, N ids of all rows, R rows, D width, C distinct networks so far.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from maskwright.model.inference.batches import groups_of
from maskwright.model.inference.blocks import (
    PreparedAttention,
    PreparedFeedForward,
    PreparedLayer,
    PreparedNorm,
    Product,
    finished,
)
from maskwright.model.inference.encoded import members_of
from maskwright.model.inference.prepared import Place, Prepared, PreparedStack, read_layer

Key = tuple[object, ...]
Half = TypeVar("Half", PreparedAttention, PreparedFeedForward)
# The slice of rows of each network, by the total number of rows (all ids, or one for each text).
Spans = Mapping[int, Sequence[slice]]


class SharedLayers:
    """Computes the hidden states of several networks for which `can_share` holds.

    Attributes:
        different: for the embeddings and each layer, the number (G,) of the distinct network that
            each network is equal to up to there.
    """

    def __init__(self, networks: Sequence[Prepared]) -> None:
        self.networks, self.stacks = list(networks), [network.reader for network in networks]
        keys: list[Key] = [_entry_key(network, network.reader) for network in networks]
        last_layer = len(self.stacks[0].layers) - 1
        self.different = [_numbered(keys)]
        for number in range(last_layer + 1):
            for member, stack in enumerate(self.stacks):
                layer_key = _layer_key(stack.layers[number])
                if number == last_layer and stack.final_norm is not None:
                    layer_key = (*layer_key, stack.final_norm.key)
                keys[member] = (self.different[-1][member], *layer_key)
            self.different.append(_numbered(keys))

    def readings(self, requested: Bool[np.ndarray, "G T"]) -> NDArray[np.int64]:
        """Return (T,) the number of distinct networks that compute each text."""
        network_numbers = np.array(self.different[-1])
        rows = [
            requested[network_numbers == number].any(0)
            for number in range(network_numbers.max() + 1)
        ]
        return np.stack(rows).sum(0)

    @torch.inference_mode()
    def ragged(
        self,
        tokens: Int[Tensor, " N"],
        lengths: NDArray[np.int64],
        requested: Bool[np.ndarray, "G T"],
        segments: Int[Tensor, " N"] | None = None,
        position: Place | None = None,
    ) -> list[Tensor]:
        """Return the hidden states of each network: (N, D) of its `requested` texts in order, or
        (R, D) at `position` of each.

        Args:
            tokens: concatenated ids of all texts.
            lengths: (T,) lengths of the texts; texts of equal length are adjacent.
        """
        level = _Level(self.different[0], requested, lengths)
        x = self._entered(level, tokens, lengths, segments)
        contexts = self.stacks[0].contexts(x, level.groups)
        last_layer = len(self.different) - 2
        for number, different in enumerate(self.different[1:]):
            if different != level.different:
                previous, level = level, _Level(different, requested, lengths)
                x = x[level.taken_from(previous).to(x.device)]
                contexts = self.stacks[0].contexts(x, level.groups)
            layers = [self.stacks[member].layers[number] for member in level.members]
            context = contexts[self.stacks[0].context_of[number]]
            layer, at = mixed_layer(layers, level.spans), position if number == last_layer else None
            x = read_layer(layer, number, x, level.groups, context, at)
        spans = level.spans[len(x)]
        norm = _norm([self.stacks[member].final_norm for member in level.members], level.spans)
        x = x if norm is None else norm(x)
        return [
            x[spans[row_set]][level.mine(member, None if position else lengths)]
            for member, row_set in enumerate(level.different)
        ]

    def _entered(
        self,
        level: _Level,
        tokens: Tensor,
        lengths: NDArray[np.int64],
        segments: Tensor | None,
    ) -> Float[Tensor, "N D"]:
        """Return the embeddings, the input of the first layer."""
        token_indices = level.ids(lengths)
        tokens = tokens[token_indices.to(tokens.device)]
        segments = None if segments is None else segments[token_indices.to(tokens.device)]
        embedded = []
        for member, groups, span in zip(
            level.members, level.groups_of, level.spans[len(tokens)], strict=True
        ):
            vectors = self.networks[member].network.token_vectors(tokens[None, span])[0]
            kinds = None if segments is None else segments[span]
            embedded.append(self.stacks[member].embedded(vectors, kinds, groups))
        return torch.cat(embedded)


class SharedEngine:
    """As `SharedLayers`, for networks whose hidden states come from the same other engine."""

    def __init__(self, networks: Sequence[Prepared]) -> None:
        self.networks = list(networks)

    def readings(self, requested: Bool[np.ndarray, "G T"]) -> NDArray[np.int64]:
        """Return (T,) ones: each text is computed once."""
        return np.ones(requested.shape[1], np.int64)

    @torch.inference_mode()
    def ragged(
        self,
        tokens: Int[Tensor, " N"],
        lengths: NDArray[np.int64],
        requested: Bool[np.ndarray, "G T"],
        segments: Int[Tensor, " N"] | None = None,
        position: Place | None = None,
    ) -> list[Tensor]:
        """As `SharedLayers.ragged`."""
        states = self.networks[0].ragged(tokens, groups_of(lengths), segments, position)
        rows = requested if position else [np.repeat(mine, lengths) for mine in requested]
        return [states[torch.from_numpy(mine).to(states.device)] for mine in rows]


def layers_of(networks: Sequence[Prepared]) -> SharedLayers | SharedEngine:
    """Return the joint reader of networks for which `can_share` holds."""
    return (SharedLayers if networks[0].engine is None else SharedEngine)(networks)


class _Level:
    """The rows at one layer: the requested texts of each distinct network, in order.

    Attributes:
        different: (G,) the number of the distinct network that each network is equal to.
        members: (C,) the index of one network for each distinct one.
        rows: (C, T) whether the distinct network computes the text.
        spans: `Spans` of the distinct networks, both by ids and by texts.
    """

    def __init__(
        self, different: list[int], requested: NDArray[np.bool_], lengths: NDArray[np.int64]
    ) -> None:
        self.different, self.wanted, self.lengths = different, requested, lengths
        count = max(different) + 1
        self.members = [different.index(number) for number in range(count)]
        self.rows = np.stack(
            [requested[np.equal(different, number)].any(0) for number in range(count)]
        )
        row_lengths = [lengths[row] for row in self.rows]
        self.groups_of = [groups_of(lengths_of_rows) for lengths_of_rows in row_lengths]
        self.groups = [group for groups in self.groups_of for group in groups]
        self.spans = spans_of(
            [int(lengths_of_rows.sum()) for lengths_of_rows in row_lengths]
        ) | spans_of([*map(len, row_lengths)])

    def ids(self, lengths: NDArray[np.int64]) -> Tensor:
        """Return the flat indices of the rows' ids among those of all texts."""
        return torch.from_numpy(members_of(lengths, np.nonzero(self.rows)[1]))

    def taken_from(self, before: _Level) -> Tensor:
        """Return the flat indices of the rows' ids among those of the level `before`."""
        row_numbers = np.cumsum(before.rows.reshape(-1)).reshape(before.rows.shape) - 1
        row_members, row_texts = np.nonzero(self.rows)
        previous = np.array([before.different[member] for member in self.members])[row_members]
        lengths = self.lengths[np.nonzero(before.rows)[1]]
        return torch.from_numpy(members_of(lengths, row_numbers[previous, row_texts]))

    def mine(self, member: int, lengths: NDArray[np.int64] | None) -> Tensor | slice:
        """Return the indices of the texts requested of network `member`, or of their ids with
        `lengths`, among the rows of its distinct network."""
        computed = self.rows[self.different[member]]
        own_rows = np.flatnonzero(self.wanted[member][computed])
        if len(own_rows) == computed.sum():
            return slice(None)
        if lengths is None:
            return torch.from_numpy(own_rows)
        return torch.from_numpy(members_of(lengths[computed], own_rows))


def spans_of(counts: Sequence[int]) -> dict[int, list[slice]]:
    """Return `Spans` for networks with `counts` rows each."""
    ends = np.cumsum(counts).tolist()
    pairs = zip([0, *ends], ends, strict=False)
    return {ends[-1]: [slice(begin, end) for begin, end in pairs]}


def can_share(network: Prepared, other: Prepared) -> bool:
    """Whether two networks can be run together: they have equal architectures, shared weights and
    neither global tokens nor an adapter that adds vectors or keys in front; or they use the same
    other engine."""
    if network.engine is not None or other.engine is not None:
        return network.engine is other.engine
    return (
        network.products is other.products
        and not network.products.live
        and network.network.tokens.weight is other.network.tokens.weight
        and (network.encoder is None) == (other.encoder is None)
        and network.reader.config == other.reader.config
        and network.reader.config.global_tokens is None
        and _is_plain(network)
        and _is_plain(other)
    )


def can_write_together(network: Prepared, other: Prepared) -> bool:
    """As `can_share`, for generation, where embeddings and final norms must be shared, too."""
    own_stack, other_stack = network.writer, other.writer
    return (
        network.products is other.products
        and not network.products.live
        and own_stack.config == other_stack.config
        and not any(
            stack.plain or any(layer.attention.before is not None for layer in stack.layers)
            for stack in (own_stack, other_stack)
        )
        and _entry_key(network, own_stack) == _entry_key(other, other_stack)
        and (own_stack.final_norm and own_stack.final_norm.key)
        == (other_stack.final_norm and other_stack.final_norm.key)
    )


def _is_plain(network: Prepared) -> bool:
    stack = network.reader
    return stack.takes_ragged and all(layer.attention.before is None for layer in stack.layers)


# ---------------------------------------------------------------------------------- which are equal
def _numbered(keys: Sequence[Key]) -> list[int]:
    """Number the keys in order of first appearance; equal keys have equal numbers."""
    numbers: dict[Key, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _entry_key(network: Prepared, prepared_stack: PreparedStack) -> Key:
    """Return a key that is equal for networks with the same embeddings."""
    stack = prepared_stack.module
    modules = [
        network.network.tokens,
        stack.embeddings,
        *([stack.relative] if stack.relative else []),
    ]
    hooked = any(
        m._forward_hooks or m._forward_pre_hooks for module in modules for m in module.modules()
    )
    parameter_ids = [id(parameter) for module in modules for parameter in module.parameters()]
    return (*parameter_ids, id(network) if hooked else None)


def _layer_key(layer: PreparedLayer) -> Key:
    """Return a key that is equal for layers that compute the same function."""
    halves: list[PreparedAttention | PreparedFeedForward] = [layer.attention, layer.feed_forward]
    norms = [norm for half in halves for norm in (half.norm_before, half.norm_after)]
    hooks = [id(hook) for half in halves for hook in half._hooks]
    return (
        *(id(product) for half in halves for product in _products(half).values()),
        *(None if norm is None else norm.key for norm in norms),
        *hooks,
    )


def _products(half: PreparedAttention | PreparedFeedForward) -> dict[str, Product]:
    return {name: value for name, value in vars(half).items() if isinstance(value, Product)}


# --------------------------------------------------------------------------- layers of several
def mixed_layer(layers: Sequence[PreparedLayer], spans: Spans) -> PreparedLayer:
    """Return a layer that applies `layers[i]` to the rows of span i."""
    if len(layers) == 1:
        return layers[0]
    mixed = copy.copy(layers[0])
    mixed.attention = _mixed_half([layer.attention for layer in layers], spans)
    mixed.feed_forward = _mixed_half([layer.feed_forward for layer in layers], spans)
    crosses = [layer.cross for layer in layers if layer.cross is not None]
    mixed.cross = _mixed_half(crosses, spans) if crosses else None
    return mixed


def _mixed_half(halves: Sequence[Half], spans: Spans) -> Half:
    mixed = copy.copy(halves[0])
    mixed.norm_before = _norm([half.norm_before for half in halves], spans)
    mixed.norm_after = _norm([half.norm_after for half in halves], spans)
    for name in _products(halves[0]):
        setattr(mixed, name, _product([getattr(half, name) for half in halves], spans))
    if any(half._hooks for half in halves):
        mixed._hooks = [_hook(halves, spans)]
    return mixed


def _norm(norms: Sequence[PreparedNorm | None], spans: Spans) -> PreparedNorm | None:
    first_norm = norms[0]
    if first_norm is None or all(norm is not None and norm.key == first_norm.key for norm in norms):
        return first_norm

    def mixed(x: Tensor) -> Tensor:
        return torch.cat(
            [norm(x[span]) for norm, span in zip(norms, spans[len(x)], strict=True) if norm]
        )

    return mixed  # type: ignore[return-value]  # only called


def _hook(
    halves: Sequence[PreparedAttention | PreparedFeedForward], spans: Spans
) -> Callable[..., Tensor]:
    """Return a hook that applies the hooks of each half to its own rows."""

    def act(module: object, inputs: object, out: Tensor) -> Tensor:
        outputs = []
        for half, span in zip(halves, spans[len(out)], strict=True):
            output = out[span]
            for hook in half._hooks:
                changed = hook(half.module, (), output)
                output = output if changed is None else changed
            outputs.append(output)
        return torch.cat(outputs)

    return act


def _product(products: Sequence[Product], spans: Spans) -> Product:
    """Return a product for all rows: one multiplication if the networks share the weight, with the
    hooks of each network applied to its own rows; else one for each run of equal products."""
    first_product = products[0]
    if all(product is first_product for product in products):
        return first_product
    same_weight = first_product.packed is not None and all(
        product.packed is not None and product.key == first_product.key for product in products
    )

    def separate(x: Tensor, residual: Tensor | None = None) -> Tensor:
        outputs = []
        pairs = zip(products, spans[len(x)], strict=True)
        for _, run in groupby(pairs, key=lambda pair: id(pair[0])):
            equal_products = list(run)
            span = slice(equal_products[0][1].start, equal_products[-1][1].stop)
            outputs.append(
                equal_products[0][0](x[span], None if residual is None else residual[span])
            )
        return torch.cat(outputs)

    def combined(x: Tensor, residual: Tensor | None = None) -> Tensor:
        hooked = [
            (product, span)
            for product, span in zip(products, spans[len(x)], strict=True)
            if product.acts and span.start < span.stop
        ]
        inputs = x
        if any(product.changes_input for product, _ in hooked):
            inputs = x.clone()
            for product, span in hooked:
                inputs[span] = product.entered(x[span])
        out = first_product.linear(inputs)
        for product, span in hooked:
            product.left(inputs[span], out[span])
        return finished(out, first_product.activation, residual)

    return combined if same_weight else separate  # type: ignore[return-value]  # only called
