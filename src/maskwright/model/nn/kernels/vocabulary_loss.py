"""Losses over the vocabulary without ever holding all scores.

One function of (hidden, weight, bias, targets): projection, log-sum-exp and gradients are computed
together, a chunk of targets at a time, in one buffer of bounded size. What makes it faster than
`linear` followed by `cross_entropy` (docs/log.md):

- Scores are laid out (V, n), vocabulary first, the shape in which the products with a (V, E) weight
  run at full speed.
- The buffer is passed over twice between the products, once for `exp`, once for the sums s over the
  vocabulary. Nothing is subtracted before `exp` while every s stays far from the ends of the float
  range; where one does not, the scores are made again and their maxima taken off (`exponentials`).
- The exponentials are never divided by s, nor is the one-hot y taken off them: the gradient of the
  scores is exp / s - y, and both go to the narrow sides of the two products,
  `grad_hidden = expᵀ @ weight / s - weight[targets]` and
  `grad_weight = exp @ (hidden / s)`, less `hidden` at the rows of the targets.
- The exponentials also serve to draw a token (`vocabulary_sample`), which would otherwise cost the
  scores a second time.
- Rows of zeros are put under the hidden states to keep the sizes of products few
(model/nn/kernels/linear.py); their 1 / s is set to 0.
- Below `_FEW` words none of this pays: the scores weigh less than the hidden states, and a step is
  as long as its count of operations. They are left to PyTorch, which holds all scores at once.
- z-loss, `z * log(s)²` added to each loss to keep s near 1 (PaLM, Chowdhery et al. 2022, 5), turns
  each 1 / s above into `(1 + 2 z log s) / s`, and nothing else.

Products and exponentials are in the type of the weights; sums and loss in float32 (float64 for
float64), because a loss read from bfloat16 sums is wrong in the third digit.

`vocabulary_divergence` is the KL divergence of two networks' distributions over the vocabulary, a
chunk of positions at a time, so that neither network's scores are ever all held. The gradient of
the own scores is (own - teacher's distribution); the teacher gets none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.base.errors import DataError
from maskwright.model.nn.kernels.linear import spare_rows

# Exponentials and sums between these need no maximum taken off; well inside bfloat16's range.
_SAFE = (1e-25, 1e30)
# Rows of the vocabulary whose exponentials are added up in one go; see `_group_sums`.
_GROUP = 64


def exponentials_of(
    scores: Float[Tensor, "V n"], target: Int[Tensor, " n"], wide: torch.dtype
) -> tuple[
    Float[Tensor, "V n"],
    Float[Tensor, " n"],
    Float[Tensor, " n"] | float,
    Float[Tensor, " n"] | None,
]:
    """exp(score) in place of the scores, their sums (n,), what was taken off the scores (n,), and
    the losses; None for the losses where a sum is out of range, and everything has to be done
    again with `shifted`.

    Looking at the sums would make a GPU wait, so there it is always `shifted`; so it is in
    float16, whose exponentials lose digits long before their sums are out of range.
    """
    if scores.device.type != "cpu" or scores.dtype == torch.float16:
        return shifted(scores, target, wide)
    exponentials = scores.exp_()
    total = _sums(exponentials, wide)
    of_target = exponentials.gather(0, target[None])[0].to(wide)
    smallest = min(float(of_target.min()), float(total.min()))
    safe = _SAFE[0] < smallest and float(total.max()) < _SAFE[1]  # false for NaN, too
    # A narrow `own` that dominates its sum is rounded there alike: the loss is never negative.
    return exponentials, total, 0.0, (total / of_target).log() if safe else None


def shifted(
    scores: Float[Tensor, "V n"], target: Int[Tensor, " n"], wide: torch.dtype
) -> tuple[Float[Tensor, "V n"], Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The same with each column's largest score taken off first."""
    of_target = scores.gather(0, target[None])[0].to(wide)
    narrow = scores.amax(0)
    exponentials, largest = scores.sub_(narrow).exp_(), narrow.to(wide)
    total = _sums(exponentials, wide)
    return exponentials, total, largest, total.log() + (largest - of_target)


def _sums(exponentials: Tensor, wide: torch.dtype) -> Tensor:
    """Sums over the vocabulary, wide; the rounding of a narrow type's groups is averaged away."""
    if exponentials.dtype == wide:
        return exponentials.sum(0)
    return _group_sums(exponentials).sum(0, dtype=wide)


def _group_sums(exponentials: Tensor) -> Tensor:
    """(ceil(V / 64), n) sums of every 64 rows of (V, n), in their own type: asked for a wider one,
    the kernel would copy all of them first."""
    size, count = exponentials.shape
    even = size - size % _GROUP
    groups = exponentials[:even].view(-1, _GROUP, count).sum(1)
    if even == size:
        return groups
    return torch.cat([groups, exponentials[even:].sum(0, keepdim=True)])


def drawn_by(
    exponentials: Float[Tensor, "V n"], uniforms: Float[Tensor, " n"], wide: torch.dtype
) -> Int[Tensor, " n"]:
    """(n,) ids, each drawn by its column of exponentials (V, n): first a group of the vocabulary,
    then an id in it, so that all the exponentials are passed over only once. What the uniform
    number leaves within the group is measured on the group's own sum, unrounded."""
    size, count = exponentials.shape
    if not count:
        return torch.zeros(0, dtype=torch.int64, device=exponentials.device)
    sums = _group_sums(exponentials).to(wide)
    edges = sums.cumsum(0)  # groups, n
    level = uniforms * edges[-1]
    group = (edges <= level).sum(0).clamp(max=len(edges) - 1)[None]
    group_sum = sums.gather(0, group)
    share = (level - (edges.gather(0, group) - group_sum))[0] / group_sum[0]
    rows = group * _GROUP + torch.arange(_GROUP, device=sums.device)[:, None]
    inside = exponentials.gather(0, rows.clamp(max=size - 1)).to(wide)
    inside = inside.masked_fill(rows >= size, 0.0).cumsum(0)
    offset = (inside <= share * inside[-1]).sum(0).clamp(max=_GROUP - 1)
    return (group[0] * _GROUP + offset).clamp(max=size - 1)


# Bytes of scores that exist at a time.
BUFFER_BYTES = 96 << 20
# Targets per unit of width from which on the table is turned round (docs/log.md).
_MANY = 3
# Vocabularies smaller than this, and than the hidden states are wide, are scored whole.
_FEW = 256


def vocabulary_loss(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    z_loss: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"]]:
    """Cross-entropy of `hidden @ weight.T + bias` against `targets`.

    Args:
        hidden: head-hidden states at the positions that have a target.
        targets: ids, 0 to V-1.
        z_loss: how much the squared log-sum-exp of the scores adds to a target's loss.

    Returns:
        The sum over targets (a scalar to be scaled and differentiated), z-loss included, and the
        cross-entropy of each target, detached. Both in float32, or float64 when the inputs are. N
        may be 0.

    Raises:
        DataError: a target outside the vocabulary (looked at on the CPU only).
    """
    total, losses, _ = _fused(hidden, weight, bias, targets, None, z_loss)
    return total, losses


def vocabulary_sample(
    hidden: Float[Tensor, "N E"],
    weight: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    uniforms: Float[Tensor, " N"],
) -> tuple[Float[Tensor, ""], Float[Tensor, " N"], Int[Tensor, " N"]]:
    """`vocabulary_loss`, and one id per target drawn from softmax(scores), without a gradient.

    Args:
        uniforms: a number in [0, 1) per target: the draw is a function of scores and number, by the
            inverse of the cumulative distribution (what adding Gumbel noise does with V numbers).
    """
    return _fused(hidden, weight, bias, targets, uniforms)


class _Inputs(NamedTuple):
    """What a loss is computed from, in the type of the products; only the first `real` rows
    count."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    uniforms: Tensor | None
    z_loss: float
    real: int


def _fused(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    uniforms: Tensor | None,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
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
    hidden, count = hidden.to(dtype), targets.numel()
    if spare := spare_rows(hidden):
        hidden, targets = F.pad(hidden, (0, 0, 0, spare)), F.pad(targets, (0, spare))
        uniforms = None if uniforms is None else F.pad(uniforms, (0, spare))
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    inputs = _Inputs(hidden, weight, bias, targets, uniforms, z_loss, count)
    if len(weight) < min(_FEW, weight.shape[1]):
        return _whole(inputs)
    total, losses, drawn = _VocabularyLoss.apply(*inputs)
    return total, losses, drawn


def _whole(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The same with all scores (n, V) at once."""
    hidden, weight, bias, targets, uniforms, z_loss, count = inputs
    wide = torch.promote_types(weight.dtype, torch.float32)
    scores = F.linear(hidden, weight, bias).to(wide)[:count]
    losses = F.cross_entropy(scores, targets[:count], reduction="none")
    total = losses.sum()
    if z_loss:
        total = total + z_loss * scores.logsumexp(1).square().sum()
    drawn = targets.new_empty(0)
    if uniforms is not None:
        with torch.no_grad():
            drawn = drawn_by(scores.softmax(1).t(), uniforms[:count], wide)
    return total, losses.detach(), drawn


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        inputs = _Inputs(*arguments)
        with torch.autocast(inputs.hidden.device.type, enabled=False):
            total, losses, drawn, gradients = _chunks(inputs, ctx.needs_input_grad)
        ctx.gradients, ctx.z_loss, ctx.real = gradients, inputs.z_loss, inputs.real
        ctx.save_for_backward(*inputs[:4])
        ctx.mark_non_differentiable(losses, drawn)
        return total, losses, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        # Given away, not kept: a gradient that nobody else holds becomes `.grad` without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward pass through a graph that was retained
            hidden, weight, bias, targets = ctx.saved_tensors
            inputs = _Inputs(hidden, weight, bias, targets, None, ctx.z_loss, ctx.real)
            *_, gradients = _chunks(inputs, ctx.needs_input_grad)
        return *(None if g is None else g.mul_(outer[0]) for g in gradients), *[None] * 4


def _chunks(
    inputs: _Inputs, needs_gradient: tuple[bool, ...]
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, Tensor | None, Tensor | None]]:
    """The total, the losses of the targets, drawn ids, none without `uniforms`, and the total's
    gradients for those inputs that want one."""
    hidden, weight, bias, targets, uniforms, z_loss, real = inputs
    count, size = targets.numel(), weight.shape[0]
    wide = torch.promote_types(weight.dtype, torch.float32)
    step = max(1, min(count, max(64, BUFFER_BYTES // (weight.itemsize * size))))
    step = -(-count // max(1, -(-count // step))) or 1  # chunks as even as they can be
    table, read, added, across = weight, hidden, bias, None
    if _on_matrix_units(weight):
        if needs_gradient[0] and count > _MANY * weight.shape[1]:
            across = _across(weight)
        if bias is not None:
            # One column more in the product is cheaper than the bias spread over all scores.
            table = torch.cat([weight, bias[:, None]], 1)
            read, added = torch.cat([hidden, hidden.new_ones(count, 1)], 1), None
    buffer = weight.new_empty(size * step)
    losses = torch.empty(count, dtype=wide, device=hidden.device)
    penalties = losses.new_zeros(())
    drawn = targets.new_empty(0 if uniforms is None else count)
    by_hidden = torch.empty_like(hidden) if needs_gradient[0] else None
    # Sums over chunks are kept wide; a single chunk needs no sum.
    sum_dtype = weight.dtype if count <= step else wide
    by_weight = torch.empty_like(weight, dtype=sum_dtype) if needs_gradient[1] else None
    if by_weight is not None and (count == 0 or count > step):
        by_weight.zero_()
    by_bias = torch.zeros(size, dtype=wide, device=hidden.device) if needs_gradient[2] else None
    for begin in range(0, count, step):
        chunk = slice(begin, begin + step)
        rows, target = hidden[chunk], targets[chunk]
        scores = buffer[: size * len(rows)].view(size, len(rows))
        _scores(scores, read[chunk], table, added)
        exponentials, total, shift, chunk_losses = exponentials_of(scores, target, wide)
        if chunk_losses is None:
            _scores(scores, read[chunk], table, added)
            exponentials, total, shift, chunk_losses = shifted(scores, target, wide)
        losses[chunk] = chunk_losses
        if uniforms is not None:
            drawn[chunk] = drawn_by(exponentials, uniforms[chunk], wide)
        inverse = total.reciprocal()
        mine = max(0, min(len(rows), real - begin))
        inverse[mine:] = 0.0
        if z_loss:
            level = total.log() + shift
            penalties += z_loss * level[:mine].square().sum()
            inverse *= 1.0 + 2.0 * z_loss * level
        if by_hidden is not None:
            if across is None:
                mean = torch.mm(exponentials.t(), weight)
            else:
                mean = torch.mm(across, exponentials).t()
            by_hidden[chunk] = mean * inverse[:, None] - weight.index_select(0, target)
        if by_weight is not None:
            scaled = (rows * inverse[:, None]).to(weight.dtype)
            if count <= step:
                torch.mm(exponentials, scaled, out=by_weight)
            else:
                by_weight += torch.mm(exponentials, scaled)
            by_weight.index_add_(0, target[:mine], -rows[:mine].to(sum_dtype))
        if by_bias is not None:
            by_bias += torch.mv(exponentials, inverse.to(weight.dtype))
            # How often each is wanted; `bincount` would make a GPU wait.
            ones = by_bias.new_ones(mine)
            by_bias -= torch.zeros_like(by_bias).index_add_(0, target[:mine], ones)
    if by_hidden is not None:
        by_hidden[real:] = 0.0
    if by_weight is not None:
        by_weight = by_weight.to(weight.dtype)
    if by_bias is not None:
        by_bias = by_bias.to(weight.dtype)
    losses, drawn = losses[:real], drawn[:real]
    return losses.sum() + penalties, losses, drawn, (by_hidden, by_weight, by_bias)


def _on_matrix_units(weight: Tensor) -> bool:
    """Where products cost so little that the layout of their operands is what counts."""
    return weight.device.type == "cpu" and weight.itemsize < 4


def _across(weight: Tensor) -> Tensor:
    """The weight laid out (E, V), in which it meets many exponentials faster. Multiplied by the
    unit matrix it is turned in half the time of a copy, and as exactly."""
    return torch.mm(torch.eye(weight.shape[1], dtype=weight.dtype), weight.t())


def _scores(scores: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if bias is None:
        torch.mm(weight, rows.t(), out=scores)
    else:
        torch.addmm(bias[:, None], weight, rows.t(), out=scores)


# ------------------------------------------------------------------------------ divergence
# Bytes of one network's scores in float32 that exist at a time; there are about six such buffers.
DIVERGENCE_BYTES = 16 << 20


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
    total, divergences = _Divergence.apply(*inputs)
    return total, divergences


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        with torch.autocast(inputs[1].device.type, enabled=False):  # type: ignore[union-attr]
            divergences, ctx.gradients = _divergence_chunks(inputs, ctx.needs_input_grad)
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(divergences)
        return divergences.sum(), divergences

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward pass through a graph that was retained
            _, gradients = _divergence_chunks(ctx.saved_tensors, ctx.needs_input_grad)
        return *(None if g is None else g.mul_(outer[0]) for g in gradients), None, None, None


def _divergence_chunks(
    inputs: tuple[Tensor | None, ...], needs_gradient: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Divergences (N,), and the gradients of their sum for the own network's three inputs."""
    hidden, weight, bias, teacher_hidden, teacher_weight, teacher_bias = inputs
    assert hidden is not None and weight is not None
    assert teacher_hidden is not None and teacher_weight is not None
    count, size = hidden.shape[0], weight.shape[0]
    wide = torch.promote_types(weight.dtype, torch.float32)
    step = max(64, DIVERGENCE_BYTES // (4 * size))
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
