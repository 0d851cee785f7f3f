"""One predicate, three renderings: they agree, and compose as sets do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from maskwright.base.errors import DataError
from maskwright.model.nn.mask import (
    AttentionMask,
    SdpaMask,
    bidirectional,
    causal,
    prefix,
    reach,
    real,
    same_document,
    visible_of,
    window,
)
from nn.points import sees_all

DOCUMENTS = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 2, 2, 3, 3, 3, 3]], dtype=torch.int32)
KEEP = torch.tensor([[True] * 6 + [False] * 2, [True] * 8])
LENGTHS = torch.tensor([2, 5])
MARKED = torch.tensor([[True] + [False] * 7, [False] * 4 + [True] * 2 + [False] * 2])
MASKS = {
    "bidirectional": bidirectional,
    "causal": causal,
    "window": window(2, 1),
    "causal window": causal & window(2, 0),
    "packed": same_document(DOCUMENTS),
    "packed causal": causal & same_document(DOCUMENTS),
    "packed local": window(1, 1) & same_document(DOCUMENTS),
    "real": real(KEEP),
    "prefix": causal | prefix(LENGTHS),
    "global": window(1, 1).with_global_keys(MARKED) | sees_all(MARKED),
    "packed global": window(2, 1).with_global_keys(MARKED) & same_document(DOCUMENTS),
}


def by_hand(name: str, row: int, query: int, key: int) -> bool:
    """Who sees whom, written a second time without tensors."""
    same = bool(DOCUMENTS[row, query] == DOCUMENTS[row, key]) and int(DOCUMENTS[row, key]) != 0
    return {
        "bidirectional": True,
        "causal": key <= query,
        "window": -1 <= query - key <= 2,
        "causal window": 0 <= query - key <= 2,
        "packed": same,
        "packed causal": same and key <= query,
        "packed local": same and abs(query - key) <= 1,
        "real": bool(KEEP[row, key]),
        "prefix": key <= query or key < int(LENGTHS[row]),
        "global": abs(query - key) <= 1 or bool(MARKED[row, key] or MARKED[row, query]),
        "packed global": same and (-1 <= query - key <= 2 or bool(MARKED[row, key])),
    }[name]


@pytest.mark.parametrize("name", MASKS)
def test_dense_is_the_definition(name: str) -> None:
    dense = MASKS[name].draw(8).dense.expand(2, -1, -1)
    wanted = [[[by_hand(name, r, q, k) for k in range(8)] for q in range(8)] for r in range(2)]
    assert dense.tolist() == wanted


def for_sdpa(mask: AttentionMask, *sizes: int, start: int = 0) -> SdpaMask:
    return mask.draw(*sizes, start=start).for_sdpa(torch.float32)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("start", [0, 3])
def test_the_renderings_agree(name: str, start: int) -> None:
    mask, queries = MASKS[name], 8 - start
    dense = mask.draw(queries, 8, start=start).dense
    blind = ~dense.any(-1, keepdim=True)

    bias = mask.draw(queries, 8, start=start).bias(torch.float32)
    seen = torch.ones_like(dense) if bias is None else bias[:, 0] == 0
    assert torch.equal(seen, dense | blind)
    assert bias is None or set(bias.unique().tolist()) <= {0.0, float("-inf")}

    query, key, value = torch.randn(3, 2, 1, 8, 4).unbind(0)
    query = query[:, :, start:]
    sdpa = F.scaled_dot_product_attention(
        query, key, value, **for_sdpa(mask, queries, 8, start=start)
    )
    plain = F.scaled_dot_product_attention(query, key, value, attn_mask=(dense | blind)[:, None])
    torch.testing.assert_close(sdpa, plain)
    if name == "packed":  # the control: another mask gives other results
        other = F.scaled_dot_product_attention(query, key, value)
        assert not torch.allclose(sdpa, other)


def test_causal_shortcut_only_where_it_is_the_same() -> None:
    assert for_sdpa(causal, 8) == {"attn_mask": None, "is_causal": True}
    assert for_sdpa(causal & causal & bidirectional, 8)["is_causal"]
    # The library aligns its causal mask with the first key, a cache with the last.
    assert not for_sdpa(causal, 2, 8, start=6)["is_causal"]
    assert not for_sdpa(causal & window(2, 0), 8)["is_causal"]
    assert for_sdpa(causal, 1, 8, start=7) == {"attn_mask": None, "is_causal": False}


def test_an_open_mask_costs_nothing() -> None:
    full = same_document(torch.ones(2, 5, dtype=torch.int64))
    assert full.draw(5).bias(torch.float32) is None
    assert bidirectional.draw(5).bias(torch.float32) is None
    assert (causal | bidirectional) is bidirectional
    assert (bidirectional & causal) is causal
    assert visible_of(None) is None


def test_blind_queries_are_named() -> None:
    mask_at_size = same_document(DOCUMENTS).draw(8)
    assert mask_at_size.blind[:, 0, :, 0].nonzero().tolist() == [[0, 7]]
    assert torch.isfinite(mask_at_size.bias(torch.float32)[0, 0, 7]).all()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.sampled_from(["&", "|"]))
def test_composition_is_that_of_sets(ids: list[int], sign: str) -> None:
    documents = same_document(torch.tensor([ids]))
    size = len(ids)
    for other in (bidirectional, causal, window(1, 0)):
        both = documents & other if sign == "&" else documents | other
        left, right = documents.draw(size).dense, other.draw(size).dense
        assert torch.equal(both.draw(size).dense, left & right if sign == "&" else left | right)


def test_masks_of_different_batches_do_not_join() -> None:
    with pytest.raises(DataError, match="3 rows"):
        same_document(DOCUMENTS) & real(torch.ones(3, 8, dtype=torch.bool))


def test_reach_goes_through_layers() -> None:
    assert reach([window(1, 1)] * 2, 6)[0, 0].tolist() == [True, True, True, False, False, False]
    assert torch.equal(reach([causal] * 4, 6), causal.draw(6).dense)
    # From the far end to a global token, and from there to everything.
    assert reach([MASKS["global"]] * 2, 8).all()
    assert not reach([window(1, 1)] * 2, 8).all()
    packed, itself = same_document(DOCUMENTS), torch.eye(8, dtype=torch.bool)
    assert torch.equal(reach([bidirectional & packed] * 3, 8), packed.draw(8).dense | itself)


@pytest.mark.parametrize("name", MASKS)
def test_keys_in_front_are_seen_by_all_and_change_nothing_behind(name: str) -> None:
    mask, count = MASKS[name], 3
    mask_at_size = mask.draw(8).with_prefix_keys(count)
    dense = mask_at_size.dense
    assert dense.shape[-2:] == (8, 8 + count) and bool(dense[..., :count].all())
    assert torch.equal(dense[..., count:], mask.draw(8).dense)
    later = mask.draw(2, 8, start=6).with_prefix_keys(count)  # from a cache
    assert torch.equal(later.dense[..., count:], mask.draw(2, 8, start=6).dense)
    assert mask_at_size.open == mask.draw(8).open
    assert mask_at_size.blind is None  # who sees nothing else sees these
