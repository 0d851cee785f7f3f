"""Muon for the matrices of layers, AdamW for all else (Jordan 2024; Liu et al. 2025,
arXiv:2502.16982).

The momentum of a matrix is made nearly orthogonal by a few Newton-Schulz iterations in bfloat16;
`torch.optim.Muon` does it. Embeddings, heads, norms and biases take AdamW's step. With `adjust =
"match_rms_adamw"` a step is as long as AdamW's, so that one learning rate serves both; with
"original" it is not, and `adam_rate` sets AdamW's apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from maskwright.errors import IncompatibleError
from maskwright.train.optimizers.optimizer import Adam, OptimizerState
from maskwright.train.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Muon(Adam):
    """AdamW's settings are for what is no matrix of a layer; its learning rate is `adam_rate` times
    `learning_rate`. `decay` is for all matrices."""

    bytes_per_parameter: ClassVar[int] = 4  # and 4 more outside the layers

    kind: Literal["muon"] = "muon"
    decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    adam_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("momentum", 0.0 <= self.momentum < 1.0, "0 <= momentum < 1")
        self.require("iterations", 1 <= self.iterations < 100, "1 to 99")
        self.require("adam_rate", 0.0 <= self.adam_rate <= 1e3, "0 to 1000")

    def start(self, parameters: Parameters) -> MuonState:
        return MuonState(parameters, self)


class MuonState(OptimizerState):
    """First moments of all parameters, second ones of those that AdamW moves.

    Raises:
        IncompatibleError: there is no layer with a matrix.
    """

    settings: Muon

    def __init__(self, parameters: Parameters, settings: Muon) -> None:
        super().__init__(parameters, settings)
        p, view = parameters, parameters.view
        layers = [n for n in p.decayed if "blocks" in n.split(".")]
        if not layers:
            raise IncompatibleError(
                "muon moves the matrices of layers, and this model has none",
                where="training.optimizer.kind",
                do="--set training.optimizer.kind=adamw",
            )
        self.first = torch.zeros_like(p.masters)
        matrices = [nn.Parameter(view(p.masters, n), requires_grad=False) for n in layers]
        self._muon = torch.optim.Muon(
            matrices,
            weight_decay=settings.decay,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            ns_steps=settings.iterations,
            adjust_lr_fn=settings.adjust,
        )
        for name, matrix in zip(layers, matrices, strict=True):
            matrix.grad = view(p.gradient, name)
            self._muon.state[matrix]["momentum_buffer"] = view(self.first, name)
        others = [n for n in p.named if n not in set(layers)]
        self.second = {n: torch.zeros_like(view(p.masters, n)) for n in others}

    def _update(self, learning_rate: float) -> None:
        p, settings = self.parameters, self.settings
        self._muon.param_groups[0]["lr"] = learning_rate
        self._muon.step()
        decayed = set(p.decayed)
        for matrices, decay in ((True, settings.decay), (False, 0.0)):
            names = [n for n in self.second if (n in decayed) is matrices]
            settings.move(
                [p.view(p.masters, n) for n in names],
                [p.view(p.gradient, n) for n in names],
                [p.view(self.first, n) for n in names],
                [self.second[n] for n in names],
                steps=self.steps,
                learning_rate=learning_rate * settings.adam_rate,
                decay=decay,
            )

    def state(self) -> dict[str, Tensor]:
        second = {f"second.{n}": t for n, t in self.second.items()}
        return self.named("first", self.first, self.parameters.named) | second
