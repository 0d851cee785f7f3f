"""Muon for the matrices of layers, AdamW for all else (Jordan 2024; Liu et al. 2025,
arXiv:2502.16982).

The momentum of a matrix is made nearly orthogonal by a few Newton-Schulz iterations in bfloat16;
`torch.optim.Muon` does it. Embeddings, heads, norms and biases take AdamW's step. With `adjust =
"match_rms_adamw"` a step is as long as AdamW's, so that one learning rate serves both; with
"original" it is not, and `adam_rate` sets AdamW's apart.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maskwright.base.errors import IncompatibleError
from maskwright.learn.train.optimizers.adam import adam_step
from maskwright.learn.train.optimizers.optimizer import OptimizerState
from maskwright.learn.train.optimizers.settings import Muon
from maskwright.learn.train.parameters import Parameters


class MuonState(OptimizerState):
    """First moments of all parameters, second moments of those that AdamW updates.

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
                "muon trains the weight matrices of layers, and this model has none",
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
            adam_step(
                settings,
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
