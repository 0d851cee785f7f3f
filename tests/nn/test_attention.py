"""The two kernels of `attend` are one function, with every mask, and blind queries get zeros."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from maskwright.model.nn import attention
from maskwright.model.nn.attention import KERNELS, AttentionContext, KernelCase, attend
from maskwright.model.nn.mask import AttentionMask, same_document, window
from nn.test_mask import MASKS

ROWS, HEADS, WIDTH, LENGTH = 2, 3, 4, 8
KERNEL_NAMES = ("explicit", "sdpa", "blocks")


def choose(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    if kernel == "blocks":  # of one or two queries, whatever the length
        monkeypatch.setattr(attention, "WORTH_BLOCKS", 0)
        monkeypatch.setattr(attention, "SMALLEST_BLOCK", 1)
        kernel = "explicit"
    cases = [KernelCase(g, d, n) for g in (0, 1) for d in (0, 1) for n in (0, 1)]
    monkeypatch.setattr(attention, "KERNELS", {("cpu", case): kernel for case in cases})


def inputs(requires_grad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, LENGTH, HEADS, WIDTH)
    made = [torch.randn(shape, generator=generator) for _ in range(3)]
    return tuple(x.transpose(1, 2).requires_grad_(requires_grad) for x in made)


def by_definition(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, scale: float) -> Tensor:
    """Softmax over the visible keys, key by key; float64."""
    dense = mask.draw(LENGTH).dense.expand(ROWS, -1, -1)
    out = torch.zeros(ROWS, LENGTH, HEADS, WIDTH, dtype=torch.float64)
    q, k, v = (x.detach().double() for x in (q, k, v))
    for row in range(ROWS):
        for query in range(LENGTH):
            seen = dense[row, query].nonzero()[:, 0]
            for head in range(HEADS if len(seen) else 0):
                scores = scale * k[row, head, seen] @ q[row, head, query]
                weights = torch.softmax(scores, 0)
                out[row, query, head] = weights @ v[row, head, seen]
    return out


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("name", MASKS)
def test_kernels_by_definition(monkeypatch: pytest.MonkeyPatch, kernel: str, name: str) -> None:
    choose(monkeypatch, kernel)
    q, k, v = inputs()
    out = attend(q, k, v, AttentionContext(MASKS[name].draw(LENGTH)), scale=0.3)
    wanted = by_definition(q, k, v, MASKS[name], 0.3)
    torch.testing.assert_close(out.double(), wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_the_kernels_agree(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    gradients = []
    for kernel in KERNEL_NAMES:
        choose(monkeypatch, kernel)
        q, k, v = inputs()
        out = attend(q, k, v, AttentionContext(MASKS[name].draw(LENGTH)), scale=0.5)
        weight = torch.arange(out.numel(), dtype=torch.float32).sin().view(out.shape)
        gradients.append(torch.autograd.grad((out * weight).sum(), (q, k, v)))
    for other in gradients[1:]:
        for ours, theirs in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("length", [*range(1, 40), 257])
def test_blocks_of_a_band_are_full_attention(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """At any length, whoever stands beside a row, and with less than the square of memory."""
    monkeypatch.setattr(attention, "SMALLEST_BLOCK", 4)
    q, k, v = torch.randn(3, 3, 2, length, 4, generator=torch.Generator().manual_seed(1)).unbind(0)
    documents = torch.ones(3, length, dtype=torch.int32)
    documents[1, length // 2 :] = 0
    marked = torch.rand(3, length, generator=torch.Generator().manual_seed(2)) < 0.2
    marked[2] = False

    def out(worth: float, rows: slice, marked: Tensor = marked) -> Tensor:
        monkeypatch.setattr(attention, "WORTH_BLOCKS", worth)
        mask = window(5, 3).with_global_keys(marked[rows]) & same_document(documents[rows])
        context = AttentionContext(mask.draw(length))
        assert (context.band is None) == (worth > 1)
        for _, block in context.band.blocks if context.band is not None else ():
            assert block.mask_at_size.keys <= 5 * 4 + int(marked.sum(1).max())
        return attend(q[rows], k[rows], v[rows], context, scale=0.5)

    dense = out(1e9, slice(3))
    torch.testing.assert_close(out(0, slice(3)), dense, atol=1e-6, rtol=1e-6)
    for row in range(3):
        alone = out(0, slice(row, row + 1))
        torch.testing.assert_close(alone, dense[row : row + 1], atol=1e-6, rtol=1e-6)
    if length > 20:  # the control: a key that is global and is not
        assert not torch.allclose(out(0, slice(3), marked.roll(1, 1)), dense, atol=1e-3)


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_F50_a_blind_query_gets_zeros_and_gives_no_gradient(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    choose(monkeypatch, kernel)
    q, k, v = inputs()
    out = attend(q, k, v, AttentionContext(MASKS["packed"].draw(LENGTH)), scale=0.5)
    assert torch.equal(out[0, 7], torch.zeros(HEADS, WIDTH))
    assert out[1, 7].abs().min() > 0
    gradient = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(bool(torch.isfinite(g).all()) for g in gradient)
    assert not gradient[0][0, :, 7].any() and not gradient[2][0, :, 7].any()


def test_the_choice_is_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def spy(name: str, kernel: Callable[..., Tensor], *arguments: object) -> Tensor:
        taken.append(name)
        return kernel(*arguments)

    for name in ("_explicit", "_sdpa"):
        monkeypatch.setattr(attention, name, partial(spy, name[1:], getattr(attention, name)))
    q, k, v = inputs()
    context = AttentionContext(MASKS["causal"].draw(LENGTH))
    attend(q, k, v, context, scale=1.0, dropout=0.5, training=True)
    attend(q, k, v, context, scale=1.0, dropout=0.5, training=False)
    with torch.no_grad():
        attend(q, k, v, context, scale=1.0)
    attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), context, scale=1.0)
    context.weights = []
    attend(q, k, v, context, scale=1.0)
    assert taken == ["explicit", "sdpa", "sdpa", "explicit", "explicit"]
    assert set(KERNELS.values()) == {"explicit"}


def test_weights_on_demand() -> None:
    q, k, v = inputs()
    context = AttentionContext(MASKS["packed causal"].draw(LENGTH), weights=[])
    out = attend(q, k, v, context, scale=0.5)
    (weights,) = context.weights
    assert weights.shape == (ROWS, HEADS, LENGTH, LENGTH)
    torch.testing.assert_close(weights.sum(-1), torch.ones(ROWS, HEADS, LENGTH))
    dense = MASKS["packed causal"].draw(LENGTH).dense[:, None]
    blind = ~dense.any(-1, keepdim=True)
    assert not weights[(~dense & ~blind).expand_as(weights)].any()
    again = (weights.masked_fill(blind, 0.0) @ v).transpose(1, 2)
    torch.testing.assert_close(out, again)


def test_dropout_of_weights_keeps_the_expectation() -> None:
    q, k, v = inputs()
    context = AttentionContext(MASKS["causal"].draw(LENGTH))
    still = attend(q, k, v, context, scale=0.5, dropout=0.5, training=False)
    torch.manual_seed(0)
    many = [attend(q, k, v, context, scale=0.5, dropout=0.5, training=True) for _ in range(600)]
    assert not torch.equal(many[0], still)
    mean, spread = torch.stack(many).mean(0), torch.stack(many).std(0) / math.sqrt(600)
    assert ((mean - still).abs() < 5 * spread + 1e-6).all()


def test_a_sight_behind_others_has_no_distance_to_them_and_is_made_once() -> None:
    distance = torch.randn(1, HEADS, LENGTH, LENGTH)
    context = AttentionContext(MASKS["causal"].draw(LENGTH), distance=distance)
    behind = context.with_prefix_keys(2)
    assert behind is context.with_prefix_keys(2) and behind is not context.with_prefix_keys(3)
    bias = behind.bias(torch.float32)
    assert bias is not None and not bias[..., :2].any()
    joined = context.bias(torch.float32)
    assert joined is not None and torch.equal(bias[..., 2:], joined)
