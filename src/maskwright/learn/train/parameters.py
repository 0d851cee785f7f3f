"""All weights of a module as one float32 vector, and one vector of their gradients.

The masters are always float32. A model that computes in bfloat16 holds bfloat16 copies, refreshed
by `publish` after each optimizer step; in float32 the module's parameters are views of the
masters and `publish` has nothing to do. Gradients are folded into the float32 vector as soon as
autograd has one (a hook per parameter), so microbatches add up in float32 whatever the model
computes in, the norm is one reduction, the optimizer one kernel, and data-parallel training one
all-reduce.

    masters   |---------- decayed ----------|-- not decayed --|      (biases and norms: no decay)
    gradient  |---------- decayed ----------|-- not decayed --|
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.base.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class ParameterSpan:
    """The position and shape of a parameter in the vectors."""

    start: int
    stop: int
    shape: torch.Size


class Parameters:
    """The trainable parameters of `module`, flattened; see the docstring of this file.

    Args:
        module: the `.data` of its trainable parameters is replaced by views of the vectors.
        compute: the dtype in which the module computes.

    Raises:
        ConfigError: there are no trainable parameters.
    """

    def __init__(self, module: nn.Module, compute: torch.dtype = torch.float32) -> None:
        named = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.decayed = [n for n, p in named.items() if p.dim() > 1]
        order = self.decayed + [n for n, p in named.items() if p.dim() <= 1]
        self.named = {n: named[n] for n in order}
        self.spans: dict[str, ParameterSpan] = {}
        start = 0
        for name, parameter in self.named.items():
            self.spans[name] = ParameterSpan(start, start + parameter.numel(), parameter.shape)
            start += parameter.numel()
        boundary = self.spans[self.decayed[-1]].stop if self.decayed else 0
        self.matrices, self.rest = slice(0, boundary), slice(boundary, start)
        if not self.named:
            raise ConfigError(
                "the model has no trainable parameters",
                where="parameters",
                found="none",
                do="choose a method that trains some (maskwright list adapters)",
            )
        device = next(iter(self.named.values())).device
        self.masters = torch.empty(start, dtype=torch.float32, device=device)
        self.gradient = torch.zeros(start, dtype=torch.float32, device=device)
        self.compute = compute
        self.working = (
            self.masters
            if compute == torch.float32
            else torch.empty(start, dtype=compute, device=device)
        )
        self._fresh: set[str] = set()
        for name, parameter in self.named.items():
            self.view(self.masters, name).copy_(parameter.data)
        module.to(compute)
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._fold(n)) for n, p in self.named.items()
        ]
        for name, parameter in self.named.items():
            parameter.data = self.view(self.working, name)
        self.publish()

    def view(self, vector: Tensor, name: str) -> Tensor:
        """Return a view of the part of `vector` for the parameter `name`, in its shape."""
        span = self.spans[name]
        return vector[span.start : span.stop].view(span.shape)

    def _fold(self, name: str):  # type: ignore[no-untyped-def]
        # The hook must not refer to `self`, which refers to the parameter: Python cannot free such
        # a cycle through a tensor's hooks, and all vectors would stay in memory.
        target, fresh = self.view(self.gradient, name), self._fresh

        def hook(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if name in fresh:
                target.add_(parameter.grad)
            else:
                target.copy_(parameter.grad)
                fresh.add(name)
            parameter.grad = None

        return hook

    def clear(self) -> None:
        """Start a new step: the next gradient of each parameter replaces the old one."""
        self._fresh.clear()

    def zero_untouched(self) -> None:
        """Zero the gradients that no microbatch has set; called after the last backward."""
        for name in self.named:
            if name not in self._fresh:
                self.view(self.gradient, name).zero_()

    def publish(self) -> None:
        """Copy the masters into the module's weights of the compute dtype."""
        if self.working is not self.masters:
            self.working.copy_(self.masters)

    def norm(self) -> Tensor:
        """Return the Euclidean norm of the whole gradient in float32, without synchronisation."""
        return torch.linalg.vector_norm(self.gradient)

    def state(self) -> dict[str, Tensor]:
        """Return the float32 masters by parameter name (views)."""
        return {n: self.view(self.masters, n) for n in self.named}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load masters by name.

        Raises:
            CheckpointError: see `fill`.
        """
        self.fill(self.masters, state)
        self.publish()

    def fill(self, vector: Tensor, state: dict[str, Tensor]) -> None:
        """Copy tensors by name into a `vector` as long as the masters.

        Raises:
            CheckpointError: naming the first parameters that are missing or of another shape.
        """
        wrong = [n for n in self.named if n not in state or state[n].shape != self.spans[n].shape]
        if wrong:
            raise CheckpointError(
                "the checkpoint does not fit the model",
                found=wrong[:10],
                wanted=f"{len(self.named)} tensors",
                do="check that recipe.toml and the checkpoint belong to one run",
            )
        for name in self.named:
            self.view(vector, name).copy_(state[name])


class Average:
    """The exponential moving average of the masters, which is evaluated and saved if it is enabled.

    After each step `average = decay * average + (1 - decay) * masters`, from the weights at the
    start and without a correction, as GPT-BERT does (Charpentier & Samuel 2024).
    """

    def __init__(self, parameters: Parameters, decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.vector = parameters.masters.clone()

    def update(self) -> None:
        """Update the average; called once after each step of the optimizer."""
        self.vector.lerp_(self.parameters.masters, 1.0 - self.decay)

    def state(self) -> dict[str, Tensor]:
        """The average by parameter name (views)."""
        return {n: self.parameters.view(self.vector, n) for n in self.parameters.named}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load an average by parameter name.

        Raises:
            CheckpointError: a tensor is missing or of another shape.
        """
        self.parameters.fill(self.vector, state)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which the module computes with the average; afterwards its own weights are
        restored exactly."""
        p = self.parameters
        weights = p.masters.clone()
        p.masters.copy_(self.vector)
        p.publish()
        try:
            yield
        finally:
            p.masters.copy_(weights)
            p.publish()
