"""From the settings of an optimizer to its state."""

from __future__ import annotations

from maskwright.learn.train.optimizers.adafactor import AdafactorState
from maskwright.learn.train.optimizers.adam import AdamWState, LambState
from maskwright.learn.train.optimizers.muon import MuonState
from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Optimizer
from maskwright.learn.train.parameters import Parameters

STATES = {"adamw": AdamWState, "lamb": LambState, "adafactor": AdafactorState, "muon": MuonState}


def start_optimizer(settings: Optimizer, parameters: Parameters) -> OptimizerState:
    """Returns the state before the first step.

    Raises:
        IncompatibleError: Muon, for a model without matrices in layers.
    """
    return STATES[settings.kind](parameters, settings)  # type: ignore[arg-type]
