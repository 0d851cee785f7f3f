"""What training on a batch costs, in floating-point operations (`nn/cost.py` says what is counted).

An objective may own several networks: each is counted on what it reads, three times its forward
where it is trained and once where it only answers (a teacher). Matrices outside the networks, such
as a small head of an objective's own, are not counted.
"""

from __future__ import annotations

from maskwright.data.batch import Batch
from maskwright.nn.cost import cost
from maskwright.nn.transformer import Transformer
from maskwright.objectives.objective import Objective


def training_operations(objective: Objective, batch: Batch) -> float:
    """Operations of forward and backward over all networks of `objective` on `batch`."""
    targets = 0 if batch.targets is None else batch.targets.numel()
    networks = [m for m in objective.modules() if isinstance(m, Transformer)]
    return sum(_operations(network, batch, targets) for network in networks)


def _operations(network: Transformer, batch: Batch, targets: int) -> float:
    trained = any(parameter.requires_grad for parameter in network.parameters())
    written = batch.decoder_tokens
    length = batch.tokens.shape[1]
    total = 0.0
    for stack in network.config.stacks:
        own = written if stack == "decoder" and written is not None else batch.tokens
        counted = cost(network, own.shape[1], length if written is not None else 0)
        total += own.numel() * (counted.body[stack] + counted.attention[stack])
    return (3 if trained else 1) * (total + targets * counted.vocabulary)
