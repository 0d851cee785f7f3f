"""AdamW over flat vectors (Loshchilov & Hutter 2019), with BERT's grouping and BERT's variant.

Matrices decay, biases and norms do not (google-research/bert, optimization.py). Two kernel calls
per step, whatever the number of parameters. `bias_correction=False` is the optimizer BERT was
trained with: it is had by telling the kernel a step so late that the correction is 1 in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maskwright.errors import CheckpointError, ConfigError
from maskwright.train.parameters import Parameters

_LATE_STEP = 1e8


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Settings; `decay` is decoupled weight decay, `clip` the largest gradient norm (0 = none)."""

    learning_rate: float
    decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0
    bias_correction: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("learning_rate", 0.0, 1e3),
            ("decay", 0.0, 1e3),
            ("clip", 0.0, 1e9),
            ("epsilon", 0.0, 1.0),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    "a setting of the optimizer is out of range",
                    where=f"training.optimizer.{name}",
                    found=getattr(self, name),
                    wanted=f"{low} to {high}",
                )
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(
                    "a setting of the optimizer is out of range",
                    where=f"training.optimizer.{name}",
                    found=getattr(self, name),
                    wanted="0 <= beta < 1",
                )


class AdamWState:
    """First and second moments of all parameters, and the update."""

    def __init__(self, parameters: Parameters, settings: AdamW) -> None:
        self.parameters = parameters
        self.settings = settings
        self.first = torch.zeros_like(parameters.masters)
        self.second = torch.zeros_like(parameters.masters)
        self.steps = 0

    def step(self, learning_rate: float) -> None:
        """One update of the masters from the gradient; publishes the narrower copies."""
        self.steps += 1
        s, p = self.settings, self.parameters
        late = torch.tensor(
            float(self.steps) if s.bias_correction else _LATE_STEP, device=p.masters.device
        )
        for span, decay in ((slice(0, p.boundary), s.decay), (slice(p.boundary, None), 0.0)):
            if p.masters[span].numel() == 0:
                continue
            torch._fused_adamw_(
                [p.masters[span]],
                [p.gradient[span]],
                [self.first[span]],
                [self.second[span]],
                [],
                [late],
                lr=learning_rate,
                beta1=s.beta1,
                beta2=s.beta2,
                weight_decay=decay,
                eps=s.epsilon,
                amsgrad=False,
                maximize=False,
            )
        p.publish()

    def state(self) -> dict[str, Tensor]:
        """Both moments by parameter name: `first.<name>` and `second.<name>` (views)."""
        view = self.parameters.view
        return {
            f"{moment}.{n}": view(vector, n)
            for moment, vector in (("first", self.first), ("second", self.second))
            for n in self.parameters.named
        }

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        """Take over moments by name.

        Raises:
            CheckpointError: a moment is missing or of another shape.
        """
        own = self.state()
        wrong = [n for n, t in own.items() if n not in state or state[n].shape != t.shape]
        if wrong:
            raise CheckpointError("the optimizer's state does not fit the model", found=wrong[:10])
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.steps = steps
