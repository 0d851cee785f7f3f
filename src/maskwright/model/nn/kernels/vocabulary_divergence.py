"""KL divergence of two networks' distributions over the vocabulary, a chunk of positions at a time.

As `vocabulary_loss`, and for the same reason: neither network's scores are ever all held. The
gradient of the own scores is (own - teacher's distribution); the teacher gets none.
Under `kernels.plain()` all scores of both are held at once, and the gradient is PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.model.nn.kernels import is_plain

# Bytes of one network's scores in float32 that exist at a time; there are about six such buffers.
BUFFER_BYTES = 16 << 20


def vocabulary_divergence(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    teacher_hidden: Float[Tensor, "N F"],
    teacher_weight: Float[Tensor, "V F"],
    teacher_bias: Float[Tensor, " V"] | None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """KL(teacher || own), of softmax(hidden @ weight.T + bias) and the teacher's likewise.

    For a temperature, divide hidden states and biases by it.

    Returns:
        The sum over positions (a scalar to be scaled and differentiated), and each position's
        divergence, detached. Both in float32, or float64 when the inputs are. N may be 0.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    arguments = (hidden, weight, bias, teacher_hidden, teacher_weight, teacher_bias)
    inputs = tuple(None if x is None else x.to(dtype) for x in arguments)
    if is_plain():
        divergences = _whole(inputs)
        return divergences.sum(), divergences.detach()
    total, divergences = _Divergence.apply(*inputs)
    return total, divergences


def _whole(inputs: tuple[Tensor | None, ...]) -> Tensor:
    """Divergences (N,) from all scores (N, V) at once."""
    hidden, weight, bias, teacher_hidden, teacher_weight, teacher_bias = inputs
    assert hidden is not None and weight is not None
    assert teacher_hidden is not None and teacher_weight is not None
    wide = torch.promote_types(weight.dtype, torch.float32)
    log_probabilities = F.linear(hidden, weight, bias).to(wide).log_softmax(1)
    with torch.no_grad():
        theirs = F.linear(teacher_hidden, teacher_weight, teacher_bias).to(wide).log_softmax(1)
    return (theirs.exp() * (theirs - log_probabilities)).sum(1)


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        with torch.autocast(inputs[1].device.type, enabled=False):  # type: ignore[union-attr]
            divergences, ctx.gradients = _chunks(inputs, ctx.needs_input_grad)
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(divergences)
        return divergences.sum(), divergences

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward pass through a graph that was retained
            _, gradients = _chunks(ctx.saved_tensors, ctx.needs_input_grad)
        return *(None if g is None else g.mul_(outer[0]) for g in gradients), None, None, None


def _chunks(
    inputs: tuple[Tensor | None, ...], needs_gradient: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Divergences (N,), and the gradients of their sum for the own network's three inputs."""
    hidden, weight, bias, teacher_hidden, teacher_weight, teacher_bias = inputs
    assert hidden is not None and weight is not None
    assert teacher_hidden is not None and teacher_weight is not None
    count, size = hidden.shape[0], weight.shape[0]
    wide = torch.promote_types(weight.dtype, torch.float32)
    step = max(64, BUFFER_BYTES // (4 * size))
    divergences = torch.empty(count, dtype=wide, device=hidden.device)
    by_hidden = torch.empty_like(hidden) if needs_gradient[0] else None
    by_weight = torch.zeros_like(weight, dtype=wide) if needs_gradient[1] else None
    by_bias = torch.zeros(size, dtype=wide, device=hidden.device) if needs_gradient[2] else None
    for begin in range(0, count, step):
        chunk = slice(begin, begin + step)
        log_probabilities = _logs(hidden[chunk], weight, bias, wide)  # V, n
        theirs = _logs(teacher_hidden[chunk], teacher_weight, teacher_bias, wide)
        shares = theirs.exp()
        divergences[chunk] = theirs.sub_(log_probabilities).mul_(shares).sum(0)
        if not any(needs_gradient[:3]):
            continue
        difference = log_probabilities.exp_().sub_(shares)
        if by_bias is not None:
            by_bias += difference.sum(1)
        difference = difference.to(weight.dtype)
        if by_hidden is not None:
            by_hidden[chunk] = torch.mm(difference.t(), weight)
        if by_weight is not None:
            by_weight += torch.mm(difference, hidden[chunk])
    gradients = (by_hidden, by_weight, by_bias)
    return divergences, tuple(None if g is None else g.to(weight.dtype) for g in gradients)


def _logs(rows: Tensor, weight: Tensor, bias: Tensor | None, wide: torch.dtype) -> Tensor:
    """(V, n) log-probabilities."""
    scores = torch.mm(weight, rows.t())
    if bias is not None:
        scores += bias[:, None]
    return torch.log_softmax(scores.to(wide), 0)
