"""What an optimizer over flat vectors is, and AdamW, the usual one.

An optimizer is frozen settings, part of a recipe, and the state that they `start` for some
parameters. What it remembers is saved by parameter name. The members, by their `kind`:

    adamw      two fused kernel calls, whatever the number of parameters    (this file)
    lamb       Adam's step, made as long as the tensor that it moves        (`lamb.py`)
    adafactor  second moments of matrices by row and column                 (`adafactor.py`)
    muon       orthogonal steps for matrices of layers, AdamW for all else  (`muon.py`)

Matrices decay, biases and norms do not (google-research/bert, optimization.py).
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maskwright.errors import CheckpointError, ConfigError
from maskwright.train.parameters import Parameters

_LATE_STEP = 1e8


@dataclass(frozen=True, kw_only=True)
class Optimizer(abc.ABC):
    """Settings that every optimizer has; `kind` is its name in a recipe, `decay` decoupled weight
    decay, `clip` the largest gradient norm (0 = none)."""

    # What a parameter costs beside its master and its gradient.
    bytes_per_parameter: ClassVar[int] = 8

    kind: str
    learning_rate: float
    decay: float = 0.01
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name, high in (("learning_rate", 1e3), ("decay", 1e3), ("clip", 1e9)):
            self.require(name, 0.0 <= getattr(self, name) <= high, f"0 to {high}")

    def require(self, name: str, fits: bool, wanted: str) -> None:
        """Refuse the setting `name` unless it `fits`.

        Raises:
            ConfigError: naming the setting, its value and what is `wanted`.
        """
        if not fits:
            raise ConfigError(
                "a setting of the optimizer is out of range",
                where=f"training.optimizer.{name}",
                found=getattr(self, name),
                wanted=wanted,
            )

    @abc.abstractmethod
    def start(self, parameters: Parameters) -> OptimizerState:
        """The state before the first step."""


class OptimizerState(abc.ABC):
    """What an optimizer remembers of `parameters`, and its update."""

    def __init__(self, parameters: Parameters, settings: Optimizer) -> None:
        self.parameters = parameters
        self.settings = settings
        self.steps = 0

    def step(self, learning_rate: float) -> None:
        """One update of the masters from the gradient; publishes the narrower copies."""
        self.steps += 1
        self._update(learning_rate)
        self.parameters.publish()

    @abc.abstractmethod
    def _update(self, learning_rate: float) -> None:
        """Move the masters; `steps` counts this one already."""

    def norm(self) -> Tensor:
        """The length of the gradient of what the next step moves, which is what is clipped."""
        return self.parameters.norm()

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What is remembered, by parameter name: `first.<name>`, `second.<name>`, … (views)."""

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        """Take over what was remembered, by name.

        Raises:
            CheckpointError: a tensor is missing or of another shape.
        """
        own = self.state()
        wrong = [n for n, t in own.items() if n not in state or state[n].shape != t.shape]
        if wrong:
            raise CheckpointError("the optimizer's state does not fit the model", found=wrong[:10])
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.steps = steps

    def named(self, moment: str, vector: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
        """The parts of a `vector` as long as the masters, as `state` names them."""
        return {f"{moment}.{n}": self.parameters.view(vector, n) for n in names}


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Settings of what takes Adam's step (Kingma & Ba 2015). Without `bias_correction` it is the
    one BERT was trained with."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # At 0 a weight without a gradient would move by 0/0; below this it is 0 in float32.
        self.require("epsilon", 1e-36 <= self.epsilon <= 1.0, "1e-36 to 1")
        for name in ("beta1", "beta2"):
            self.require(name, 0.0 <= getattr(self, name) < 1.0, "0 <= beta < 1")

    def move(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        first: list[Tensor],
        second: list[Tensor],
        *,
        steps: int,
        learning_rate: float,
        decay: float,
    ) -> None:
        """AdamW's step number `steps` of all `weights`, in place, by one call of the fused kernel.

        That there is no bias correction is had by telling the kernel a step so late that the
        correction is 1 in float32.
        """
        if not any(w.numel() for w in weights):
            return
        late = float(steps) if self.bias_correction else _LATE_STEP
        torch._fused_adamw_(
            weights,
            gradients,
            first,
            second,
            [],
            [torch.tensor(late, device=w.device) for w in weights],
            lr=learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=decay,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"

    def start(self, parameters: Parameters) -> AdamWState:
        return AdamWState(parameters, self)


class AdamWState(OptimizerState):
    """First and second moments of all parameters."""

    settings: AdamW

    def __init__(self, parameters: Parameters, settings: AdamW) -> None:
        super().__init__(parameters, settings)
        self.first = torch.zeros_like(parameters.masters)
        self.second = torch.zeros_like(parameters.masters)

    def _update(self, learning_rate: float) -> None:
        p = self.parameters
        vectors = (p.masters, p.gradient, self.first, self.second)
        for span, decay in ((p.matrices, self.settings.decay), (p.rest, 0.0)):
            self.settings.move(
                *([v[span]] for v in vectors),
                steps=self.steps,
                learning_rate=learning_rate,
                decay=decay,
            )

    def state(self) -> dict[str, Tensor]:
        names = self.parameters.named
        return self.named("first", self.first, names) | self.named("second", self.second, names)
