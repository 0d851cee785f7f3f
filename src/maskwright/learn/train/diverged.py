"""A step whose loss or gradient is not finite, and the report on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from maskwright.base.errors import MaskwrightError
from maskwright.learn.train.parameters import Parameters

NAMED = 20  # parameters, at most


class DivergedError(MaskwrightError):
    """Loss or gradient became infinite or NaN; the weights were not changed.

    Attributes:
        step: counted from 0.
        report: facts about the step, as JSON values.
    """

    kind = "E-DIVERGED"
    exit_code = 70
    step: int
    report: dict[str, Any]


@dataclass(frozen=True)
class StepOutcome:
    """The result of a step before its update: the loss and its parts, the norm of the gradient, and
    the loss of each microbatch of this process by number."""

    loss: float
    part_losses: Mapping[str, float]
    norm: float
    microbatches: Mapping[int, torch.Tensor]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def diverged(
    step: int, outcome: StepOutcome, parameters: Parameters, skipped: int
) -> DivergedError:
    """Return the error for step number `step` (from 0), after `skipped` others in a row."""
    error = DivergedError(
        "the loss or its gradient is no longer a finite number",
        where=f"step {step + 1}" + (f", after {skipped} others in a row" if skipped else ""),
        found=f"loss {outcome.loss}, parts {dict(outcome.part_losses)}, "
        f"gradient norm {outcome.norm}",
        wanted="finite numbers",
        do="lower the learning rate or lengthen its warm-up",
    )
    error.step = step
    error.report = {
        "step": step + 1,
        "skipped_before": skipped,
        "loss": _plain(outcome.loss),
        "parts": {name: _plain(value) for name, value in outcome.part_losses.items()},
        "gradient_norm": _plain(outcome.norm),
        "microbatches": {str(n): _plain(float(v)) for n, v in outcome.microbatches.items()},
        "gradients_not_finite": _nonfinite_names(parameters, parameters.gradient),
        "weights_not_finite": _nonfinite_names(parameters, parameters.masters),
    }
    return error


def _nonfinite_names(parameters: Parameters, vector: torch.Tensor) -> list[str]:
    """Return the names of the first parameters with values in `vector` that are not finite."""
    names = (n for n in parameters.named if not parameters.view(vector, n).isfinite().all())
    return [name for name, _ in zip(names, range(NAMED), strict=False)]


def _plain(value: float) -> float | str:
    """Return NaN and infinity as text, since JSON does not support them."""
    return value if math.isfinite(value) else str(value)
