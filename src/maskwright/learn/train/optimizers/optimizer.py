"""The state of an optimizer, by parameter name, and its update."""

from __future__ import annotations

import abc
from collections.abc import Iterable

from torch import Tensor

from maskwright.base.errors import CheckpointError
from maskwright.learn.train.optimizers.settings import Optimizer
from maskwright.learn.train.parameters import Parameters


class OptimizerState(abc.ABC):
    """The state of an optimizer for `parameters`, and its update."""

    def __init__(self, parameters: Parameters, settings: Optimizer) -> None:
        self.parameters = parameters
        self.settings = settings
        self.steps = 0

    def step(self, learning_rate: float) -> None:
        """Update the master weights from the gradient, and their copies in the compute dtype."""
        self.steps += 1
        self._update(learning_rate)
        self.parameters.publish()

    @abc.abstractmethod
    def _update(self, learning_rate: float) -> None:
        """Update the masters; `steps` counts this step already."""

    def norm(self) -> Tensor:
        """Return the norm, for clipping, of the gradient of the parameters that the next step
        updates."""
        return self.parameters.norm()

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return the state by parameter name: `first.<name>`, `second.<name>`, … (views)."""

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        """Load a state by name.

        Raises:
            CheckpointError: a tensor is missing or of another shape.
        """
        current = self.state()
        wrong = [n for n, t in current.items() if n not in state or state[n].shape != t.shape]
        if wrong:
            raise CheckpointError(
                "the optimizer's state does not fit the model",
                found=wrong[:10],
                do="resume from an older checkpoint: remove this one",
            )
        for name, tensor in current.items():
            tensor.copy_(state[name])
        self.steps = steps

    def named(self, moment: str, vector: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
        """Return views of each parameter's part of `vector`, by the names used in `state`."""
        return {f"{moment}.{n}": self.parameters.view(vector, n) for n in names}
