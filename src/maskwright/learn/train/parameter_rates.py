"""Learning rates that differ by parameter, or change for some parameters only, for any optimizer:
its step is taken in full and then scaled, parameter by parameter.

    w  <-  w + factor * (step(w) - w)

For a step that is proportional to its learning rate, weight decay included, that is a learning rate
`factor` times as large. A factor of 0 freezes a parameter; the optimizer's moments of it are
updated meanwhile, so that they are ready when it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from maskwright.base.errors import ConfigError
from maskwright.learn.train.optimizers.optimizer import OptimizerState

# Number of steps before this one -> learning rate factor by parameter name.
RateFactors = Callable[[int], Mapping[str, float]]


class ParameterRates(OptimizerState):
    """`inner` with the steps of each parameter scaled by `rate_factors`."""

    def __init__(self, inner: OptimizerState, rate_factors: RateFactors) -> None:
        super().__init__(inner.parameters, inner.settings)
        self.inner, self.rate_factors = inner, rate_factors
        if missing := [n for n in self.parameters.named if n not in rate_factors(0)]:
            raise ConfigError(
                "a parameter has no learning-rate factor", where="rate_factors", found=missing[:5]
            )

    def _update(self, learning_rate: float) -> None:
        masters = self.parameters.masters
        changed = self._changed(self.steps - 1)
        before = [masters[span].clone() for span, _ in changed]
        self.inner.steps = self.steps
        self.inner._update(learning_rate)
        for (span, factor), old in zip(changed, before, strict=True):
            masters[span] = old.lerp(masters[span], factor)

    def norm(self) -> Tensor:
        """Return the norm without frozen parameters; NaN or infinite if theirs is not finite."""
        gradient = self.parameters.gradient
        held = [span for span, factor in self._changed(self.steps) if factor == 0.0]
        if not held:
            return super().norm()
        ends = [0, *(end for span in held for end in (span.start, span.stop)), len(gradient)]
        moved = zip(ends[::2], ends[1::2], strict=True)
        lengths = torch._foreach_norm([gradient[begin:end] for begin, end in moved])
        still = torch._foreach_norm([gradient[span] for span in held])
        return torch.linalg.vector_norm(torch.stack(lengths)) + 0.0 * sum(still)

    def _changed(self, before: int) -> list[tuple[slice, float]]:
        """Return (slice of the masters, factor) for factors other than 1, with `before` steps done;
        adjacent slices with the same factor are merged."""
        factors = self.rate_factors(before)
        changed: list[tuple[slice, float]] = []
        for name, span in self.parameters.spans.items():
            factor = factors[name]
            if factor == 1.0:
                continue
            if changed and (changed[-1][0].stop, changed[-1][1]) == (span.start, factor):
                changed[-1] = slice(changed[-1][0].start, span.stop), factor
            else:
                changed.append((slice(span.start, span.stop), factor))
        return changed

    def state(self) -> dict[str, Tensor]:
        return self.inner.state()

    def load(self, state: dict[str, Tensor], steps: int) -> None:
        self.inner.load(state, steps)
        self.steps = steps
