"""The fused loss is cross-entropy: values, gradients, every chunking, bounded memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from maskwright.base.errors import DataError
from maskwright.model.nn.kernels import vocabulary_loss as kernel
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_divergence, vocabulary_loss

Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor]


def inputs(
    count: int = 200, width: int = 12, size: int = 331, *, bias: bool = True, spread: float = 1.0
) -> Inputs:
    generator = torch.Generator().manual_seed(count + size)

    def drawn(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * spread).requires_grad_()

    targets = torch.randint(0, size, (count,), generator=generator)
    return drawn(count, width), drawn(size, width), drawn(size) if bias else None, targets


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum")


def gradients(total: Tensor, given: Inputs) -> list[Tensor]:
    return list(torch.autograd.grad(total, [x for x in given[:3] if x is not None]))


def chunked(monkeypatch: pytest.MonkeyPatch, rows: int, size: int = 331) -> None:
    monkeypatch.setattr(kernel, "BUFFER_BYTES", 4 * size * rows)


@pytest.mark.parametrize("rows", [64, 77, 1000])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("spread", [0.05, 1.0, 10.0])
def test_it_is_cross_entropy(
    monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool, spread: float
) -> None:
    chunked(monkeypatch, rows)
    given = inputs(bias=bias, spread=spread)
    exact = [None if x is None else x.detach().double().requires_grad_() for x in given[:3]]
    wanted = reference(exact[0], exact[1], exact[2], given[3])
    total, each = vocabulary_loss(*given)
    assert total.dtype == each.dtype == torch.float32 and not each.requires_grad
    assert total.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert total.item() == pytest.approx(reference(*given).item(), rel=1e-6)
    single = F.cross_entropy(F.linear(*given[:3]), given[3], reduction="none")
    torch.testing.assert_close(each, single, rtol=1e-5, atol=1e-5)
    # As near to float64 as the same thing computed in the usual way is.
    right = torch.autograd.grad(wanted * 0.25, [x for x in exact if x is not None])
    usual = gradients(reference(*given) * 0.25, given)
    for ours, theirs, true in zip(gradients(total * 0.25, given), usual, right, strict=True):
        errors = [((x - true).abs().max() / true.abs().max()).item() for x in (ours, theirs)]
        assert errors[0] < 2 * errors[1] + 1e-6


@pytest.mark.parametrize("rows", [64, 1000])
@pytest.mark.parametrize("height", [0.0, 200.0])
def test_z_loss_by_definition(monkeypatch: pytest.MonkeyPatch, rows: int, height: float) -> None:
    chunked(monkeypatch, rows)
    hidden, weight, bias, _ = given = inputs()
    bias.data += height
    level = F.linear(hidden, weight, bias).logsumexp(-1)
    wanted = reference(*given) + 0.3 * level.square().sum()
    total, each = vocabulary_loss(*given, z_loss=0.3)
    assert total.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert each.sum().item() == pytest.approx(reference(*given).item(), rel=1e-4)
    for ours, theirs in zip(gradients(total, given), gradients(wanted, given), strict=True):
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    # The control: without it the gradients are others.
    plain = gradients(vocabulary_loss(*given)[0], given)[0]
    again = gradients(vocabulary_loss(*given, z_loss=0.3)[0], given)[0]
    assert (plain - again).abs().max() > 0.01 * again.abs().max()


def test_only_the_gradients_that_are_wanted() -> None:
    hidden, weight, bias, targets = inputs()
    frozen = weight.detach()
    total, _ = vocabulary_loss(hidden, frozen, bias.detach(), targets)
    total.backward()
    (wanted,) = torch.autograd.grad(reference(hidden, frozen, bias, targets), hidden)
    torch.testing.assert_close(hidden.grad, wanted, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert not vocabulary_loss(hidden, weight, bias, targets)[0].requires_grad


@pytest.mark.parametrize(("width", "size"), [(12, 331), (24, 17)])
def test_F43_no_targets(width: int, size: int) -> None:
    given = inputs(0, width, size)
    total, each = vocabulary_loss(*given)
    assert total.item() == 0.0 and each.shape == (0,)
    assert not any(gradient.any() for gradient in gradients(total, given))
    assert len(kernel.vocabulary_sample(*given, torch.zeros(0))[2]) == 0


@pytest.mark.parametrize("bad", [-100, 331])
def test_a_target_outside_the_vocabulary(bad: int) -> None:
    hidden, weight, bias, targets = inputs()
    targets[5] = bad
    with pytest.raises(DataError, match=str(bad)):
        vocabulary_loss(hidden, weight, bias, targets)


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_the_loss_is_read_wide_where_weights_are_half(spread: float) -> None:
    hidden, weight, bias, targets = (
        x if x is None or not x.is_floating_point() else x.detach().bfloat16().requires_grad_()
        for x in inputs(bias=True, spread=spread)
    )
    total, each = vocabulary_loss(hidden, weight, bias, targets)
    scores = torch.addmm(bias[:, None], weight, hidden.T).float()
    wanted = F.cross_entropy(scores.T, targets, reduction="none")
    assert (each >= 0).all()
    torch.testing.assert_close(each, wanted, rtol=0, atol=2**-7)
    assert each.mean().item() == pytest.approx(wanted.mean().item(), abs=3e-4)
    single = [x.detach().float().requires_grad_() for x in (hidden, weight, bias)]
    right = gradients(reference(*single, targets), (*single, targets))
    for ours, wide in zip(gradients(total, (hidden, weight, bias, targets)), right, strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours.float() - wide).abs().max() < 0.02 * wide.abs().max()


def test_under_autocast() -> None:
    given = inputs(spread=0.5)
    with torch.autocast("cpu", torch.bfloat16):
        total, each = vocabulary_loss(*given)
    assert each.dtype == torch.float32
    assert total.item() == pytest.approx(reference(*given).item(), rel=5e-3)
    assert all(g.dtype == torch.float32 for g in gradients(total, given))


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    chunked(monkeypatch, 100, size=997)
    given = inputs(1000, 4, 997)
    with Largest() as ours:
        vocabulary_loss(*given)[0].backward()
    with Largest() as theirs:
        reference(*given).backward()
    assert ours.numel == 100 * 997
    assert theirs.numel == 1000 * 997, "the measure must see all the scores where they exist"


@pytest.mark.parametrize("height", [-300.0, 60.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_far_from_zero_are_shifted(height: float, dtype: torch.dtype) -> None:
    hidden, weight, bias, targets = inputs()
    drawn = (hidden, weight, bias + height)
    given = (*(x.detach().to(dtype).requires_grad_() for x in drawn), targets)
    total, each = vocabulary_loss(*given)
    wanted = F.cross_entropy(F.linear(*given[:3]).float(), targets, reduction="none")
    torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-4 if dtype.itemsize == 4 else 3.0)
    assert all(g.isfinite().all() for g in gradients(total, given))


@pytest.mark.parametrize("height", [-12.0, -9.0, 0.0])
def test_float16_loses_no_digits_of_small_exponentials(height: float) -> None:
    """Below e^-9.7 its numbers lose digits, though sums are far from the ends of its range."""
    hidden, weight, bias, targets = inputs(spread=0.3)
    given = [x.detach().half().requires_grad_() for x in (hidden, weight, bias + height)]
    _, each = vocabulary_loss(given[0], given[1], given[2], targets)
    scores = torch.addmm(given[2][:, None], given[1], given[0].T).float()
    wanted = F.cross_entropy(scores.T, targets, reduction="none")
    torch.testing.assert_close(each, wanted.detach(), rtol=0, atol=2e-3)


def test_where_a_device_would_have_to_be_waited_for_nothing_is_read_back() -> None:
    """On "meta" there is nothing to be read: whatever asks for a number fails."""
    hidden, weight, bias, targets = (x.detach().to("meta") for x in inputs() if x is not None)
    uniforms, wanted = torch.rand(200, device="meta"), (True, True, True)
    arguments = kernel._Inputs(hidden, weight, bias, targets, uniforms, 0.1, 190)
    total, *_, gradients = kernel._chunks(arguments, wanted)
    assert total.shape == () and [len(g) for g in gradients] == [200, 331, 331]


def drawn(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Ids drawn by the fused loss from log-weights (N, V): hidden states are one-hot rows."""
    zeros = torch.zeros(len(weights), dtype=torch.int64)
    states, table = torch.eye(len(weights)), weights.t().contiguous()
    return kernel.vocabulary_sample(states, table, None, zeros, uniforms)[2]


@pytest.mark.parametrize("size", [2, 127, 128, 129, 300])
def test_draws_follow_the_scores(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    scores = torch.randn((64, size), generator=generator) * 3
    uniforms = torch.rand(64, generator=generator, dtype=torch.float64)
    edges = scores.double().softmax(-1).cumsum(-1)
    wanted, ids = (edges <= uniforms[:, None]).sum(-1), drawn(scores, uniforms)
    # Where the number lies on an edge, to rounding, its neighbour is as right.
    near = (edges - uniforms[:, None]).abs().amin(-1) < 1e-6
    assert torch.equal(ids[~near], wanted[~near]) and near.sum() < 3


def test_drawing_changes_neither_loss_nor_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    chunked(monkeypatch, 64)
    given = inputs()
    uniforms = torch.rand(200, generator=torch.Generator().manual_seed(0))
    total, losses, ids = kernel.vocabulary_sample(*given, uniforms)
    plain, each = vocabulary_loss(*given)
    assert torch.equal(total, plain) and torch.equal(losses, each) and not ids.requires_grad
    for ours, theirs in zip(gradients(total, given), gradients(plain, given), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("spare", [1, 37, 300])
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
def test_rows_that_stand_for_nothing_change_nothing(
    monkeypatch: pytest.MonkeyPatch, spare: int, z_loss: float
) -> None:
    chunked(monkeypatch, 77)
    given = inputs()
    uniforms = torch.rand(200, generator=torch.Generator().manual_seed(0))
    total, each = vocabulary_loss(*given, z_loss=z_loss)
    *_, ids = kernel.vocabulary_sample(*given, uniforms)
    wanted = gradients(total, given)
    monkeypatch.setattr(kernel, "spare_rows", lambda rows: spare)
    again, others = vocabulary_loss(*given, z_loss=z_loss)
    torch.testing.assert_close((again, others), (total, each))
    torch.testing.assert_close(gradients(again, given), wanted)
    assert torch.equal(kernel.vocabulary_sample(*given, uniforms)[2], ids)
    # The control: rows that count would be seen in the gradient of the bias.
    more = (F.pad(given[0], (0, 0, 0, 1)), *given[1:3], F.pad(given[3], (0, 1)))
    counted = torch.autograd.grad(vocabulary_loss(*more, z_loss=z_loss)[0], given[2])[0]
    assert not torch.allclose(counted, wanted[2])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_small_vocabulary_scored_whole_is_the_same(
    monkeypatch: pytest.MonkeyPatch, bias: bool, z_loss: float, dtype: torch.dtype
) -> None:
    given = inputs(width=24, size=17, bias=bias, spread=0.5)
    narrow = [None if x is None else x.detach().to(dtype).requires_grad_() for x in given[:3]]
    hidden, weight, added = narrow
    uniforms = torch.rand(200, generator=torch.Generator().manual_seed(0))

    def found() -> tuple[Tensor, ...]:
        total, losses = vocabulary_loss(hidden, weight, added, given[3], z_loss)
        assert not losses.requires_grad
        return total.detach(), losses, *gradients(total, (hidden, weight, added, given[3]))

    def drawn_ids() -> Tensor:
        return kernel.vocabulary_sample(hidden, weight, added, given[3], uniforms)[2]

    few, ids = found(), drawn_ids()
    monkeypatch.setattr(kernel, "_whole", None)  # the other way does not call it
    monkeypatch.setattr(kernel, "_FEW", 0)
    rtol, atol, equal = (1e-10, 1e-10, 0.999) if dtype == torch.float64 else (0.02, 0.1, 0.98)
    torch.testing.assert_close(few, found(), rtol=rtol, atol=atol)
    assert (ids == drawn_ids()).float().mean() > equal


# ------------------------------------------------------------------------------ divergence
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [64, 1000])
def test_a_divergence_is_pytorchs(monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool) -> None:
    monkeypatch.setattr(kernel, "DIVERGENCE_BYTES", 4 * 331 * rows)
    given, teacher = inputs(bias=bias), inputs(width=7, bias=bias)
    total, each = vocabulary_divergence(*given[:3], *teacher[:3])
    own = F.linear(*given[:3]).log_softmax(-1)
    wanted = F.linear(*teacher[:3]).detach().log_softmax(-1)
    right = F.kl_div(own, wanted, log_target=True, reduction="none").sum(-1)
    torch.testing.assert_close(each, right, rtol=1e-4, atol=1e-5)
    assert total.item() == pytest.approx(right.sum().item(), rel=1e-5)
    for ours, theirs in zip(gradients(total, given), gradients(right.sum(), given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert all(x is None or x.grad is None for x in teacher[:3])
