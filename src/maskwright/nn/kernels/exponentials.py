"""What is read off the exponentials of a chunk of scores (V, n), vocabulary first: their sums, the
losses of the targets, a token drawn for each.

The inner steps of `vocabulary_loss`. All is passed over as few times as can be; sums and losses are
in a wide type, whatever the scores are in.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
    own = exponentials.gather(0, target[None])[0].to(wide)
    smallest = min(float(own.min()), float(total.min()))
    safe = _SAFE[0] < smallest and float(total.max()) < _SAFE[1]  # false for NaN, too
    # A narrow `own` that dominates its sum is rounded there alike: the loss is never negative.
    return exponentials, total, 0.0, (total / own).log() if safe else None


def shifted(
    scores: Float[Tensor, "V n"], target: Int[Tensor, " n"], wide: torch.dtype
) -> tuple[Float[Tensor, "V n"], Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The same with each column's largest score taken off first."""
    own = scores.gather(0, target[None])[0].to(wide)
    narrow = scores.amax(0)
    exponentials, largest = scores.sub_(narrow).exp_(), narrow.to(wide)
    total = _sums(exponentials, wide)
    return exponentials, total, largest, total.log() + (largest - own)


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
    own = sums.gather(0, group)
    share = (level - (edges.gather(0, group) - own))[0] / own[0]
    rows = group * _GROUP + torch.arange(_GROUP, device=sums.device)[:, None]
    inside = exponentials.gather(0, rows.clamp(max=size - 1)).to(wide)
    inside = inside.masked_fill(rows >= size, 0.0).cumsum(0)
    place = (inside <= share * inside[-1]).sum(0).clamp(max=_GROUP - 1)
    return (group[0] * _GROUP + place).clamp(max=size - 1)
