"""Positions, norms, dropout and activations against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from maskwright.model.nn.config import Norm, Relative, Rotary
from maskwright.model.nn.kernels.dropout import (
    LEVELS,
    add_dropped,
    dropout,
    dropped_product,
    keep_levels,
    keep_mask,
    softmax,
)
from maskwright.model.nn.layers import (
    ACTIVATIONS,
    NormModule,
    relative_buckets,
    rotary_table,
    rotate,
    sinusoids,
)

CPU = torch.device("cpu")


# ------------------------------------------------------------------------------------ positions
@pytest.mark.parametrize("width", [6, 7])
def test_sinusoids_by_the_formula(width: int) -> None:
    table = sinusoids(20, width, torch.float32, CPU)
    for place in (0, 1, 19):
        for column in range(width):
            angle = place / 10_000 ** ((column - column % 2) / width)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[place, column].item() == pytest.approx(wanted, abs=1e-6)


def test_rotation_is_multiplication_by_a_complex_number() -> None:
    positions = torch.tensor([[0, 1, 5, 2]])
    x = torch.randn(1, 2, 4, 6)
    turned = rotate(x, rotary_table(Rotary(theta=100.0), positions, 6))
    for index, place in enumerate(positions[0].tolist()):
        for pair in range(3):
            turn = torch.polar(torch.tensor(1.0), torch.tensor(place / 100 ** (pair / 3)))
            wanted = torch.complex(x[0, :, index, pair], x[0, :, index, pair + 3]) * turn
            torch.testing.assert_close(turned[0, :, index, pair], wanted.real)
            torch.testing.assert_close(turned[0, :, index, pair + 3], wanted.imag)


def test_buckets_of_distance() -> None:
    """Worked by hand from the paper's rule: 8 buckets, distances up to 16."""
    config = Relative(buckets=8, max_distance=16)
    both = relative_buckets(config, 1, 41, 20, True, CPU)[0]
    # Before: exact at 0 and 1, then growing; after: the same plus 4.
    assert both[20].item() == 0
    assert [both[20 - d].item() for d in (1, 2, 3, 5, 6, 15, 16, 20)] == [1, 2, 2, 2, 3, 3, 3, 3]
    assert [both[20 + d].item() for d in (1, 2, 3, 5, 6, 15, 16, 20)] == [5, 6, 6, 6, 7, 7, 7, 7]
    past = relative_buckets(config, 1, 41, 20, False, CPU)[0]
    assert past[21:].eq(0).all()
    assert [past[20 - d].item() for d in (0, 1, 3, 4, 5, 6, 8, 11, 12, 20)] == [
        0,
        1,
        3,
        4,
        4,
        5,
        6,
        6,
        7,
        7,
    ]


def test_buckets_follow_the_start() -> None:
    config = Relative()
    whole = relative_buckets(config, 30, 30, 0, True, CPU)
    assert torch.equal(relative_buckets(config, 4, 30, 26, True, CPU), whole[26:])
    assert whole.min() == 0 and whole.max() < 32


# ---------------------------------------------------------------------------------------- norms
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_by_definition(kind: str) -> None:
    norm = NormModule(Norm(kind=kind, eps=1e-3), 8)  # type: ignore[arg-type]
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(5, 8) * 3 + 1
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    wanted = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-3) * norm.weight
    torch.testing.assert_close(norm(x), wanted, atol=1e-6, rtol=1e-5)
    assert (norm.bias is not None) == (kind == "layer")
    assert NormModule(Norm(bias=False), 8).bias is None


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_take_a_gradient_however_it_lies(kind: str) -> None:
    norm = NormModule(Norm(kind=kind), 8)  # type: ignore[arg-type]
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
        torch.testing.assert_close(ACTIVATIONS[name](x), values)  # type: ignore[index]
    assert (wanted["gelu"] - wanted["gelu_new"]).abs().max() > 1e-5


# -------------------------------------------------------------------------------------- dropout
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


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.randn(7, 33, requires_grad=True)
    out = dropout(x, 0.4, training=True)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, x * gradient)
    assert (gradient == 0).any() and (gradient > 1).any()


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_joined_forms_are_dropout_and_what_follows(rate: float) -> None:
    def given(*shape: int) -> torch.Tensor:
        torch.manual_seed(5)
        return torch.randn(shape, requires_grad=True)

    def twice(f, g, *shapes: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
        for one, other in zip(*(results(h, shapes) for h in (f, g)), strict=True):
            torch.testing.assert_close(one, other)

    def results(f, shapes):  # type: ignore[no-untyped-def]
        inputs = [given(*s) for s in shapes]
        torch.manual_seed(6)
        out = f(*inputs)
        weight = torch.arange(out.numel()).sin().view(out.shape)
        return out, *torch.autograd.grad((out * weight).sum(), inputs)

    def plain(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return dropout(weights, rate, training=True) @ values

    twice(lambda w, v: dropped_product(w, v, rate), plain, (3, 5, 7), (3, 7, 4))
    twice(
        lambda x, y: add_dropped(x, y, rate, training=True),
        lambda x, y: x + dropout(y, rate, training=True),
        (6, 9),
        (6, 9),
    )
    x = given(3, 4)
    assert torch.equal(add_dropped(x, x, rate, training=False), x + x)


def test_dropout_follows_the_default_generator() -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout(torch.ones(3, 5), 0.5, training=True)

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))


def test_dropout_off() -> None:
    x = torch.randn(4)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    half = dropout(torch.ones(64, dtype=torch.bfloat16), 0.5, training=True)
    assert half.dtype == torch.bfloat16
    assert F.dropout(x, 0.0).equal(x)


# -------------------------------------------------------------------------------------- softmax
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
