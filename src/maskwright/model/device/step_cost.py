"""What a model and a training step cost.

A multiplication and its addition are two operations. Only matrix products are counted, which is all
that matters beyond tiny models; a layer that is used twice (`weights_of`) is counted twice.
Attention is counted dense, as it is computed, whatever its mask hides. Of a training step, the
bytes that the forward pass keeps for the backward pass are counted, too, at the least.

An objective may own several networks: each is counted on what it reads, three times its forward
where it is trained and once where it only answers (a teacher); a last layer only at the positions
whose states are read (`model/nn/stack.py`), and a decoder that writes nothing not at all. Heads of
a few classes are not counted.

Of every token a block keeps what its norms, projections and products read: four vectors of the
model's width, four of the heads', and what stands before and after the activation. Attention
weights, masks of dropout, the last block (which may be computed at a few positions only) and what
an allocator leaves between are not counted, so that a step needs some more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from maskwright.model.batch import Batch
from maskwright.model.nn.config import Block, TransformerConfig
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
        last: what of both is done in a stack's last layer only where its states are read.
        memory: the keys and values of the memory, per position of the memory.
        vocabulary: the vocabulary head, per position that has a target.
    """

    body: dict[str, int]
    attention: dict[str, int]
    last: dict[str, int]
    memory: int
    vocabulary: int

    def training(self, stack: str, target_share: float) -> float:
        """Operations per position of `stack` for forward and backward (twice a forward), with the
        vocabulary scored at `target_share` of the positions."""
        return 3 * (self.body[stack] + self.attention[stack] + target_share * self.vocabulary)


def cost(model: Transformer, length: int, memory_length: int = 0) -> Cost:
    """Count `model` on rows of `length`, with a memory of `memory_length` for cross-attention."""
    stacks = {
        name: stack
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack is not None
    }
    vocabulary = 0
    if model.vocabulary_head is not None:
        vocabulary = 2 * model.head_weight.numel() + _matrices(model.vocabulary_head)
    return Cost(
        body={name: _body(stack) for name, stack in stacks.items()},
        attention={
            name: _attention(stack, length, memory_length) for name, stack in stacks.items()
        },
        last={name: _last(stack, length, memory_length) for name, stack in stacks.items()},
        memory=0 if model.decoder is None else _memory(model.decoder),
        vocabulary=vocabulary,
    )


def _body(stack: StackModule) -> int:
    return sum(map(_matrices, _layers(stack))) + _matrices(stack.embeddings) - _memory(stack)


def _memory(stack: StackModule) -> int:
    readers = (layer.cross_attention for layer in _layers(stack) if _crosses(layer))
    return sum(_matrices(reader.key) + _matrices(reader.value) for reader in readers)


def _last(stack: StackModule, length: int, memory_length: int) -> int:
    """A last layer without the keys and values, which are of all positions."""
    *_, layer = _layers(stack)
    readers = [layer.attention, *([layer.cross_attention] if _crosses(layer) else [])]
    theirs = sum(_matrices(reader.key) + _matrices(reader.value) for reader in readers)
    return _matrices(layer) - theirs + _reads(stack.config.blocks[-1], length, memory_length)


def _layers(stack: StackModule) -> Iterator[BlockModule]:
    for source in stack.config.weights_of:
        layer = stack.blocks[str(source)]
        assert isinstance(layer, BlockModule)
        yield layer


def _crosses(layer: BlockModule) -> bool:
    return layer.config.cross_attention is not None


def _matrices(module: nn.Module) -> int:
    linears = (m for m in module.modules() if isinstance(m, nn.Linear))
    return sum(2 * linear.weight.numel() for linear in linears)


def _attention(stack: StackModule, length: int, memory_length: int) -> int:
    return sum(_reads(block, length, memory_length) for block in stack.config.blocks)


def _reads(block: Block, length: int, memory_length: int) -> int:
    reads = [(block.attention, length)]
    if block.cross_attention is not None:
        reads.append((block.cross_attention, memory_length))
    return sum(4 * keys * config.heads * config.head_width for config, keys in reads)


# ------------------------------------------------------------------------------ a step
def training_flops(objective: Objective, batch: Batch) -> float:
    """Floating-point operations of forward and backward over all networks of `objective`."""
    return sum(_operations(work, batch) for work in objective.work(batch))


def _operations(work: NetworkWork, batch: Batch) -> float:
    network, written = work.network, batch.decoder_tokens
    trained = any(parameter.requires_grad for parameter in network.parameters())
    length = batch.tokens.shape[1]
    stacks = list(network.config.stacks)[: 1 if written is None else None]
    last_stack, total = stacks[-1], 0
    for stack in stacks:
        tokens = written if stack == "decoder" and written is not None else batch.tokens
        counted = cost(network, tokens.shape[1], length if written is not None else 0)
        total += tokens.numel() * (counted.body[stack] + counted.attention[stack])
        if stack == last_stack and work.at is not None:
            selection = Selection.of(work.at, *tokens.shape)
            left_out = 0 if selection is None else tokens.numel() - selection.positions.numel()
            total -= left_out * counted.last[stack]
    if written is not None:
        total += batch.tokens.numel() * counted.memory
    total += work.scored * counted.vocabulary + work.extra_flops
    return (3 if trained else 1) * total


def kept_bytes(config: TransformerConfig, tokens: int, itemsize: int) -> int:
    """Bytes kept for backward when the first stack reads `tokens` tokens in numbers of
    `itemsize`."""
    stack = next(iter(config.stacks.values()))
    return itemsize * tokens * sum(_numbers(block, config.width) for block in stack.blocks[:-1])


def _numbers(block: Block, width: int) -> int:
    attention, inner = block.attention, block.feed_forward
    around = 2 + 2 * inner.gated if inner.activation != "relu" or inner.gated else 1
    return 4 * width + 4 * attention.heads * attention.head_width + around * inner.width
