"""How much of a forward pass has to be kept for the backward pass, at the least.

Of every token a block keeps what its norms, projections and products read: four vectors of the
model's width, four of the heads', and what stands before and after the activation. Attention
weights, masks of dropout, the last block (which may be computed at a few positions only) and what
an allocator leaves between are not counted, so what is really needed is some more.
"""

from __future__ import annotations

from maskwright.nn.config import Block, TransformerConfig


def kept_bytes(config: TransformerConfig, tokens: int, itemsize: int) -> int:
    """Of `tokens` tokens that the first stack reads at once, in numbers of `itemsize` bytes."""
    stack = next(iter(config.stacks.values()))
    return itemsize * tokens * sum(_numbers(block, config.width) for block in stack.blocks[:-1])


def _numbers(block: Block, width: int) -> int:
    attention, inner = block.attention, block.feed_forward
    around = 2 + 2 * inner.gated if inner.activation != "relu" or inner.gated else 1
    return 4 * width + 4 * attention.heads * attention.head_width + around * inner.width
