"""What a fine-tuning costs: steps, time and disk space, estimated before it from a few steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from maskwright.base.report.document import duration, size
from maskwright.base.storage.files import DISK, existing_parent
from maskwright.base.terminal import Say, counted, quiet
from maskwright.learn.finetune.learner import BaseLearner, Learner
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.tune import Settings, passes_of, steps_of
from maskwright.learn.tasks.base.task_type import Encoded
from maskwright.learn.train.loop import Hook, Record
from maskwright.learn.train.state import TrainState
from maskwright.model.device.machine import Machine
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

TRIAL_STEPS, TRIAL_TEXTS = 3, 64


class _Clock:
    """Hook of the loop that records when each step ended."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_step(self, state: TrainState, record: Record) -> None:
        self.marks.append(time.perf_counter())

    def at_end(self, state: TrainState) -> None:
        """Do nothing."""


def disk_bytes(learner: BaseLearner, method: Method, seeds: int) -> int:
    """Return the minimum size of the output folder in bytes: the model's float32 weights and, until
    they are written, the trained weights of each seed."""
    kept_seeds = seeds if method.trains_all else 0
    return 4 * learner.num_parameters * (1 + kept_seeds)


def tell(
    learner: BaseLearner,
    data: Dataset,
    encoded_parts: Mapping[str, Encoded],
    method: Method,
    settings: Settings,
    seeds: int,
    out: Path,
    say: Say,
    machine: Machine | None = None,
    folds: int = 0,
) -> None:
    """Print steps, time and disk space for a number of seeds, estimated from a few trial steps.

    Args:
        folds: the folds of a cross-validation, in each of which every seed is trained before the
            model of all rows; 0: the data is not cross-validated.
    """
    examples = encoded_parts[TRAIN].examples
    count = len(examples.training_indices)
    existing = existing_parent(out)
    disk = (
        f"disk: {size(disk_bytes(learner, method, seeds))} in {out}, where "
        f"{size(DISK.free_bytes(existing))} are free"
    )
    if not isinstance(learner, Learner):
        say(f"cost: a fit to {counted(count, 'example')}, without a network\n{disk}")
        return
    if method.fitted is not None:
        seconds = _seconds_per_text(learner, data, machine)
        evaluated = sum(len(part.rows) for part in encoded_parts.values()) - count
        cost = method.fitted.cost(count, settings)
        say(
            f"cost: as much as {counted(round(cost), 'text')} computed once by the network, "
            f"{float(examples.lengths.mean()):.0f} tokens each, and a fit to {count:,} examples\n"
            f"time: about {duration(seeds * (cost + evaluated) * seconds)} on this machine, "
            f"without the fit\n{disk}"
        )
        return
    steps, passes = steps_of(settings, count), passes_of(settings, count)
    trainings = seeds * folds + 1 if folds else seeds
    if folds:
        say(
            f"cross-validation: {counted(folds, 'fold')} × {counted(seeds, 'repetition')} and the "
            f"model of all rows, {trainings} trainings"
        )
    say(
        f"cost: {counted(trainings, 'training' if folds else 'seed')} of "
        f"{counted(steps, 'step')} {'at most' if folds else 'each'}: {settings.epochs} × "
        f"{counted(passes, 'pass', 'passes')} over {count:,} examples, {settings.batch} a step, "
        f"{float(examples.lengths.mean()):.0f} tokens each"
    )
    seconds = _seconds_per_step(learner, data, method, settings, machine)
    validation_rows = len(encoded_parts[VALIDATION].rows) if VALIDATION in encoded_parts else 0
    validation = validation_rows / (3 * count * passes)
    say(
        f"time: about {duration(trainings * steps * seconds * (1 + validation))} on this machine\n"
        f"{disk}"
    )


def _seconds_per_step(
    learner: Learner, data: Dataset, method: Method, settings: Settings, machine: Machine | None
) -> float:
    """Return the mean seconds per step of a short trial, whose model is discarded."""
    clock = _Clock()
    rows = list(islice(cycle(data.parts[TRAIN]), TRIAL_STEPS * settings.batch))
    encoded_training = learner.task_type.encode(rows, learner.frame)
    # One of the evaluated rows: their number does not change the time of a step.
    evaluated = learner.task_type.encode(rows[:1], learner.frame)

    def watch(name: str, steps: int) -> AbstractContextManager[Hook]:
        return nullcontext(clock)

    learner.learn(
        {TRAIN: encoded_training, TEST: evaluated},
        method,
        replace(settings, epochs=1, least_steps=0),
        eval_part=TEST,
        say=quiet,
        watch=watch,
        machine=machine,
    )
    gaps = [b - a for a, b in zip(clock.marks, clock.marks[1:], strict=False)]
    return sum(gaps) / len(gaps) if gaps else 0.0


def seconds_of_training(
    learner: BaseLearner,
    data: Dataset,
    method: Method,
    settings: Settings,
    machine: Machine | None = None,
) -> float:
    """Return about how long a training on the training part lasts, estimated from a few steps or
    texts; the fit of a linear model counts as nothing."""
    count = len(data.parts[TRAIN])
    if not isinstance(learner, Learner):
        return 0.0
    if method.fitted is None:
        seconds = _seconds_per_step(learner, data, method, settings, machine)
        return steps_of(settings, count) * seconds
    return method.fitted.cost(count, settings) * _seconds_per_text(learner, data, machine)


def _seconds_per_text(learner: Learner, data: Dataset, machine: Machine | None) -> float:
    """Return the mean seconds that the frozen network takes for a text, of a few."""
    vectors, encode = learner.frozen_vectors(machine), learner.task_type.encode
    vectors(encode(data.parts[TRAIN][:1], learner.frame))  # prepares the network
    sample = encode(data.parts[TRAIN][:TRIAL_TEXTS], learner.frame)
    begin = time.perf_counter()
    vectors(sample)
    return (time.perf_counter() - begin) / len(sample.rows)
