"""What training on a batch costs, in floating-point operations (`nn/cost.py` says what is counted).

An objective may own several networks: each is counted on what it reads, three times its forward
where it is trained and once where it only answers (a teacher); a last layer only at the positions
whose states are read (`nn/selection.py`), and a decoder that writes nothing not at all. Heads of a
few classes are not counted.
"""

from __future__ import annotations

from maskwright.data.batch import Batch
from maskwright.nn.cost import cost
from maskwright.nn.selection import Selection
from maskwright.objectives.parts.objective import NetworkWork, Objective


def training_operations(objective: Objective, batch: Batch) -> float:
    """Operations of forward and backward over all networks of `objective` on `batch`."""
    return sum(_operations(work, batch) for work in objective.work(batch))


def _operations(work: NetworkWork, batch: Batch) -> float:
    network, written = work.network, batch.decoder_tokens
    trained = any(parameter.requires_grad for parameter in network.parameters())
    length = batch.tokens.shape[1]
    stacks = list(network.config.stacks)[: 1 if written is None else None]
    last, total = stacks[-1], 0
    for stack in stacks:
        own = written if stack == "decoder" and written is not None else batch.tokens
        counted = cost(network, own.shape[1], length if written is not None else 0)
        total += own.numel() * (counted.body[stack] + counted.attention[stack])
        if stack == last and work.at is not None:
            selection = Selection.of(work.at, *own.shape)
            left_out = 0 if selection is None else own.numel() - selection.places.numel()
            total -= left_out * counted.last[stack]
    if written is not None:
        total += batch.tokens.numel() * counted.memory
    total += work.scored * counted.vocabulary + work.extra_flops
    return (3 if trained else 1) * total
