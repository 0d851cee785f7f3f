"""A packed projection gives what `F.linear` gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from maskwright.model.inference import blocks
from maskwright.model.inference.blocks import PackedWeight
from maskwright.model.nn.layers import ACTIVATIONS

DRAW = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(33, 20, generator=DRAW), torch.randn(33, generator=DRAW)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3, 70, 600])
def test_as_linear(rows: int, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(blocks, "_packs", lambda dtype: False)
    x, residual = torch.randn(rows, 20), torch.randn(rows, 33)
    wanted = F.linear(x, WEIGHT, BIAS)
    torch.testing.assert_close(PackedWeight(WEIGHT, BIAS)(x), wanted)
    torch.testing.assert_close(PackedWeight(WEIGHT, BIAS)(x, residual), wanted + residual)
    torch.testing.assert_close(PackedWeight(WEIGHT)(x), F.linear(x, WEIGHT))
    for activation in ACTIVATIONS:
        found = PackedWeight(WEIGHT, BIAS, activation)(x)
        torch.testing.assert_close(found, ACTIVATIONS[activation](wanted), rtol=1e-5, atol=1e-5)
        # The control: activations are told apart.
        assert not rows or not torch.allclose(found, wanted)


def test_rows_are_of_few_sizes() -> None:
    """Memory: oneDNN keeps a compiled product for each number of rows."""
    sizes = [blocks.sized(rows) for rows in range(4_097)]
    assert all(rows <= size < 1.12 * rows + 1 for rows, size in enumerate(sizes))
    assert sizes[:17] == list(range(17)) and len(set(sizes)) == 17 + 5 * 8 + 3 * 16


def test_a_change_afterwards_is_not_seen() -> None:
    weight = WEIGHT.clone()
    product = PackedWeight(weight)
    if not product.fits:
        pytest.skip("this build does not pack")
    weight.zero_()
    for rows in (1, 3):
        x = torch.randn(rows, 20)
        torch.testing.assert_close(product(x), F.linear(x, WEIGHT))
        assert not torch.allclose(product(x), F.linear(x, weight)), "the control"
