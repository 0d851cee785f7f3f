"""The shapes written in `nn/` and `objectives/` are checked in every test, not only read."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_loss
from maskwright.model.nn.mask import prefix, same_document


def test_shapes_are_enforced_in_the_stack() -> None:
    same_document(torch.ones(2, 3, dtype=torch.int32))
    with pytest.raises(TypeCheckError):
        same_document(torch.ones(3, dtype=torch.int32))
    with pytest.raises(TypeCheckError):
        prefix(torch.ones(2))


def test_shapes_are_enforced_in_objectives() -> None:
    hidden, weight = torch.zeros(4, 3), torch.zeros(7, 3)
    vocabulary_loss(hidden, weight, None, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(TypeCheckError):
        vocabulary_loss(hidden, weight, None, torch.zeros(5, dtype=torch.int64))
    with pytest.raises(TypeCheckError):
        vocabulary_loss(hidden[None], weight, None, torch.zeros(4, dtype=torch.int64))
