"""Span boundaries: which targets, from which states, scored how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from maskwright.model.batch import Batch
from maskwright.model.objectives.base.objective import encode
from maskwright.model.objectives.modules.span_boundary import pairs
from objectives.by_hand import corrupted, framed, make
from toys import bert


def batch_of(chosen: list[int], rows: int = 1, length: int = 10, **fields: object) -> Batch:
    tokens = torch.arange(rows * length).view(rows, length)
    index = torch.tensor(chosen, dtype=torch.int64)
    return Batch(tokens=tokens, index=index, targets=index, **fields)


def shown(batch: Batch, longest: int = 20) -> list[tuple[int, int, int, int]]:
    chosen, left, right, place = pairs(batch, longest)
    columns = (batch.targets[chosen], left, right, place)
    return [tuple(line) for line in torch.stack(columns, 1).tolist()]


TWO_ROWS, SPLIT = {"rows": 2}, torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0]], dtype=torch.int32)
FOLLOWED = [(2, 1, 5, 0), (3, 1, 5, 1), (4, 1, 5, 2), (7, 6, 8, 0)]


@pytest.mark.parametrize(
    ("holes", "facts", "longest", "boundaries"),
    [
        ([2, 3, 4, 7], {}, 20, FOLLOWED),
        ([2, 3, 4, 7], {}, 2, [*FOLLOWED[:2], FOLLOWED[3]]),  # the first ones of a long span
        ([8, 9, 10, 12], TWO_ROWS, 20, [(12, 11, 13, 0)]),  # 8, 9 end a row, 10 begins the next
        ([], {}, 20, []),
        # 4 and 5 touch, but 4 ends the first document, 5 begins the second; 8 is beside padding.
        ([1, 4, 5, 7], {"documents": SPLIT}, 20, [(1, 0, 2, 0), (7, 6, 8, 0)]),
        ([8], {"documents": SPLIT}, 20, []),
    ],
)
def test_targets_and_their_boundaries_by_hand(
    holes: list[int], facts: dict[str, Any], longest: int, boundaries: list[tuple[int, ...]]
) -> None:
    """(target, left, right, place) of each."""
    assert shown(batch_of(holes, **facts), longest) == boundaries


def test_boundaries_can_be_seen() -> None:
    made = make("span-boundary", bert()).eval()
    batch = corrupted(made, framed(200, 64))
    chosen, left, right, place = pairs(batch, 20)
    hidden = set(batch.index.tolist())
    assert not hidden & set(left.tolist()) and not hidden & set(right.tolist())
    at = batch.index[chosen]
    assert torch.equal(at - left - 1, place) and (right > at).all()
    assert torch.equal(left // 64, right // 64)
    assert len(chosen) == made.counts(batch)["boundary"] == made.counts(batch)["masked"]


def test_the_loss_is_that_of_the_parts_put_together() -> None:
    made = make("span-boundary", bert(), max_pair_targets=3, boundary_weight=0.5).eval()
    batch = corrupted(made, framed(6, 32))
    with torch.no_grad():
        loss = made(batch)
        hidden = encode(made.product, batch)
        head, total = made.boundary, 0.0
        for target, left, right, place in shown(batch, 3):
            both = [hidden.view(-1, 16)[left], hidden.view(-1, 16)[right], head.place.weight[place]]
            x = head.first_norm(functional.gelu(head.first(torch.cat(both)[None])))
            x = head.second_norm(functional.gelu(head.second(x)))
            scores = x @ made.product.tokens.weight.t() + head.bias
            total += float(functional.cross_entropy(scores, torch.tensor([target])))
    assert float(loss.parts["boundary"].total) == pytest.approx(total, rel=1e-5)
    assert loss.parts["boundary"].weight == 0.5
    assert head.place.weight.shape == (3, 200) and head.first.in_features == 2 * 16 + 200
