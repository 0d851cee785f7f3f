"""What a model costs: parameters and floating-point operations, counted by walking its modules.

A multiplication and its addition are two operations. Only matrix products are counted, which is all
that matters beyond tiny models; a layer that is used twice (`weights_of`) is counted twice.
Attention is counted dense, as it is computed, whatever its mask hides; the last layer as if it were
computed at every position, though where few states are read it is not (`selection`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from maskwright.nn.config import TransformerConfig
from maskwright.nn.stack import Stack
from maskwright.nn.transformer import Transformer


@dataclass(frozen=True)
class Cost:
    """Operations of a forward pass, per position of a stack of its own kind.

    Attributes:
        body: the matrices of the blocks, by stack.
        attention: scores and weighted sums, by stack, at the given lengths.
        vocabulary: the vocabulary head, per position that has a target.
    """

    body: dict[str, int]
    attention: dict[str, int]
    vocabulary: int

    def training(self, stack: str, target_share: float) -> float:
        """Operations per position of `stack` for forward and backward, which is twice a forward,
        when the vocabulary is scored at `target_share` of the positions."""
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
        vocabulary=vocabulary,
    )


def num_parameters(config: TransformerConfig) -> int:
    """Parameters of `Transformer(config)`, counted without giving them memory."""
    with torch.device("meta"):
        return Transformer(config).num_parameters()


def _body(stack: Stack) -> int:
    blocks = sum(_matrices(stack.blocks[str(source)]) for source in stack.config.weights_of)
    return blocks + _matrices(stack.embeddings)


def _matrices(module: nn.Module) -> int:
    linears = (m for m in module.modules() if isinstance(m, nn.Linear))
    return sum(2 * linear.weight.numel() for linear in linears)


def _attention(stack: Stack, length: int, memory_length: int) -> int:
    total = 0
    for block in stack.config.blocks:
        reads = [(block.attention, length)]
        if block.cross_attention is not None:
            reads.append((block.cross_attention, memory_length))
        total += sum(4 * keys * config.heads * config.head_width for config, keys in reads)
    return total
