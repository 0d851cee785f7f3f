"""A new head on a pretrained body: the head is trained alone at first, then all weights are.

A new head sends gradients into the body that mean nothing yet. So for the first share of a run
(`Folder.head_first`) the body is frozen; from there on it is trained `body_rate` times as fast as
the head (Kumar et al. 2022, arXiv:2202.10054, for heads of tasks). The head is saved when the body
is released:

    out/head-first/head.safetensors, MANIFEST.json

With it the body's loss before continued pretraining can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.budget import Budget
from maskwright.checkpoint import files
from maskwright.errors import CheckpointError
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer
from maskwright.recipes.parts.recipe import Folder
from maskwright.storage import commit
from maskwright.train.parameters import Parameters
from maskwright.train.state import TrainState

FOLDER, WEIGHTS = "head-first", "head.safetensors"
PRODUCT = "product."


def new_parts(current: TransformerConfig, wanted: TransformerConfig) -> tuple[str, ...]:
    """The heads of a model of the config `wanted` that a model of the config `current` lacks."""
    known = {head.name: head for head in current.heads}
    parts = ["vocabulary_head"] * (current.vocabulary_head != wanted.vocabulary_head)
    parts += ["pooler"] * (wanted.pooler and not current.pooler)
    parts += [f"heads.{h.name}" for h in wanted.heads if known.get(h.name) != h]
    return tuple(part for part in parts if part != "vocabulary_head" or wanted.vocabulary_head)


class HeadFirst:
    """The two stages of a run: which parameters are trained, and how fast. A hook of the loop,
    which releases the body at the right step, and the factors of `ParameterRates`."""

    def __init__(
        self, choice: Folder, budget: Budget, parameters: Parameters, out: Path | None
    ) -> None:
        self.choice, self.budget, self.parameters, self.out = choice, budget, parameters, out
        self.state = TrainState()
        self.new = [name for name in parameters.named if not self._is_body(name)]

    @classmethod
    def of(
        cls, choice: Any, budget: Budget, parameters: Parameters, out: Path | None
    ) -> HeadFirst | None:
        """The stages of a run that starts from the folder `choice` and draws a head; None for other
        runs."""
        if not isinstance(choice, Folder) or not choice.new:
            return None
        if choice.head_first == 0.0 and choice.body_rate == 1.0:
            return None
        return cls(choice, budget, parameters, out)

    def _is_body(self, name: str) -> bool:
        own = name.removeprefix(PRODUCT)
        return own != name and not own.startswith(tuple(f"{part}." for part in self.choice.new))

    @property
    def alone(self) -> bool:
        """Whether only the head is trained now."""
        used = self.budget.used(**self.state.counted)
        return used < self.choice.head_first * self.budget.total

    def begin(self, state: TrainState) -> None:
        """Follow the run's `state` from now on."""
        self.state = state
        self._let(not self.alone)

    def __call__(self, step: int) -> dict[str, float]:
        body = 0.0 if self.alone else self.choice.body_rate
        return {name: body if self._is_body(name) else 1.0 for name in self.parameters.named}

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        if self._held and not self.alone:
            if self.out is not None:
                save(
                    self.out,
                    {
                        n.removeprefix(PRODUCT): t
                        for n, t in self.parameters.state().items()
                        if n in self.new
                    },
                )
            self._let(True)

    def at_end(self, state: TrainState) -> None:
        pass

    def _let(self, learn: bool) -> None:
        """Train the body, or freeze it: a step without its gradients is much cheaper."""
        self._held = not learn
        for name, parameter in self.parameters.named.items():
            if self._is_body(name):
                parameter.requires_grad_(learn)


def save(out: Path, weights: dict[str, torch.Tensor]) -> None:
    """Save the current head of the run `out`."""
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
    tokens (`counts` by id), so that the head need not learn these first."""
    bias = None if model.vocabulary_head is None else model.vocabulary_head.bias
    if bias is None:
        return
    frequencies = np.ones(len(bias))
    frequencies[: len(counts)] += counts
    bias.copy_(torch.from_numpy(np.log(frequencies / frequencies.sum())))


@torch.no_grad()
def take(out: Path, model: Transformer, new: Sequence[str]) -> bool:
    """Load the head that the run `out` saved into `model`; returns whether there is one.

    Raises:
        CheckpointError: it is damaged, or is none of such a model.
    """
    if not (out / FOLDER).is_dir():
        return False
    commit.verify(out / FOLDER)
    saved = files.open_file(out / FOLDER / WEIGHTS)
    own = {
        n: p for n, p in model.named_parameters() if n.startswith(tuple(f"{part}." for part in new))
    }
    if own.keys() != set(saved.entries):
        raise CheckpointError(
            "the saved head belongs to another model",
            where=out / FOLDER,
            found=", ".join(sorted(saved.entries)[:5]),
            wanted=", ".join(sorted(own)[:5]),
            do="remove that folder, and start the run again",
        )
    for name, parameter in own.items():
        parameter.copy_(saved.read(name))
    return True
