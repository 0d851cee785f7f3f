"""What a model and a training step cost.

A multiplication and its addition are two operations. Only matrix products are counted, which is all
that matters beyond tiny models; a layer that is used twice (`weights_of`) is counted twice.
Attention is counted as it is computed, whatever its mask hides: all keys, or the blocks that hold a
window, what global tokens add (`num_global` in a row, on average), and where texts are cut into
blocks, what the tokens of texts of these lengths see. Of a training step, the bytes that the
forward pass keeps for the backward pass are counted, too, at the least.

An objective may own several networks: each is counted on what it reads, three times its forward
where it is trained and once where it only answers (a teacher); a last layer only at the positions
whose states are read (`model/nn/stack.py`), and a decoder that writes nothing not at all. Heads of
a few classes are not counted.

Of every token a block keeps what its norms, projections and products read: four vectors of the
model's width, four of the heads', what stands before and after the activation, and the keys and
values that are gathered where texts are cut into blocks. Attention weights, masks of dropout, the
last block (which may be computed at a few positions only) and what an allocator leaves between are
not counted, so that a step needs some more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from maskwright.model.batch import Batch
from maskwright.model.nn.attention import keys_read
from maskwright.model.nn.config import Block, Recurrent, TransformerConfig
from maskwright.model.nn.recurrent import LSTMCells
from maskwright.model.nn.stack import BlockModule, Selection, StackModule
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import NetworkWork, Objective


# ------------------------------------------------------------------------ parameters and operations
@dataclass(frozen=True)
class Cost:
    """Operations of a forward pass, per position of the stack, for "encoder" and "decoder".

    Attributes:
        body: products with weights.
        attention: scores and weighted sums, at the given lengths.
        last: both in the last layer, without its keys and values, which all positions need.
        chosen: the same if the last layer is computed at some positions only.
        memory: cross-attention's keys and values, per position of the encoder.
        vocabulary: the vocabulary head, per position that has a target.
    """

    body: dict[str, int]
    attention: dict[str, float]
    last: dict[str, float]
    chosen: dict[str, float]
    memory: int
    vocabulary: int

    def training(self, stack: str, target_share: float) -> float:
        """Operations per position of `stack` for forward and backward (twice a forward), with the
        vocabulary scored at `target_share` of the positions."""
        return 3 * (self.body[stack] + self.attention[stack] + target_share * self.vocabulary)


class RowSizes(NamedTuple):
    """The length of rows and of the memory, global tokens per row, and the lengths of texts."""

    length: int
    memory_length: int
    num_global: float
    texts: Sequence[int]


def cost(
    model: Transformer,
    length: int,
    memory_length: int = 0,
    num_global: float = 0.0,
    texts: Sequence[int] = (),
) -> Cost:
    """Count the operations of `model` on rows of `length` tokens that hold texts of the lengths
    `texts` (none: one text per row), with a memory of `memory_length` for cross-attention."""
    sizes = RowSizes(length, memory_length, num_global, texts or (length,))
    stacks = {
        name: stack
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack is not None
    }
    vocabulary = 0
    if model.vocabulary_head is not None:
        vocabulary = 2 * model.head_weight.numel() + _products(model.vocabulary_head)
    return Cost(
        body={name: _body(stack, num_global) for name, stack in stacks.items()},
        attention={
            name: sum(_attention(layer, sizes) for layer in _attention_layers(stack))
            for name, stack in stacks.items()
        },
        last={name: _last_layer(stack, sizes) for name, stack in stacks.items()},
        chosen={name: _last_layer(stack, sizes, chosen=True) for name, stack in stacks.items()},
        memory=0 if model.decoder is None else _memory_projections(model.decoder),
        vocabulary=vocabulary,
    )


def _body(stack: StackModule, num_global: float) -> int:
    cells = [cell for cell in stack.modules() if isinstance(cell, LSTMCells)]
    layers = sum(2 * weight.numel() for cell in cells for weight in cell.matrices)
    for layer in _attention_layers(stack):
        layers += _products(layer) - _global_projections(layer, num_global)
    return layers + _products(stack.embeddings) - _memory_projections(stack)


def _global_projections(layer: BlockModule, num_global: float) -> int:
    """The projections of global tokens that are not computed at every position."""
    if layer.config.attention.global_tokens is None:
        return 0
    attention = layer.attention
    keys_and_values = _products(attention.key_global) + _products(attention.value_global)
    return _products(attention.query_global) + (0 if num_global else keys_and_values)


def _memory_projections(stack: StackModule) -> int:
    readers = (layer.cross_attention for layer in _attention_layers(stack) if _crosses(layer))
    return sum(_products(reader.key) + _products(reader.value) for reader in readers)


def _last_layer(stack: StackModule, sizes: RowSizes, *, chosen: bool = False) -> float:
    """Operations of `Cost.last` or `Cost.chosen`: without keys and values, which are everywhere."""
    if not stack.config.attention_blocks:
        return 0
    *_, layer = _attention_layers(stack)
    readers = [layer.attention, *([layer.cross_attention] if _crosses(layer) else [])]
    keys_and_values = sum(_products(reader.key) + _products(reader.value) for reader in readers)
    if layer.config.attention.global_tokens is not None:
        keys_and_values += _global_projections(layer, 0)
    return _products(layer) - keys_and_values + _attention(layer, sizes, chosen=chosen)


def _attention_layers(stack: StackModule) -> Iterator[BlockModule]:
    """The layers with attention, in order."""
    for source in stack.config.weights_of:
        layer = stack.blocks[str(source)]
        if isinstance(layer, BlockModule):
            yield layer


def _crosses(layer: BlockModule) -> bool:
    return layer.config.cross_attention is not None


def _products(module: nn.Module) -> int:
    """Operations per position of all linear layers of `module`."""
    linears = (m for m in module.modules() if isinstance(m, nn.Linear))
    return sum(2 * linear.weight.numel() for linear in linears)


def _attention(layer: BlockModule, sizes: RowSizes, *, chosen: bool = False) -> float:
    """Operations per position of scores and weighted sums, and of the queries of global tokens. If
    only `chosen` positions are computed, each reads all keys."""
    block, length, num_global = layer.config, sizes.length, sizes.num_global
    keys: float = length if chosen else keys_read(block.attention.window, length)
    if (blocks := block.attention.blocks) is not None and not chosen and blocks.splits(length):
        keys = sum(size * blocks.keys_read(size) for size in sizes.texts) / sum(sizes.texts)
    global_queries = 0.0
    if block.attention.global_tokens is not None and num_global:
        keys += num_global if keys < length else 0
        share = 1 if chosen else num_global / length
        keys += share * length
        global_queries = share * _products(layer.attention.query_global)
    reads = [(block.attention, keys)]
    if block.cross_attention is not None:
        reads.append((block.cross_attention, sizes.memory_length))
    inner_products = (4 * keys * config.heads * config.head_width for config, keys in reads)
    return global_queries + sum(inner_products)


# ------------------------------------------------------------------------------ a step
def training_flops(objective: Objective, batch: Batch) -> float:
    """Floating-point operations of forward and backward over all networks of `objective`."""
    return sum(_operations(work, batch) for work in objective.work(batch))


def _operations(work: NetworkWork, batch: Batch) -> float:
    batch = batch if work.batch is None else work.batch
    network, written = work.network, batch.decoder_tokens
    trained = any(parameter.requires_grad for parameter in network.parameters())
    length = batch.tokens.shape[1]
    stacks = list(network.config.stacks)[: 1 if written is None else None]
    marked = network.global_tokens(batch.tokens, batch.positions)
    if marked is not None and batch.documents is not None:
        marked = marked & (batch.documents != 0)
    num_global = 0.0 if marked is None else float(marked.sum()) / len(batch.tokens)
    last_stack, total, text_lengths = stacks[-1], 0.0, list[int]()
    if batch.documents is not None:
        rows = torch.arange(len(batch.documents), device=batch.documents.device)[:, None]
        text_ids = rows * (int(batch.documents.max()) + 1) + batch.documents
        text_lengths = torch.bincount(text_ids[batch.documents != 0]).tolist()
    for stack in stacks:
        tokens = written if stack == "decoder" and written is not None else batch.tokens
        memory_length = length if written is not None else 0
        counted = cost(network, tokens.shape[1], memory_length, num_global, text_lengths)
        positions = tokens.shape[:2]
        total += positions.numel() * (counted.body[stack] + counted.attention[stack])
        if stack == last_stack and work.at is not None:
            selection = Selection.of(work.at, *positions)
            if selection is not None:
                total += selection.positions.numel() * counted.chosen[stack]
                total -= positions.numel() * counted.last[stack]
    if written is not None:
        total += batch.tokens.numel() * counted.memory
    total += work.scored * counted.vocabulary + work.extra_flops
    return (3 if trained else 1) * total


def kept_bytes(
    config: TransformerConfig, tokens: int, itemsize: int, length: int, recomputed: bool = False
) -> int:
    """Bytes kept for backward when the first stack reads `tokens` tokens, in texts of `length`, at
    `itemsize` bytes per number; with `recomputed`, inputs of layers, and one layer at a time."""
    blocks = next(iter(config.stacks.values())).blocks[:-1]
    sizes = [_kept_per_token(block, config.width, length) for block in blocks]
    if recomputed:
        sizes = [*(min(config.width, size) for size in sizes), max(sizes, default=0)]
    return round(itemsize * tokens * sum(sizes))


def _kept_per_token(block: Block | Recurrent, width: int, length: int) -> float:
    """Numbers that a block keeps for the backward pass, per token."""
    if isinstance(block, Recurrent):  # four gates, a cell and a state
        return block.directions * (5 * block.cells + block.width)
    attention, inner = block.attention, block.feed_forward
    # relu needs only its output; other activations their input, too, and gates two more vectors.
    inner_vectors = 2 + 2 * inner.gated if inner.activation != "relu" or inner.gated else 1
    vectors: float = 4 if attention.global_tokens is None else 6  # with keys and values of these
    if (cut := attention.blocks) is not None and cut.splits(length):
        vectors += 2 * cut.keys_read(length) / cut.size
    attention_width = attention.heads * attention.head_width
    return 4 * width + vectors * attention_width + inner_vectors * inner.width
