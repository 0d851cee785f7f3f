"""The exponential moving average of all weights, which is evaluated and saved if it is enabled.

After each step `average = decay * average + (1 - decay) * masters`, from the weights at the start
and without a correction, as GPT-BERT does (Charpentier & Samuel 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from maskwright.learn.train.parameters import Parameters


class Average:
    """A float32 vector with the average of the masters of `parameters`."""

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
