"""Cross-entropy over the vocabulary without ever holding all its scores.

One function of (hidden, weight, bias, targets): projection, log-sum-exp and gradients are computed
together, a chunk of targets at a time, in one buffer of bounded size. Two things make it faster
than `linear` followed by `cross_entropy` (docs/log.md):

- Scores are laid out (V, n), vocabulary first, the shape in which the product with a (V, E) weight
  runs at full speed.
- Weights `exp(score - max)` are never divided by their sum s. With one-hot y, the gradient of the
  scores is (exp - s·y) / s, and the division moves to the narrow sides of the two products:
  `grad_hidden = (…)ᵀ @ weight / s` and `grad_weight = (…) @ (hidden / s)`.

What is right may be an id (`vocabulary_loss`) or another network's distribution
(`vocabulary_divergence`): only what is subtracted from the weights differs. The weights also serve
to draw a token (`vocabulary_sample`), which would otherwise cost the scores a second time.

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
# Rows of the vocabulary whose weights are summed before one of them is drawn.
BLOCK = 128


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
    _check(targets, weight)
    total, losses, _ = _fused(hidden, weight, bias, _Ids(targets))
    return total, losses


def vocabulary_sample(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    uniforms: Float[Tensor, " N"],
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"], Int[Tensor, " N"]]:
    """`vocabulary_loss`, and one id per target drawn from softmax(scores) without a gradient.

    Args:
        uniforms: a number in [0, 1) per target: the draw is a function of scores and number, by the
            inverse of the cumulative distribution (what adding Gumbel noise does with V numbers).
    """
    _check(targets, weight)
    return _fused(hidden, weight, bias, _Ids(targets), uniforms)


def vocabulary_divergence(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    teacher_hidden: Float[Tensor, "N F"],
    teacher_weight: Float[Tensor, "V F"],
    teacher_bias: Float[Tensor, " V"] | None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """KL(teacher || own) of the two distributions over the vocabulary, as `vocabulary_loss`; the
    teacher gets no gradient. For a temperature, divide hidden states and biases by it."""
    soft = _Distribution(
        teacher_hidden.detach(),
        teacher_weight.detach(),
        None if teacher_bias is None else teacher_bias.detach(),
    )
    total, losses, _ = _fused(hidden, weight, bias, soft)
    return total, losses


def _check(targets: Tensor, weight: Tensor) -> None:
    if targets.device.type == "cpu" and targets.numel():
        low, high = (int(t) for t in targets.aminmax())
        if low < 0 or high >= weight.shape[0]:
            raise DataError(
                "a target lies outside the vocabulary",
                where="targets",
                found=low if low < 0 else high,
                wanted=f"0 to {weight.shape[0] - 1}",
            )


class _Ids:
    """One id per position is right."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def score(self, scores: Tensor, part: slice) -> Tensor:
        """(n,) the score of what is right, from scores (V, n)."""
        return scores.gather(0, self.ids[None, part])[0]

    def subtract(self, exponentials: Tensor, total: Tensor, part: slice) -> None:
        """exp - s·y in place, y what is right and s the sums."""
        exponentials.scatter_add_(0, self.ids[None, part], -total[None])


class _Distribution:
    """Another network's distribution is right; `score` is then the mean score under it, and its
    entropy is taken off, so that the loss is a divergence."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.hidden, self.weight, self.bias = hidden, weight, bias
        self.shares = torch.empty(0)

    def score(self, scores: Tensor, part: slice) -> Tensor:
        rows = self.hidden[part].to(self.weight.dtype).t()
        own = torch.mm(self.weight, rows)
        if self.bias is not None:
            own = own.add_(self.bias[:, None])
        logs = torch.log_softmax(own.to(scores.dtype), 0)
        self.shares = logs.exp()
        return (self.shares * (scores - logs)).sum(0)

    def subtract(self, exponentials: Tensor, total: Tensor, part: slice) -> None:
        exponentials.addcmul_(self.shares, total[None], value=-1.0)


def _fused(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    right: _Ids | _Distribution,
    uniforms: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    if not torch.is_grad_enabled():
        # A Function is asked for the gradients of its inputs even where none can flow.
        hidden, weight, bias = (
            hidden.detach(),
            weight.detach(),
            None if bias is None else bias.detach(),
        )
    total, losses, sampled = _VocabularyLoss.apply(
        hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), right,
        uniforms,
    )  # fmt: skip
    return total, losses, sampled


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        right: _Ids | _Distribution,
        uniforms: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            losses, sampled, gradients = _chunks(
                hidden, weight, bias, right, uniforms, ctx.needs_input_grad
            )
        ctx.gradients, ctx.right = gradients, right
        ctx.save_for_backward(hidden, weight, bias)
        ctx.mark_non_differentiable(losses, sampled)
        return losses.sum(), losses, sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        # Given away, not kept: a gradient that nobody else holds becomes `.grad` without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward pass through a graph that was retained
            hidden, weight, bias = ctx.saved_tensors
            *_, gradients = _chunks(hidden, weight, bias, ctx.right, None, ctx.needs_input_grad)
        return *(None if g is None else g.mul_(outer[0]) for g in gradients), None, None


def _chunks(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    right: _Ids | _Distribution,
    uniforms: Tensor | None,
    wanted: tuple[bool, ...],
) -> tuple[Tensor, Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
    """Losses (N,), drawn ids (N,), or (0,) without `uniforms`, and the gradients of the losses' sum
    for those inputs that want one."""
    count, size = hidden.shape[0], weight.shape[0]
    wide = torch.promote_types(weight.dtype, torch.float32)
    step = max(1, min(count, max(64, BUFFER_BYTES // (4 * size))))
    buffer = weight.new_empty(size * step)
    losses = torch.empty(count, dtype=wide, device=hidden.device)
    drawn = 0 if uniforms is None else count
    sampled = torch.empty(drawn, dtype=torch.int64, device=hidden.device)
    by_hidden = torch.empty_like(hidden) if wanted[0] else None
    # Sums over chunks are kept wide; a single chunk needs no sum.
    narrow = weight.dtype if count <= step else wide
    by_weight = torch.zeros_like(weight, dtype=narrow) if wanted[1] and count == 0 else None
    by_bias = torch.zeros(size, dtype=wide, device=hidden.device) if wanted[2] else None
    for first in range(0, count, step):
        part = slice(first, first + step)
        rows = hidden[part]
        n = rows.shape[0]
        scores = buffer[: size * n].view(size, n)
        if bias is None:
            torch.mm(weight, rows.t(), out=scores)
        else:
            torch.addmm(bias[:, None], weight, rows.t(), out=scores)
        scores = scores.to(wide)
        score = right.score(scores, part)
        largest = scores.amax(0)
        exponentials = scores.sub_(largest).exp_()
        total = exponentials.sum(0)
        torch.sub(total.log() + largest, score, out=losses[part])
        if uniforms is not None:
            sampled[part] = _draw(exponentials, uniforms[part])
        if not any(wanted[:3]):
            continue
        right.subtract(exponentials, total, part)
        shares = exponentials.to(weight.dtype)
        inverse = total.reciprocal()
        if by_hidden is not None:
            torch.mm(shares.t(), weight, out=by_hidden[part])
            by_hidden[part].mul_(inverse[:, None])
        if wanted[1]:
            scaled = (rows * inverse[:, None]).to(weight.dtype)
            by_weight = _add_product(by_weight, shares, scaled, narrow)
        if by_bias is not None:
            by_bias.addmv_(exponentials, inverse)
    if by_weight is not None:
        by_weight = by_weight.to(weight.dtype)
    if by_bias is not None:
        by_bias = by_bias.to(weight.dtype)
    return losses, sampled, (by_hidden, by_weight, by_bias)


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """(n,) row numbers of weights (V, n), each column's drawn by its weights: first a block of
    rows, then a row in it, so that all the weights are only summed once."""
    size = weights.shape[0]
    whole = size - size % BLOCK
    sums = weights[:whole].view(-1, BLOCK, weights.shape[1]).sum(1)
    if whole < size:
        sums = torch.cat([sums, weights[whole:].sum(0, keepdim=True)])
    edges = sums.cumsum(0)  # blocks, n
    level = uniforms * edges[-1]
    block = (edges <= level).sum(0).clamp(max=len(edges) - 1)[None]
    level = level - (edges.gather(0, block) - sums.gather(0, block))[0]
    rows = block * BLOCK + torch.arange(BLOCK, device=weights.device)[:, None]
    inside = weights.gather(0, rows.clamp(max=size - 1)).masked_fill(rows >= size, 0.0)
    place = (inside.cumsum(0) <= level).sum(0)
    return (block[0] * BLOCK + place).clamp(max=size - 1)


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    if total is None:
        return torch.mm(left, right).to(dtype)
    if dtype == left.dtype:
        return total.addmm_(left, right)
    return total.add_(torch.mm(left, right))
