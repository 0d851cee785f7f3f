"""The fast projection is the plain one: results and gradients, and where it steps aside."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

from maskwright.model.nn.kernels import linear as room
from maskwright.model.nn.kernels.linear import linear, scaled_product, spare_rows


def given(*shape: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = (shape, (24, shape[-1]), (24,))
    return [torch.randn(s, generator=draw).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("shape", [(40, 16), (3, 40, 16), (2, 0, 16), (16,)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rectified", [False, True])
def test_it_is_a_linear(shape: tuple[int, ...], dtype: torch.dtype, rectified: bool) -> None:
    ours, theirs = given(*shape, dtype=dtype), given(*shape, dtype=dtype)
    out, wanted = linear(*ours, rectified=rectified), F.linear(*theirs)
    wanted = wanted.relu() if rectified else wanted
    assert torch.equal(out, wanted)
    (out.float() ** 2).sum().backward()
    (wanted.float() ** 2).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        # Equal but for the order in which a reduction adds.
        torch.testing.assert_close(one.grad, other.grad, rtol=0.01, atol=0.01 * 40)
        assert one.grad is not None and one.grad.dtype == dtype


def test_only_the_gradients_that_are_wanted() -> None:
    x, weight, bias = given(40, 16)
    linear(x.detach(), weight, bias.detach()).sum().backward()
    assert x.grad is None and bias.grad is None and weight.grad is not None


@pytest.fixture
def asked_again() -> Iterator[None]:
    """Whether the call is there is asked in the test, and after it."""
    room._has_call.cache_clear()
    yield
    room._has_call.cache_clear()


@pytest.mark.usefixtures("asked_again")
def test_without_the_call_it_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_call", Mock(side_effect=RuntimeError("not built in")))
    x, weight, bias = given(40, 16)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.usefixtures("asked_again")
def test_a_call_that_answers_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_call", lambda x, w, b, r: F.linear(x, w, b) + 1)
    assert not room._has_call()


def test_spare_rows_leave_few_sizes() -> None:
    def size(count: int) -> int:
        return count + spare_rows(torch.empty(count, 1, dtype=torch.bfloat16))

    assert size(0) == 0 and size(1) == 32 and size(1024) == 1024
    assert {size(count) for count in range(1100, 1200)} == {1152, 1216}
    assert all(size(n) - n < max(32, n / 15) for n in range(1, 5000))
    assert spare_rows(torch.empty(5, 1)) == 0  # nothing is compiled for float32


@pytest.mark.parametrize("ground", [None, False, True])
def test_product_and_gradients_are_those_of_the_definition(ground: bool | None) -> None:
    """`ground`: nothing is added, something constant, something that learns."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 4, 5), (1, 3, 5))
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    left, right, plus = (x.requires_grad_() for x in made)
    plus.requires_grad_(bool(ground))
    added = None if ground is None else plus
    inputs = [x for x in (left, right, plus) if x.requires_grad]

    ours = scaled_product(left, right, 0.3, added)
    definition = 0.3 * (left @ right) + (0.0 if added is None else added)
    assert torch.allclose(ours, definition)
    weights = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad((definition * weights).sum(), inputs)
    found = torch.autograd.grad((ours * weights).sum(), inputs)
    assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
    unscaled = torch.autograd.grad(((left @ right) * weights).sum(), left)[0]
    assert not torch.allclose(found[0], unscaled)
