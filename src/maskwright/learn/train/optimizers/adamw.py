"""AdamW (Loshchilov & Hutter 2019): Adam's step by one fused kernel call, with decoupled decay."""

from __future__ import annotations

import torch
from torch import Tensor

from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Adam, AdamW
from maskwright.learn.train.parameters import Parameters

_LATE_STEP = 1e8


def adam_step(
    settings: Adam,
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

    To leave the bias correction out, the kernel is given a step so late that the correction is 1 in
    float32.
    """
    if not any(w.numel() for w in weights):
        return
    late = float(steps) if settings.bias_correction else _LATE_STEP
    torch._fused_adamw_(
        weights,
        gradients,
        first,
        second,
        [],
        [torch.tensor(late, device=w.device) for w in weights],
        lr=learning_rate,
        beta1=settings.beta1,
        beta2=settings.beta2,
        weight_decay=decay,
        eps=settings.epsilon,
        amsgrad=False,
        maximize=False,
    )


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
            adam_step(
                self.settings,
                *([v[span]] for v in vectors),
                steps=self.steps,
                learning_rate=learning_rate,
                decay=decay,
            )

    def state(self) -> dict[str, Tensor]:
        names = self.parameters.named
        return self.named("first", self.first, names) | self.named("second", self.second, names)
