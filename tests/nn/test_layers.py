"""Positions, norms, dropout and activations against their definitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from maskwright.model.nn.config import Norm
from maskwright.model.nn.kernels.dropout import (
    LEVELS,
    add_dropped,
    dropout,
    dropped_product,
    keep_levels,
    keep_mask,
    softmax,
)
from maskwright.model.nn.layers import ACTIVATIONS, NormModule, sinusoids

CPU = torch.device("cpu")


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_by_the_formula(width: int) -> None:
    table = sinusoids(20, width, torch.float32, CPU)
    for place in (0, 1, 19):
        for column in range(width):
            angle = place / 10_000 ** ((column - column % 2) / width)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[place, column].item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_take_a_gradient_however_it_lies(kind: str) -> None:
    norm = NormModule(Norm(kind=kind), 8)
    x = torch.randn(2, 3, 8, requires_grad=True)
    norm(x).transpose(1, 2).contiguous().square().sum().backward()
    (lies_otherwise,) = torch.autograd.grad(norm(x).square().sum(), x)
    torch.testing.assert_close(x.grad, lies_otherwise)


def test_rms_in_half_precision_does_not_overflow() -> None:
    norm = NormModule(Norm(kind="rms", eps=1e-6), 8).to(torch.float16)
    out = norm(torch.full((1, 8), 1000.0, dtype=torch.float16))
    assert out.dtype == torch.float16
    torch.testing.assert_close(out, torch.ones_like(out))


def test_activations_by_definition() -> None:
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    cube = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    wanted = {
        "gelu": 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "gelu_new": 0.5 * x * (1 + torch.tanh(cube)),
        "relu": x.clamp(min=0),
        "silu": x / (1 + torch.exp(-x)),
        "tanh": torch.tanh(x),
    }
    assert wanted.keys() == ACTIVATIONS.keys()
    for name, values in wanted.items():
        torch.testing.assert_close(ACTIVATIONS[name](x), values)
    assert (wanted["gelu"] - wanted["gelu_new"]).abs().max() > 1e-5


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_has_its_rate_and_its_expectation(rate: float) -> None:
    torch.manual_seed(0)
    count = 400_000
    out = dropout(torch.ones(count), rate, training=True)
    kept = keep_levels(rate) / LEVELS
    assert kept == pytest.approx(1 - rate, abs=2**-16)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / kept])
    spread = math.sqrt(kept * (1 - kept) / count)
    assert abs((out != 0).float().mean().item() - kept) < 5 * spread
    assert out.mean().item() == pytest.approx(1.0, abs=5 * spread / kept)


def test_neighbours_are_independent() -> None:
    """Eight elements share one draw, and thresholds alternate over columns: no pair of elements
    may be correlated, and none kept more often than another."""
    torch.manual_seed(1)
    calls, rate = 5_000, 0.3
    lanes = torch.stack([keep_mask(torch.Size((2, 128)), rate) for _ in range(calls)])
    lanes = lanes.view(calls, 256).float()
    kept = keep_levels(rate) / LEVELS
    spread = math.sqrt(kept * (1 - kept) / calls)
    assert (lanes.mean(0) - kept).abs().max() < 5 * spread
    correlation = torch.corrcoef(lanes.T) - torch.eye(256)
    assert correlation.abs().max() < 6 / math.sqrt(calls)
    # Negative control: the measure sees a lane that copies another.
    lanes[:, 3] = lanes[:, 0]
    assert (torch.corrcoef(lanes.T) - torch.eye(256)).abs().max() > 0.9


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_joined_forms_are_dropout_and_what_follows(rate: float) -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return dropout(x, rate, training=True)

    def results(f: Any, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
        draw = torch.Generator().manual_seed(5)
        inputs = [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]
        torch.manual_seed(6)
        out = f(*inputs)
        weight = torch.arange(out.numel()).sin().view(out.shape)
        return [out, *torch.autograd.grad((out * weight).sum(), inputs)]

    for joined, apart, left, right in (
        (lambda w, v: dropped_product(w, v, rate), lambda w, v: drop(w) @ v, (3, 5, 7), (3, 7, 4)),
        (lambda x, y: add_dropped(x, y, rate, True), lambda x, y: x + drop(y), (6, 9), (6, 9)),
        (lambda x, y: add_dropped(x, y, rate, False), torch.add, (6, 9), (6, 9)),
    ):
        torch.testing.assert_close(results(joined, left, right), results(apart, left, right))


@pytest.mark.parametrize("keys", [1, 31, 32, 48, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_softmax_is_pytorchs(keys: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scores = (4 * torch.randn(3, 5, keys)).to(dtype)
    scores[0, 0, 1:] = -math.inf
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    out, wanted = softmax(ours), torch.softmax(theirs.float(), -1)
    assert out.dtype == dtype
    close = {"rtol": 1e-2, "atol": 1e-3} if dtype == torch.bfloat16 else {"rtol": 1e-6, "atol": 0}
    torch.testing.assert_close(out.float(), wanted, **close)
    weight = torch.arange(out.numel()).sin().view(out.shape)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    assert ours.grad is not None and ours.grad.dtype == dtype
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-2, atol=4e-3)
