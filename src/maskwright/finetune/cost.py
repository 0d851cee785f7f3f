"""What a fine-tuning will cost, told before it: steps, time on this machine, room on the disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from maskwright.checkpoint import shapes
from maskwright.counted import counted
from maskwright.finetune.learner import Learner
from maskwright.finetune.method import Method
from maskwright.finetune.tune import Settings, passes_of, steps_of
from maskwright.labelled.examples.examples import Examples
from maskwright.labelled.formats.parts import TRAIN, VALIDATION
from maskwright.report.say import Say, quiet
from maskwright.report.wording import duration, size
from maskwright.storage.files import DISK, existing_parent
from maskwright.tasks.parts.task_type import Encoded
from maskwright.train.loop import Hook, Record
from maskwright.train.machine.machine import Machine
from maskwright.train.state import TrainState

TRIAL_STEPS = 3


class _Clock:
    """The loop's hook: when each step ended."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_step(self, state: TrainState, record: Record) -> None:
        self.marks.append(time.perf_counter())

    def at_end(self, state: TrainState) -> None:
        """Nothing is left to do."""


def disk_bytes(learner: Learner, method: Method, seeds: int) -> int:
    """Bytes that the output folder takes at the least: the model's float32 weights, and, until it
    is written, those that each of `seeds` trains."""
    kept = seeds if method.trains_all else 0
    return 4 * shapes.num_parameters(learner.config) * (1 + kept)


def tell(
    learner: Learner,
    data: Examples,
    parts: Mapping[str, Encoded],
    method: Method,
    settings: Settings,
    seeds: int,
    out: Path,
    say: Say,
    machine: Machine | None = None,
) -> None:
    """Say what learning `parts` would cost; a few steps are tried, and nothing is written."""
    examples = parts[TRAIN].examples
    count = len(examples.training_indices)
    steps, passes = steps_of(settings, count), passes_of(settings, count)
    say(
        f"cost: {counted(seeds, 'seed')} of {counted(steps, 'step')} each: {settings.epochs} × "
        f"{counted(passes, 'pass', 'passes')} over {count:,} examples, {settings.batch} a step, "
        f"{float(examples.lengths.mean()):.0f} tokens each"
    )
    seconds = _seconds_per_step(learner, data, method, settings, machine)
    validation = (
        len(parts[VALIDATION].rows) * settings.epochs / (3 * count * settings.epochs * passes)
    )
    room = existing_parent(out)
    say(
        f"time: about {duration(seeds * steps * seconds * (1 + validation))} on this machine\n"
        f"disk: {size(disk_bytes(learner, method, seeds))} in {out}, where "
        f"{size(DISK.free_bytes(room))} are free"
    )


def _seconds_per_step(
    learner: Learner, data: Examples, method: Method, settings: Settings, machine: Machine | None
) -> float:
    """Of a short trial that is thrown away."""
    clock = _Clock()
    rows = data.parts[TRAIN][: TRIAL_STEPS * settings.batch]
    few = learner.task_type.encode(rows, learner.frame)
    one = learner.task_type.encode(data.parts[VALIDATION][: settings.batch], learner.frame)

    def watch(name: str, steps: int) -> AbstractContextManager[Hook]:
        return nullcontext(clock)

    learner.learn(
        {TRAIN: few, VALIDATION: one},
        method,
        replace(settings, epochs=1, least_steps=0),
        last=VALIDATION,
        say=quiet,
        watch=watch,
        machine=machine,
    )
    gaps = [b - a for a, b in zip(clock.marks, clock.marks[1:], strict=False)]
    return sum(gaps) / len(gaps) if gaps else 0.0
