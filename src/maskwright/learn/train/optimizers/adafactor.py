"""Adafactor: the second moments of a matrix as one number per row and one per column (Shazeer &
Stern 2018, alg. 4), so that what is remembered is next to nothing.

    R, C    means of gradient² + epsilon by row and by column, of which 1 - t^exponent stays
    u       gradient * sqrt(mean(R)) / sqrt(R C)         (vectors keep a whole second moment)
    step    learning_rate * max(floor, rms(w)) * u / max(1, rms(u) / threshold)

`relative` is the factor max(floor, rms(w)). With it, T5's rate max(t, 10^4)^-½ is a learning rate
of 0.01 and the schedule `held-inverse-sqrt` with a warm-up of 10,000 steps (Raffel et al. 2020,
3.1.2). u is never written down: its mean square is the squares of the gradient times two vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Adafactor
from maskwright.learn.train.parameters import Parameters


class AdafactorState(OptimizerState):
    """Means of squared gradients: by row and column for matrices, complete for vectors."""

    settings: Adafactor

    def __init__(self, parameters: Parameters, settings: Adafactor) -> None:
        super().__init__(parameters, settings)
        self.means: dict[str, Tensor] = {}
        for name, span in parameters.spans.items():
            moments: dict[str, tuple[int, ...]] = {"second": span.shape}
            if len(span.shape) == 2:
                moments = {"row": span.shape[:1], "column": span.shape[1:]}
            for moment, shape in moments.items():
                self.means[f"{moment}.{name}"] = parameters.masters.new_zeros(shape)
        largest = max(s.stop - s.start for s in parameters.spans.values())
        self._scratch = parameters.masters.new_empty(largest)

    def _update(self, learning_rate: float) -> None:
        for name in self.parameters.named:
            self._move(name, learning_rate)

    def _move(self, name: str, learning_rate: float) -> None:
        p, s, means = self.parameters, self.settings, self.means
        rows = p.spans[name].shape[0] if f"row.{name}" in means else 1  # a vector is one row
        weight, gradient = (p.view(v, name).view(rows, -1) for v in (p.masters, p.gradient))
        size, fresh = weight.numel(), float(self.steps) ** s.exponent
        scratch = self._scratch[:size].view(rows, -1)
        squares = torch.mul(gradient, gradient, out=scratch)
        if f"row.{name}" in means:
            row = means[f"row.{name}"].lerp_(squares.mean(1) + s.epsilon, fresh)
            column = means[f"column.{name}"].lerp_(squares.mean(0) + s.epsilon, fresh)
            by_row = (row / row.mean()).rsqrt()
        else:
            by_row = squares.new_ones(1)
            second = means[f"second.{name}"]
            column = second.lerp_(squares.view_as(second) + s.epsilon, fresh).flatten()
        by_column = column.rsqrt()
        length = ((squares @ by_column.square()) @ by_row.square() / size).sqrt()  # rms(u)
        scale = learning_rate / (length / s.threshold).clamp(min=1.0)
        if s.relative:
            scale = scale * (torch.linalg.vector_norm(weight) / size**0.5).clamp(min=s.floor)
        if s.decay and name in p.decayed:
            weight.mul_(1.0 - learning_rate * s.decay)
        torch.mul(gradient, (by_row * -scale)[:, None], out=scratch)
        weight.addcmul_(scratch, by_column)

    def state(self) -> dict[str, Tensor]:
        return dict(self.means)
