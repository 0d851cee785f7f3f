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
    """Operations of a forward pass, per position of a stack of its own kind.

    Attributes:
        body: the matrices of the blocks, by stack.
        attention: scores and weighted sums, by stack, at the given lengths.
        last: what of both a stack's last layer does for a position, beside keys and values.
        chosen: the same where it is computed at some positions only.
        memory: the keys and values of the memory, per position of the memory.
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


def cost(
    model: Transformer,
    length: int,
    memory_length: int = 0,
    num_global: float = 0.0,
    texts: Sequence[int] = (),
) -> Cost:
    """Count `model` on rows of `length`, with a memory of `memory_length` for cross-attention; of
    these `texts`, or one in each row."""
    sizes = length, memory_length, num_global, texts or (length,)
    stacks = {
        name: stack
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack is not None
    }
    vocabulary = 0
    if model.vocabulary_head is not None:
        vocabulary = 2 * model.head_weight.numel() + _matrices(model.vocabulary_head)
    return Cost(
        body={name: _body(stack, num_global) for name, stack in stacks.items()},
        attention={
            name: sum(_reads(layer, *sizes) for layer in _layers(stack))
            for name, stack in stacks.items()
        },
        last={name: _last(stack, *sizes) for name, stack in stacks.items()},
        chosen={name: _last(stack, *sizes, chosen=True) for name, stack in stacks.items()},
        memory=0 if model.decoder is None else _memory(model.decoder),
        vocabulary=vocabulary,
    )


def _body(stack: StackModule, num_global: float) -> int:
    cells = [cell for cell in stack.modules() if isinstance(cell, LSTMCells)]
    layers = sum(2 * weight.numel() for cell in cells for weight in cell.matrices)
    layers += sum(_matrices(layer) - _queries(layer, num_global) for layer in _layers(stack))
    return layers + _matrices(stack.embeddings) - _memory(stack)


def _queries(layer: BlockModule, num_global: float) -> int:
    """The projections of global tokens that are not computed at every position."""
    if layer.config.attention.global_tokens is None:
        return 0
    attention = layer.attention
    keys_and_values = _matrices(attention.key_global) + _matrices(attention.value_global)
    return _matrices(attention.query_global) + (0 if num_global else keys_and_values)


def _memory(stack: StackModule) -> int:
    readers = (layer.cross_attention for layer in _layers(stack) if _crosses(layer))
    return sum(_matrices(reader.key) + _matrices(reader.value) for reader in readers)


def _last(
    stack: StackModule,
    length: int,
    memory_length: int,
    num_global: float,
    texts: Sequence[int],
    *,
    chosen: bool = False,
) -> float:
    """A last layer without the keys and values, which are of all positions."""
    if not stack.config.attention_blocks:
        return 0
    *_, layer = _layers(stack)
    readers = [layer.attention, *([layer.cross_attention] if _crosses(layer) else [])]
    theirs = sum(_matrices(reader.key) + _matrices(reader.value) for reader in readers)
    if layer.config.attention.global_tokens is not None:
        theirs += _queries(layer, 0)
    reads = _reads(layer, length, memory_length, num_global, texts, chosen=chosen)
    return _matrices(layer) - theirs + reads


def _layers(stack: StackModule) -> Iterator[BlockModule]:
    """The layers with attention, in order."""
    for source in stack.config.weights_of:
        layer = stack.blocks[str(source)]
        if isinstance(layer, BlockModule):
            yield layer


def _crosses(layer: BlockModule) -> bool:
    return layer.config.cross_attention is not None


def _matrices(module: nn.Module) -> int:
    linears = (m for m in module.modules() if isinstance(m, nn.Linear))
    return sum(2 * linear.weight.numel() for linear in linears)


def _reads(
    layer: BlockModule,
    length: int,
    memory_length: int,
    num_global: float,
    texts: Sequence[int],
    *,
    chosen: bool = False,
) -> float:
    """Scores and weighted sums for a position; where it is `chosen`, over all keys."""
    block = layer.config
    keys: float = length if chosen else keys_read(block.attention.window, length)
    if (blocks := block.attention.blocks) is not None and not chosen and blocks.splits(length):
        keys = sum(size * blocks.keys_read(size) for size in texts) / sum(texts)
    extra = 0.0
    if block.attention.global_tokens is not None and num_global:
        keys += num_global if keys < length else 0
        share = 1 if chosen else num_global / length
        keys += share * length
        extra = share * _matrices(layer.attention.query_global)
    reads = [(block.attention, keys)]
    if block.cross_attention is not None:
        reads.append((block.cross_attention, memory_length))
    return extra + sum(4 * keys * config.heads * config.head_width for config, keys in reads)


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
    last_stack, total, texts = stacks[-1], 0.0, list[int]()
    if batch.documents is not None:
        rows = torch.arange(len(batch.documents), device=batch.documents.device)[:, None]
        numbers = rows * (int(batch.documents.max()) + 1) + batch.documents
        texts = torch.bincount(numbers[batch.documents != 0]).tolist()
    for stack in stacks:
        tokens = written if stack == "decoder" and written is not None else batch.tokens
        memory_length = length if written is not None else 0
        counted = cost(network, tokens.shape[1], memory_length, num_global, texts)
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
    """Bytes kept for backward when the first stack reads `tokens` tokens, in texts of `length`, in
    numbers of `itemsize`; with `recomputed`, inputs of layers, and one layer at a time."""
    blocks = next(iter(config.stacks.values())).blocks[:-1]
    numbers = [_numbers(block, config.width, length) for block in blocks]
    if recomputed:
        numbers = [*(min(config.width, n) for n in numbers), max(numbers, default=0)]
    return round(itemsize * tokens * sum(numbers))


def _numbers(block: Block | Recurrent, width: int, length: int) -> float:
    if isinstance(block, Recurrent):  # four gates, a cell and a state
        return block.directions * (5 * block.cells + block.width)
    attention, inner = block.attention, block.feed_forward
    around = 2 + 2 * inner.gated if inner.activation != "relu" or inner.gated else 1
    vectors: float = 4 if attention.global_tokens is None else 6  # with keys and values of these
    if (cut := attention.blocks) is not None and cut.splits(length):
        vectors += 2 * cut.keys_read(length) / cut.size
    return 4 * width + vectors * attention.heads * attention.head_width + around * inner.width
