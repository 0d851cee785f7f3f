"""LAMB: Adam's step of each tensor, scaled to the tensor's length (You et al. 2019, alg. 2).

    u = m / (sqrt(v) + epsilon) + decay * w
    w = w - learning_rate * |w| / |u| * u

Tensors without decay (biases, norms) take Adam's step as it is, as in the authors' own program
(google-research/albert, lamb_optimizer.py). A tensor or a step of length 0 has the ratio 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskwright.learn.train.optimizers.adamw import adam_step
from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Lamb
from maskwright.learn.train.parameters import Parameters


class LambState(OptimizerState):
    """First and second moments of all parameters; `change` is scratch, one step long."""

    settings: Lamb

    def __init__(self, parameters: Parameters, settings: Lamb) -> None:
        super().__init__(parameters, settings)
        self.first = torch.zeros_like(parameters.masters)
        self.second = torch.zeros_like(parameters.masters)
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

    def state(self) -> dict[str, Tensor]:
        names = self.parameters.named
        return self.named("first", self.first, names) | self.named("second", self.second, names)
