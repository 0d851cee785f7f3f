"""What a fine-tuning costs: steps, time and disk space, estimated before it from a few steps."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from maskwright.base.report.document import duration, size
from maskwright.base.storage.files import DISK, existing_parent
from maskwright.base.terminal import Say, counted, quiet
from maskwright.learn.finetune.learner import BaseLearner, Learner
from maskwright.learn.finetune.tune import Settings, StepHook, passes_of, steps_of
from maskwright.learn.tasks.base.task_type import Encoded
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN

TRIAL_STEPS, TRIAL_TEXTS = 3, 64


class OutOfTimeError(Exception):
    """A training is stopped after a step: its time is over, or nothing more is to be known."""


def disk_bytes(learner: BaseLearner, seeds: int) -> int:
    """Return the minimum size of the output folder in bytes: the model's float32 weights and, until
    they are written, the trained weights of each seed."""
    kept_seeds = seeds if learner.method.trains_all else 0
    return 4 * learner.num_parameters * (1 + kept_seeds)


def tell(
    learner: BaseLearner,
    data: Dataset,
    encoded_parts: Mapping[str, Encoded],
    settings: Settings,
    seeds: int,
    out: Path,
    say: Say,
    folds: int = 0,
) -> None:
    """Print steps, time and disk space for a number of seeds, estimated from a few trial steps.

    Args:
        folds: the folds of a cross-validation, in each of which every seed is trained before the
            model of all rows; 0: the data is not cross-validated.
    """
    examples, method = encoded_parts[TRAIN].examples, learner.method
    count, trainings = len(examples.training_indices), seeds * folds + 1 if folds else seeds
    read, fits = f"{examples.lengths.mean():.0f} tokens each", counted(trainings, "fit")
    if not method.opens_network:
        work = f"{fits} to {count:,} examples, without a network"
    elif method.fitted is not None:
        texts = round(method.fitted.cost(count, settings))
        work = f"{fits}, each as much as {counted(texts, 'text')} read, {read}"
    else:
        steps, passes = steps_of(settings, count), passes_of(settings, count)
        work = (
            f"{counted(trainings, 'training' if folds else 'seed')} of {counted(steps, 'step')} "
            f"{'at most' if folds else 'each'}: {settings.epochs} × "
            f"{counted(passes, 'pass', 'passes')} over {count:,} examples, {settings.batch} a "
            f"step, {read}"
        )
    if folds:
        say(
            f"cross-validation: {counted(folds, 'fold')} × {counted(seeds, 'repetition')} and the "
            "model of all rows"
        )
    seconds = trainings * seconds_of_training(learner, data, count, settings)
    say(
        f"cost: {work}\ntime: about {duration(seconds)} on this machine, without evaluation\n"
        f"disk: {size(disk_bytes(learner, seeds))} in {out}, where "
        f"{size(DISK.free_bytes(existing_parent(out)))} are free"
    )


def seconds_of_training(
    learner: BaseLearner, data: Dataset, count: int, settings: Settings, end: float = math.inf
) -> float:
    """Return about how long a training on `count` examples lasts, estimated from a few steps or
    texts; the fit of a linear model counts as nothing.

    Args:
        end: the time of `time.perf_counter` at which the estimate is given up; it is then infinite.
    """
    if not isinstance(learner, Learner):
        return 0.0
    if time.perf_counter() > end:
        return math.inf
    rows, method = data.parts[TRAIN], learner.method
    if method.fitted is not None:
        if not (texts := method.fitted.cost(count, settings)):
            return 0.0
        vectors = learner.frozen_vectors
        vectors(learner.encode(rows[:1]))  # prepares the network
        seconds, few = math.inf, TRIAL_TEXTS // 4
        for sample in (rows[:few], rows[few:TRIAL_TEXTS]):  # the second if there is time
            if sample and (begin := time.perf_counter()) <= end:
                vectors(learner.encode(sample))
                seconds = min(seconds, (time.perf_counter() - begin) / len(sample))
        return texts * seconds
    marks = list[float]()

    def mark(record: object) -> None:
        marks.append(time.perf_counter())
        if len(marks) == TRIAL_STEPS or marks[-1] > end:
            raise OutOfTimeError

    sample = list(islice(cycle(rows), TRIAL_STEPS * settings.batch))
    with contextlib.suppress(OutOfTimeError):
        learner.learn(
            {TRAIN: learner.encode(sample), TEST: learner.encode(rows[:1])},
            replace(settings, epochs=1, least_steps=0),
            eval_part=TEST,
            say=quiet,
            watch=lambda *of_run: contextlib.nullcontext(StepHook(mark)),
        )
    of_step = (marks[-1] - marks[0]) / (len(marks) - 1) if len(marks) > 1 else math.inf
    return steps_of(settings, count) * of_step
