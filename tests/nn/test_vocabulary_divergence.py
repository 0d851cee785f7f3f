"""The chunked divergence is PyTorch's: values, gradients, every chunking."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from maskwright.model.nn.kernels import vocabulary_divergence as room
from maskwright.model.nn.kernels.vocabulary_divergence import vocabulary_divergence
from nn.test_vocabulary_loss import gradients, inputs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [64, 1000])
def test_a_divergence_is_pytorchs(monkeypatch: pytest.MonkeyPatch, rows: int, bias: bool) -> None:
    monkeypatch.setattr(room, "BUFFER_BYTES", 4 * 331 * rows)
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


def test_a_divergence_by_hand() -> None:
    """Teacher (0.5, 0.5), own (0.2, 0.8): 0.5 ln(0.5/0.2) + 0.5 ln(0.5/0.8) = 0.2231; and nothing
    of a distribution from itself."""
    own, even = torch.tensor([[0.2, 0.8]]).log(), torch.zeros(1, 2)
    total, _ = vocabulary_divergence(own, torch.eye(2), None, even, torch.eye(2), None)
    assert float(total) == pytest.approx(0.2231, abs=5e-5)
    same, _ = vocabulary_divergence(own, torch.eye(2), None, own, torch.eye(2), None)
    assert float(same) == pytest.approx(0.0, abs=1e-7)
