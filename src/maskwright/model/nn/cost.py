"""What a model costs: parameters and floating-point operations, counted by walking its modules.

A multiplication and its addition are two operations. Only matrix products are counted, which is all
that matters beyond tiny models; a layer that is used twice (`weights_of`) is counted twice.
Attention is counted dense, as it is computed, whatever its mask hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from maskwright.model.nn.config import Block
from maskwright.model.nn.stack import BlockModule, StackModule
from maskwright.model.nn.transformer import Transformer


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
