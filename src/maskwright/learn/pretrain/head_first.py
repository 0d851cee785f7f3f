"""A new head above the model of a folder: it is trained alone first, then the model with it.

The head at the end of its own stage is saved in the run's folder: a loss before the pretraining
needs it (`continued_pretraining.worth`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError
from maskwright.base.storage import commit
from maskwright.learn.pretrain.checkpoints import OWN
from maskwright.learn.recipes.base.recipe import Folder
from maskwright.learn.train.parameters import Parameters
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import files
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

FOLDER, WEIGHTS = "head-first", "head.safetensors"


def new_heads(current: TransformerConfig, requested: TransformerConfig) -> tuple[str, ...]:
    """Return the parameter prefixes of the heads in `requested` that are not in `current`."""
    current_heads = {head.name: head for head in current.heads}
    new = ["vocabulary_head"] * (current.vocabulary_head != requested.vocabulary_head)
    new += ["pooler"] * (requested.pooler and not current.pooler)
    new += [f"heads.{h.name}" for h in requested.heads if current_heads.get(h.name) != h]
    return tuple(name for name in new if name != "vocabulary_head" or requested.vocabulary_head)


class HeadFirst:
    """Trains first a new head alone, then all parameters. It is a hook of the loop, which unfreezes
    the body, and the function of `ParameterRates`: learning rate factors by parameter name."""

    def __init__(
        self, choice: Folder, budget: Budget, parameters: Parameters, out: Path | None
    ) -> None:
        self.choice, self.budget, self.parameters, self.out = choice, budget, parameters, out
        self.state = TrainState()
        self.new = [name for name in parameters.named if not self._is_body(name)]

    @staticmethod
    def is_needed(choice: object) -> TypeGuard[Folder]:
        """Whether a run initialises a new head above the model of the folder `choice`, and trains
        the two differently."""
        if not isinstance(choice, Folder) or not choice.new:
            return False
        return choice.head_first != 0.0 or choice.body_rate != 1.0

    def _is_body(self, name: str) -> bool:
        network_name = name.removeprefix(OWN)
        return network_name != name and not network_name.startswith(
            tuple(f"{prefix}." for prefix in self.choice.new)
        )

    @property
    def alone(self) -> bool:
        """Whether the run is in its first stage."""
        used = self.budget.used(**self.state.counted)
        return used < self.choice.head_first * self.budget.total

    def begin(self, state: TrainState) -> None:
        """Use the run's `state`, and freeze the body if the run is in its first stage."""
        self.state = state
        self._set_body_trainable(not self.alone)

    def __call__(self, step: int) -> dict[str, float]:
        body_factor = 0.0 if self.alone else self.choice.body_rate
        return {name: body_factor if self._is_body(name) else 1.0 for name in self.parameters.named}

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        if self._body_frozen and not self.alone:
            if self.out is not None:
                masters = self.parameters.state()
                save(self.out, {n.removeprefix(OWN): masters[n] for n in self.new})
            self._set_body_trainable(True)

    def at_end(self, state: TrainState) -> None:
        pass

    def _set_body_trainable(self, learn: bool) -> None:
        """Train or freeze the body; a step without its gradients is much faster."""
        self._body_frozen = not learn
        for name, parameter in self.parameters.named.items():
            if self._is_body(name):
                parameter.requires_grad_(learn)


def save(out: Path, weights: dict[str, torch.Tensor]) -> None:
    """Save the `weights` of the head in the run folder `out`."""
    content = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(WEIGHTS, files.chunks(content))

    commit.commit(
        out / FOLDER,
        write,
        about={"kind": "head"},
        expected_bytes=files.num_bytes(content),
        replace=True,
    )


@torch.no_grad()
def expect_frequencies(model: Transformer, counts: NDArray[np.float64]) -> None:
    """Initialise the bias of a new vocabulary head, if it has one, with the log frequencies of the
    tokens (`counts` by id), so that it does not have to learn them."""
    bias = None if model.vocabulary_head is None else model.vocabulary_head.bias
    if bias is None:
        return
    frequencies = np.ones(len(bias))
    frequencies[: len(counts)] += counts
    bias.copy_(torch.from_numpy(np.log(frequencies / frequencies.sum())))


@torch.no_grad()
def load(out: Path, model: Transformer, new: Sequence[str]) -> bool:
    """Load the head that the run `out` saved into `model`; return whether there is one. `new` are
    the prefixes of its parameters (see `new_heads`).

    Raises:
        CheckpointError: the file is damaged, or belongs to another model.
    """
    if not (out / FOLDER).is_dir():
        return False
    commit.verify(out / FOLDER)
    saved = files.open_file(out / FOLDER / WEIGHTS)
    head_parameters = {
        n: p
        for n, p in model.named_parameters()
        if n.startswith(tuple(f"{prefix}." for prefix in new))
    }
    if head_parameters.keys() != set(saved.entries):
        raise CheckpointError(
            "the saved head belongs to another model",
            where=out / FOLDER,
            found=", ".join(sorted(saved.entries)[:5]),
            wanted=", ".join(sorted(head_parameters)[:5]),
            do="remove that folder, and start the run again",
        )
    for name, parameter in head_parameters.items():
        parameter.copy_(saved.read(name))
    return True
