"""Train a model with a head on labelled examples in epochs, and keep the best epoch's weights.

    tune(objective, train, …)     ->  TrainingResult: the float32 model, the metric of every epoch

The batches of an epoch are a keyed shuffle of all examples, so no order has to be saved. The epoch
is chosen by the caller's validation metric, the earliest among equals; with `patience`, training
stops after so many epochs without improvement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TextIO

import numpy as np
import torch
from torch import Tensor

from maskwright.base.budget import Budget
from maskwright.base.errors import DataError
from maskwright.base.randomness import key, permute
from maskwright.base.report.panel import Panel
from maskwright.base.terminal import Say, quiet
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import (
    ParameterRates,
    Parameters,
    RateFactors,
    start_optimizer,
)
from maskwright.learn.train.records import announce
from maskwright.learn.train.settings import AdamW, Optimizer, Schedule
from maskwright.learn.train.state import TrainState
from maskwright.model.batch import Batch
from maskwright.model.device.machine import Machine, choose
from maskwright.model.inference.batches import PACKED
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.nn.stack import recompute_layers
from maskwright.model.nn.transformer import HeadModule, Transformer
from maskwright.model.objectives.base.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The published defaults of BERT's fine-tuning (Devlin et al. 2018, A.3), but for decay on the
    learning rate after a warm-up of a tenth.

    Attributes:
        accumulate: in how many portions a step is computed.
        gradient_checkpointing: whether activations of layers are computed again in the backward
            pass.
        patience: how many epochs without a better figure end the run; None: none do.
        least_steps: where there are so few examples that the epochs would be fewer steps than
            these, each is several passes over the data (Mosbach et al. 2021, arXiv:2006.04884).
        class_weights, label_smoothing, temperature: of the loss, as `objectives.supervised.Options`
            says.
    """

    epochs: int = 3
    batch: int = 32
    accumulate: int = 1
    gradient_checkpointing: bool = False
    optimizer: Optimizer = field(default_factory=lambda: AdamW(learning_rate=5e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(kind="linear", warmup=0.1))
    patience: int | None = None
    least_steps: int = 0
    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0
    temperature: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class TrainingResult:
    """The result of one training.

    Attributes:
        model: in float32, in evaluation mode; None if it was dropped for that of a better seed.
        figures: the validation metric of each epoch; empty if none was computed.
        losses: the mean training loss of each epoch.
        epoch: the epoch of the weights, counted from 1.
        seconds: the duration of training without evaluation.
    """

    model: Transformer | None
    figures: list[float]
    losses: list[float]
    epoch: int
    seconds: float

    def divided(self, temperature: float) -> Self:
        """Return the result with the scores of its only head divided by `temperature`, in its last
        layer, so that every program that reads the weights gets calibrated probabilities. Without a
        head the task type divides them."""
        if temperature != 1.0 and self.network.config.heads:
            head = self.network.heads[self.network.config.heads[0].name]
            assert isinstance(head, HeadModule)
            head.rescale(0.0, 1.0 / temperature)
        return self

    @property
    def num_trained(self) -> int:
        """The number of parameters that were trained."""
        return sum(p.numel() for p in self.network.parameters() if p.requires_grad)

    @property
    def network(self) -> Transformer:
        """The model; an assertion fails if it was dropped."""
        assert self.model is not None
        return self.model


def tune(
    objective: Objective,
    train: EncodedExamples,
    collation: Collation,
    settings: Settings,
    *,
    figure: Callable[[Objective], float] | None = None,
    rate_factors: Callable[[Transformer, int], RateFactors | None] | None = None,
    machine: Machine | None = None,
    hooks: Sequence[loop.Hook] = (),
) -> TrainingResult:
    """Train the parameters of `objective` that require a gradient.

    Args:
        figure: the validation metric after each epoch, higher is better; None: the last epoch is
            saved.
        rate_factors: maps model and number of steps to learning rate factors by step, or None.
        machine: device and precision; None: the best of this machine.
        hooks: further hooks, called before `figure`.

    Raises:
        DataError: there is no example.  DivergedError: a loss is not finite.
    """
    indices = train.training_indices
    if not len(indices):
        raise DataError("there is no example to learn from", where="train")
    machine, model = machine or choose(), objective.product
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    parameters = Parameters(objective.to(machine.device), machine.compute)
    if settings.gradient_checkpointing:
        recompute_layers(objective)
    per_pass = -(-len(indices) // settings.batch)
    steps = steps_of(settings, len(indices))
    portions = _portions(train, settings)

    def batches(step: int, number: int) -> Batch | None:
        pass_index, offset = divmod(step, per_pass)
        begin = offset * settings.batch
        slots = np.arange(begin, min(begin + settings.batch, len(indices)))[number::portions]
        chosen = indices[permute(key("shuffle", settings.seed, pass_index), len(indices), slots)]
        return train.batch(train.with_groups(chosen), collation)[0] if len(chosen) else None

    plan = loop.TrainingPlan(
        seed=settings.seed,
        microbatches=portions,
        budget=Budget(steps=steps),
        schedule=settings.schedule,
        device=machine.device,
    )
    stop = loop.StopFlag()
    per_epoch = steps // settings.epochs
    epochs = _Epochs(objective, parameters, per_epoch, figure, settings.patience, stop)
    optimizer = start_optimizer(settings.optimizer, parameters)
    if rate_factors is not None and (factors_by_step := rate_factors(model, steps)) is not None:
        optimizer = ParameterRates(
            optimizer,
            lambda step: {f"product.{name}": f for name, f in factors_by_step(step).items()},
        )
    note = next((hook.note for hook in hooks if isinstance(hook, StepHook)), quiet)
    command = "the same command with --threads "
    slowdown = loop.SlowdownHook(objective, batches, plan, note, command)
    hooks = [*hooks, slowdown, epochs]
    state = loop.train(objective, batches, optimizer, plan, TrainState(), hooks=hooks, stop=stop)
    finished = _in_float32(model, epochs.best, frozen)
    return TrainingResult(finished, epochs.figures, epochs.losses, epochs.chosen, state.seconds)


def defined(value: float) -> float:
    """Return an undefined metric, such as the correlation of equal predictions, as the worst."""
    return value if math.isfinite(value) else -math.inf


def steps_of(settings: Settings, count: int) -> int:
    """Returns the number of steps of training on `count` examples."""
    return settings.epochs * passes_of(settings, count) * -(-count // settings.batch)


def passes_of(settings: Settings, count: int) -> int:
    """Returns the number of passes over `count` examples in an epoch."""
    per_pass = -(-count // settings.batch)
    return max(1, -(-settings.least_steps // (settings.epochs * per_pass)))


def _portions(train: EncodedExamples, settings: Settings) -> int:
    """Return the number of microbatches of a step; for texts in pieces it is raised, as an example
    then has more tokens."""
    if train.pieces is None:
        return settings.accumulate
    needed = -(-settings.batch * int(train.lengths.mean()) // PACKED)
    return min(settings.batch, max(settings.accumulate, needed))


@dataclass
class _Epochs(loop.Hook):
    """Hook that evaluates after each epoch, keeps the best weights, and stops early."""

    objective: Objective
    parameters: Parameters
    per_epoch: int
    figure: Callable[[Objective], float] | None
    patience: int | None
    stop: loop.StopFlag
    figures: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    chosen: int = 0
    _sum: float = 0.0
    _count: int = 0

    def after_step(self, state: TrainState, record: loop.Record) -> None:
        if record["kind"] != "skipped":
            self._sum, self._count = self._sum + record["loss"], self._count + 1
        if state.step % self.per_epoch:
            return
        self.losses.append(self._sum / max(1, self._count))
        self._sum, self._count = 0.0, 0
        epoch = state.step // self.per_epoch
        if self.figure is None:
            self._save_weights(epoch)
            return
        self.objective.eval()
        value = self.figure(self.objective)
        self.objective.train()
        self.figures.append(defined(value))  # as long as none is, the last epoch is kept
        none_defined = max(self.figures) == -math.inf
        if none_defined or self.figures[-1] > max(self.figures[:-1], default=-math.inf):
            self._save_weights(epoch)
        elif self.patience is not None and epoch - self.chosen >= self.patience:
            self.stop.raised = True

    def _save_weights(self, epoch: int) -> None:
        self.chosen = epoch
        self.best = {n: t.detach().clone() for n, t in self.parameters.state().items()}


def _in_float32(
    model: Transformer, trained: dict[str, Tensor], frozen: dict[str, Tensor]
) -> Transformer:
    """Convert `model` to float32: trained weights from their masters, frozen ones unchanged."""
    masters = {name.removeprefix("product."): tensor for name, tensor in trained.items()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.data = {**frozen, **masters}[name].float().to(parameter.device)
    return model.float().eval()


# ---------------------------------------------------------------- what a training shows meanwhile
# (displayed name, number of steps) -> context manager of a hook that shows the progress
Watch = Callable[..., AbstractContextManager[loop.Hook]]  # name, steps, tokens of an image


@dataclass(frozen=True)
class StepHook(loop.Hook):
    """Hook that calls `on_step` after each step; `note` receives what is notable."""

    on_step: Callable[[loop.Record], None]
    note: Say = quiet

    def after_step(self, state: TrainState, record: loop.Record) -> None:
        self.on_step(record)


def watching(stream: TextIO | None = None, folder: Path | None = None) -> Watch:
    """Return a `Watch` on `stream` (None: standard output): a panel on a terminal, which is removed
    at the end, or else a line every ten seconds."""

    @contextmanager
    def watch(name: str, steps: int, image_tokens: int = 0) -> Iterator[loop.Hook]:
        panel = Panel({"recipe": name, "steps": steps, "image_tokens": image_tokens}, stream)
        panel.start()

        def step(record: loop.Record) -> None:
            panel.step(record)
            if folder is not None:
                announce(folder, {"name": name, **record})

        try:
            yield StepHook(step, panel.note)
        finally:
            panel.close()

    return watch


@contextmanager
def unseen(name: str, steps: int, image_tokens: int = 0) -> Iterator[loop.Hook]:
    """A `Watch` that shows nothing."""
    yield StepHook(lambda record: None)
