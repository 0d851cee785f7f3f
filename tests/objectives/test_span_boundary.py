"""Span boundaries: which targets, from which states, scored how."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from maskwright.model.batch import Batch
from maskwright.model.objectives.base.objective import encode
from maskwright.model.objectives.modules.span_boundary import SpanBoundary, pairs
from objectives.by_hand import epochs, framed, make
from toys import bert


def batch_of(chosen: list[int], rows: int = 1, length: int = 10, **fields: object) -> Batch:
    tokens = torch.arange(rows * length).view(rows, length)
    index = torch.tensor(chosen, dtype=torch.int64)
    return Batch(tokens=tokens, index=index, targets=index, **fields)  # type: ignore[arg-type]


def shown(batch: Batch, longest: int = 20) -> list[tuple[int, int, int, int]]:
    chosen, left, right, place = pairs(batch, longest)
    assert batch.targets is not None
    columns = (batch.targets[chosen], left, right, place)
    return [tuple(line) for line in torch.stack(columns, 1).tolist()]  # type: ignore[misc]


def test_a_row_by_hand() -> None:
    """Holes 2, 3, 4 between 1 and 5; hole 7 between 6 and 8: (target, left, right, place)."""
    assert shown(batch_of([2, 3, 4, 7])) == [(2, 1, 5, 0), (3, 1, 5, 1), (4, 1, 5, 2), (7, 6, 8, 0)]


def test_only_the_first_of_a_long_span() -> None:
    assert shown(batch_of([2, 3, 4, 7]), 2) == [(2, 1, 5, 0), (3, 1, 5, 1), (7, 6, 8, 0)]


def test_a_span_at_an_edge_has_no_boundary() -> None:
    """Two rows of ten: 8, 9 end the first one, 10 begins the second."""
    assert shown(batch_of([8, 9, 10, 12], rows=2)) == [(12, 11, 13, 0)]
    assert shown(batch_of([])) == []


def test_a_boundary_lies_in_the_spans_own_document() -> None:
    documents = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0]], dtype=torch.int32)
    batch = batch_of([1, 4, 5, 7], documents=documents)
    # 4 and 5 touch, but not within a document; 4 ends the first, 5 begins the second.
    assert shown(batch) == [(1, 0, 2, 0), (7, 6, 8, 0)]
    assert shown(batch_of([8], documents=documents)) == []  # beside padding


def test_boundaries_can_be_seen() -> None:
    """Never a chosen position, whatever touches; always of the same row and document."""
    rows = framed(200, 64)
    made = make("span-boundary", bert()).eval()
    batch = made.corrupt(rows, epochs(rows), 0)
    assert batch.index is not None
    chosen, left, right, place = pairs(batch, 20)
    hidden = set(batch.index.tolist())
    assert not hidden & set(left.tolist()) and not hidden & set(right.tolist())
    at = batch.index[chosen]
    assert torch.equal(at - left - 1, place) and (right > at).all()
    assert torch.equal(left // 64, right // 64)
    assert len(chosen) == made.counts(batch)["boundary"] == made.counts(batch)["masked"]


def test_the_loss_is_that_of_the_parts_put_together() -> None:
    rows = framed(6, 32)
    made = make("span-boundary", bert(), max_pair_targets=3, boundary_weight=0.5).eval()
    assert isinstance(made, SpanBoundary)
    batch = made.corrupt(rows, epochs(rows), 0)
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


def test_a_batch_without_a_boundary_costs_nothing() -> None:
    rows = framed(2, 12)
    rows = replace(rows, special=np.ones_like(rows.special))
    made = make("span-boundary", bert()).eval()
    batch = made.corrupt(rows, epochs(rows), 0)
    assert made.counts(batch) == {"masked": 0, "boundary": 0}
    assert float(made(batch).scaled(made.counts(batch)).detach()) == 0.0


def test_the_head_is_no_part_of_the_product() -> None:
    made = make("span-boundary", bert())
    names = {n for n, _ in made.named_parameters()}
    assert {n for n in names if not n.startswith("product.")} == {
        f"boundary.{n}" for n, _ in made.boundary.named_parameters()
    }
