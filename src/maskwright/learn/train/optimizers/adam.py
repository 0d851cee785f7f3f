"""AdamW and LAMB: Adam's step by one fused kernel call, with decoupled weight decay.

LAMB scales the step of each tensor to the tensor's length (You et al. 2019, alg. 2):

    u = m / (sqrt(v) + epsilon) + decay * w
    w = w - learning_rate * |w| / |u| * u

Tensors without decay (biases, norms) take Adam's step as it is, as in the authors' own program
(google-research/albert, lamb_optimizer.py). A tensor or a step of length 0 has the ratio 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Adam, Lamb
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


class AdamState(OptimizerState):
    """First and second moments of all parameters."""

    settings: Adam

    def __init__(self, parameters: Parameters, settings: Adam) -> None:
        super().__init__(parameters, settings)
        self.first = torch.zeros_like(parameters.masters)
        self.second = torch.zeros_like(parameters.masters)

    def state(self) -> dict[str, Tensor]:
        names = self.parameters.named
        return self.named("first", self.first, names) | self.named("second", self.second, names)


class AdamWState(AdamState):
    """AdamW (Loshchilov & Hutter 2019)."""

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


class LambState(AdamState):
    """LAMB; `change` is scratch, one step long."""

    def __init__(self, parameters: Parameters, settings: Lamb) -> None:
        super().__init__(parameters, settings)
        self.change = torch.empty_like(parameters.masters)

    def _update(self, learning_rate: float) -> None:
        p, settings = self.parameters, self.settings
        # Adam's step at the rate 1, from zero: the kernel writes down the step itself.
        adam_step(
            settings,
            [self.change.zero_()],
            [p.gradient],
            [self.first],
            [self.second],
            steps=self.steps,
            learning_rate=1.0,
            decay=0.0,
        )
        self.change[p.matrices].sub_(p.masters[p.matrices], alpha=settings.decay)
        weights, changes = ([p.view(v, n) for n in p.decayed] for v in (p.masters, self.change))
        if weights:
            lengths = torch.stack(torch._foreach_norm(weights))
            steps = torch.stack(torch._foreach_norm(changes))
            ratios = torch.where((lengths > 0) & (steps > 0), lengths / steps, 1.0)
            torch._foreach_addcmul_(weights, changes, list(ratios.unbind()), value=learning_rate)
        p.masters[p.rest].add_(self.change[p.rest], alpha=learning_rate)
