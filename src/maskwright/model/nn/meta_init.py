"""What a module's weights are before anything gives them others: drawn, if there are any.

On the meta device, where a model has shapes alone, nothing is drawn: PyTorch would load its
compiler for it, which takes seconds at the start of every command that builds or loads a model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EmbeddingTable(nn.Embedding):
    """`torch.nn.Embedding` in parameters and results."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


def draw(weight: Tensor, deviation: float = 0.02) -> None:
    """Fill `weight` with normal numbers."""
    if not weight.is_meta:
        nn.init.normal_(weight, std=deviation)


def materialise(model: nn.Module, device: torch.device | str, dtype: torch.dtype) -> None:
    """Give the parameters of a model on the meta device memory, with whatever stands there, in
    place; what modules share they go on sharing. `torch.nn.Module.to_empty` does so, too, and loads
    a computer algebra system for it."""
    assert not list(model.buffers()), "models here have parameters alone"
    memory_of: dict[Tensor, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if old not in memory_of:
                memory = torch.empty(old.shape, dtype=dtype, device=device)
                memory_of[old] = nn.Parameter(memory, requires_grad=old.requires_grad)
            setattr(module, name, memory_of[old])
