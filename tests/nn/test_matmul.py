"""The product with a factor and its gradients are those of the definition."""

from __future__ import annotations

import pytest
import torch

from maskwright.model.nn.kernels.linear import scaled_product


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
