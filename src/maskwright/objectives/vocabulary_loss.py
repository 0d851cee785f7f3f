"""Cross-entropy over the vocabulary without ever holding all its scores.

One function of (hidden, weight, bias, targets): projection, log-sum-exp and gradients are computed
together, a chunk of targets at a time, in one buffer of bounded size. Two things make it faster
than `linear` followed by `cross_entropy` (docs/log.md):

- Scores are laid out (V, n), vocabulary first, the shape in which the product with a (V, E) weight
  runs at full speed.
- Weights `exp(score - max)` are never divided by their sum s. With one-hot y, the gradient of the
  scores is (exp - s·y) / s, and the division moves to the narrow sides of the two products:
  `grad_hidden = (…)ᵀ @ weight / s` and `grad_weight = (…) @ (hidden / s)`.

Products run in the type of the weights; maximum, exponential, sum and loss in float32 (float64 for
float64), because a loss read from bfloat16 scores is wrong in the third digit.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.errors import DataError

# Bytes of scores in float32 that exist at a time.
BUFFER_BYTES = 64 << 20


def vocabulary_loss(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """Cross-entropy of `hidden @ weight.T + bias` against `targets`.

    Args:
        hidden: head-hidden states at the positions that have a target.
        targets: ids, 0 to V-1.

    Returns:
        The sum over targets (a scalar to be scaled and differentiated), and the loss of each
        target, detached. Both in float32, or float64 when the inputs are. N may be 0.

    Raises:
        DataError: a target outside the vocabulary (looked at on the CPU only).
    """
    if targets.device.type == "cpu" and targets.numel():
        low, high = (int(t) for t in targets.aminmax())
        if low < 0 or high >= weight.shape[0]:
            raise DataError(
                "a target lies outside the vocabulary",
                where="targets",
                found=low if low < 0 else high,
                wanted=f"0 to {weight.shape[0] - 1}",
            )
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    if not torch.is_grad_enabled():
        # A Function is asked for the gradients of its inputs even where none can flow.
        hidden, weight, bias = (
            hidden.detach(),
            weight.detach(),
            None if bias is None else bias.detach(),
        )
    return _VocabularyLoss.apply(
        hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), targets
    )


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            losses, gradients = _chunks(hidden, weight, bias, targets, ctx.needs_input_grad)
        ctx.gradients = gradients
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        # Given away, not kept: a gradient that nobody else holds becomes `.grad` without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward pass through a graph that was retained
            hidden, weight, bias, targets = ctx.saved_tensors
            _, gradients = _chunks(hidden, weight, bias, targets, ctx.needs_input_grad)
        return *(None if g is None else g.mul_(outer[0]) for g in gradients), None


def _chunks(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
    """Losses (N,), and the gradients of their sum for those inputs that want one."""
    count, size = targets.numel(), weight.shape[0]
    wide = torch.promote_types(weight.dtype, torch.float32)
    step = max(1, min(count, max(64, BUFFER_BYTES // (4 * size))))
    buffer = weight.new_empty(size * step)
    losses = torch.empty(count, dtype=wide, device=hidden.device)
    by_hidden = torch.empty_like(hidden) if wanted[0] else None
    # Sums over chunks are kept wide; a single chunk needs no sum.
    narrow = weight.dtype if count <= step else wide
    by_weight = torch.zeros_like(weight, dtype=narrow) if wanted[1] and count == 0 else None
    by_bias = torch.zeros(size, dtype=wide, device=hidden.device) if wanted[2] else None
    for first in range(0, count, step):
        rows = hidden[first : first + step]
        target = targets[None, first : first + step]
        n = rows.shape[0]
        scores = buffer[: size * n].view(size, n)
        if bias is None:
            torch.mm(weight, rows.t(), out=scores)
        else:
            torch.addmm(bias[:, None], weight, rows.t(), out=scores)
        exponentials, total = _exponentials(scores, target, losses[first : first + step], wide)
        if not any(wanted):
            continue
        exponentials.scatter_add_(0, target, -total[None])
        shares = exponentials.to(weight.dtype)
        inverse = total.reciprocal()
        if by_hidden is not None:
            torch.mm(shares.t(), weight, out=by_hidden[first : first + n])
            by_hidden[first : first + n].mul_(inverse[:, None])
        if wanted[1]:
            scaled = (rows * inverse[:, None]).to(weight.dtype)
            by_weight = _add_product(by_weight, shares, scaled, narrow)
        if by_bias is not None:
            by_bias.addmv_(exponentials, inverse)
    if by_weight is not None:
        by_weight = by_weight.to(weight.dtype)
    if by_bias is not None:
        by_bias = by_bias.to(weight.dtype)
    return losses, (by_hidden, by_weight, by_bias)


def _exponentials(
    scores: Tensor, target: Tensor, losses: Tensor, wide: torch.dtype
) -> tuple[Tensor, Tensor]:
    """exp(score - max) in place of the scores where their type is wide enough, and the sums; the
    losses are written into `losses`."""
    scores = scores.to(wide)
    wanted = scores.gather(0, target)[0]
    largest = scores.amax(0)
    exponentials = scores.sub_(largest).exp_()
    total = exponentials.sum(0)
    torch.sub(total.log() + largest, wanted, out=losses)
    return exponentials, total


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    if total is None:
        return torch.mm(left, right).to(dtype)
    if dtype == left.dtype:
        return total.addmm_(left, right)
    return total.add_(torch.mm(left, right))
