"""How far apart two correct float32 computations of the same scores may be.

The order of sums differs between processors, libraries and ways to compute, so two results differ
by about the unit roundoff times the condition of the computation. The condition is measured, not
guessed: the network runs in float64, again with every weight changed by a relative 2^-24, and the
largest change of a score is what one rounding of each weight does. Large attention logits (an
adapter with weights of size 1 makes hundreds) change a score by a hundred times more than small
ones do, on every processor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

ROUNDINGS = 8.0  # a result has been rounded once per operation, not once per weight


def tolerance(
    network: nn.Module, scores_of: Callable[..., Sequence[Tensor]], draws: int = 4
) -> float:
    """Absolute tolerance for float32 results of ``scores_of(network)``.

    Args:
        network: Any module; it is copied to float64.
        scores_of: Computes the scores. It must keep the dtype of the network's weights.
        draws: Number of random changes of the weights.
    """
    exact = copy.deepcopy(network).double()
    reference = scores_of(exact)
    largest = 0.0
    for seed in range(draws):
        changed = copy.deepcopy(exact)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in changed.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight.mul_(1 + 2**-24 * noise)
        for before, after in zip(reference, scores_of(changed), strict=True):
            assert before.dtype == torch.float64, "the scores were rounded on the way"
            largest = max(largest, float((before - after).abs().max()))
    assert largest > 0, "the scores do not depend on the weights"
    return ROUNDINGS * largest


def agree(scores: Sequence[Tensor], others: Sequence[Tensor], atol: float) -> bool:
    """Whether all scores of two computations are equal within ``atol``."""
    return all(
        torch.allclose(one, other, rtol=0, atol=atol)
        for one, other in zip(scores, others, strict=True)
    )
