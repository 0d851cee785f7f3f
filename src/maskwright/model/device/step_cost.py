"""What a training step costs: floating-point operations (`model/nn/cost.py` says what is counted),
and bytes that the forward pass keeps for the backward pass, at the least.

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

from maskwright.model.batch import Batch
from maskwright.model.nn.config import Block, TransformerConfig
from maskwright.model.nn.cost import cost
from maskwright.model.nn.stack import Selection
from maskwright.model.objectives.base.objective import NetworkWork, Objective


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
