"""The training loop, shared by pretraining and fine-tuning.

For each step: create the microbatches and count their targets; forward and backward for each; sum
over processes; check for values that are not finite; clip; update; call the hooks; stop when the
budget is used up or a stop is requested. All counters that a resumed run needs are in `TrainState`;
random numbers are functions of keys.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch

from maskwright.base.budget import Budget
from maskwright.base.errors import DataError
from maskwright.base.randomness import key, torch_seed
from maskwright.base.terminal import Say
from maskwright.learn.train.optimizers import Average, OptimizerState
from maskwright.learn.train.settings import Schedule
from maskwright.learn.train.state import SCALE_BITS, Processes, TrainState, diverged
from maskwright.learn.train.state import DivergedError as DivergedError
from maskwright.learn.train.state import StopFlag as StopFlag
from maskwright.model.batch import Batch
from maskwright.model.device import machine
from maskwright.model.objectives.base.objective import Objective

Record = dict[str, Any]
# (step, microbatch number) -> its batch; a pure function of these and of the run's state. None:
# nothing is left for that microbatch, as in the last step of an epoch.
Batches = Callable[[int, int], Batch | None]
# Maximum number of skipped steps in a row.
SKIPS = 20
TEST_SECONDS = 1.0


class Hook(Protocol):
    """Called after each step. Hooks may stop the run by setting `StopFlag`, and record evaluations
    in the state; they change nothing else."""

    def after_step(self, state: TrainState, record: Record) -> None: ...

    def at_end(self, state: TrainState) -> None:
        return


@dataclass(frozen=True)
class TrainingPlan:
    """The settings of the loop. `on_nonfinite` decides about a step whose loss or gradient is not
    finite; `skip` leaves the weights as they are and continues, but not more than `SKIPS` times in
    a row. In float16 such steps are always skipped: the factor of the loss was too large. After
    `patience` evaluations in a row without improvement the run ends."""

    seed: int
    microbatches: int
    budget: Budget
    schedule: Schedule
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    on_nonfinite: Literal["stop", "skip"] = "stop"
    patience: int | None = None


def train(
    objective: Objective,
    batches: Batches,
    optimizer: OptimizerState,
    plan: TrainingPlan,
    state: TrainState,
    *,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    hooks: Sequence[Hook] = (),
    stop: StopFlag | None = None,
    average: Average | None = None,
) -> TrainState:
    """Train until the budget or the patience is used up, or `stop` is raised; returns the state it
    was given.

    Args:
        average: updated after each step; None: no average.

    Raises:
        DivergedError: a loss or gradient is not finite, and such steps are not skipped, or too many
            were. The weights are those of the step before.
        DataError: a step has no target.
    """
    objective.train()
    is_scaled = optimizer.parameters.compute == torch.float16
    state.scale_bits = (state.scale_bits or SCALE_BITS) if is_scaled else 0
    stop = stop or StopFlag()
    machine.keep_memory()
    memory = machine.MemoryWatch()
    with machine.flushed():
        started = time.monotonic() - state.seconds
        while not finished(plan.budget, state, plan.patience):
            record = step(objective, batches, optimizer, plan, state, processes, average)
            # All processes use the clock of the first, so that a budget in minutes ends in all.
            elapsed = time.monotonic() - started
            state.seconds = processes.totals([elapsed if processes.first else 0.0])[0]
            memory.after_step()
            for hook in hooks:
                hook.after_step(state, record)
            flags = [float(stop.raised), float(state.stalled if processes.first else 0)]
            stopped, state.stalled = map(int, processes.totals(flags))
            if stopped:
                stop.raised = True
                break
            started = time.monotonic() - state.seconds  # the time of hooks does not count
        for hook in hooks:
            hook.at_end(state)
    return state


class SlowdownHook(Hook):
    """Reports once how fast fewer threads would be, if other processes have made training on the
    CPU slow. The test changes neither weights nor random numbers: gradients are cleared before
    every step, and each microbatch has a seed of its own.

    Args:
        note: receives the line.
        command: as of `SlowdownWatch`.
        interval: seconds of training between two checks.
    """

    def __init__(
        self,
        objective: Objective,
        batches: Batches,
        plan: TrainingPlan,
        note: Say,
        command: str,
        interval: float = 10.0,
    ) -> None:
        self.objective, self.batches, self.plan = objective, batches, plan
        self.note, self.interval = note, interval
        self._watch = machine.SlowdownWatch(torch.get_num_threads(), command, self._speed)
        self._last_state = TrainState()  # at the last check

    def after_step(self, state: TrainState, record: Record) -> None:
        seconds = state.seconds - self._last_state.seconds
        if self.plan.device.type == "cpu" and seconds >= self.interval:
            tokens, self._last_state = state.tokens - self._last_state.tokens, replace(state)
            if finding := self._watch.slowed(tokens / seconds):
                self.note(finding.line())

    def _speed(self, threads: int) -> float:
        """Return the tokens per second of forward and backward with `threads` threads."""
        usual, tokens, number = torch.get_num_threads(), 0, 0
        torch.set_num_threads(threads)
        start = time.monotonic()
        while (elapsed := time.monotonic() - start) < TEST_SECONDS:
            batch = self.batches(self._last_state.step, number % self.plan.microbatches)
            number += 1
            if batch is not None:
                counts = self.objective.counts(batch)
                self.objective(batch.to(self.plan.device)).scaled(counts).backward()
                tokens += batch.tokens.numel()
        torch.set_num_threads(usual)
        return tokens / elapsed


def finished(budget: Budget, state: TrainState, patience: int | None = None) -> bool:
    """Whether the budget or the patience is used up."""
    is_stalled = patience is not None and state.stalled >= patience
    return is_stalled or budget.spent(**state.counted)


def progress(plan: TrainingPlan, state: TrainState) -> float:
    """Return the used share of the budget, 0 to 1; it is 0 in the first step."""
    return plan.budget.share(**state.counted)


def step(
    objective: Objective,
    batches: Batches,
    optimizer: OptimizerState,
    plan: TrainingPlan,
    state: TrainState,
    processes: Processes,
    average: Average | None = None,
) -> Record:
    """One optimizer step; updates `state` and returns the record of the step."""
    every = ((n, batches(state.step, n)) for n in processes.share(plan.microbatches))
    mine = [(number, batch) for number, batch in every if batch is not None]
    any_batch = (batches(state.step, n) for n in range(plan.microbatches))
    counts = _counts(objective, [b for _, b in mine], any_batch, processes)
    shapes = [batch.tokens.shape[:2] for _, batch in mine]
    sizes = [sum(shape[0] for shape in shapes), sum(shape.numel() for shape in shapes)]
    rows, tokens = processes.totals([float(size) for size in sizes])
    parameters = optimizer.parameters
    parameters.clear()
    sums, weights = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 1.0)
    losses: dict[int, torch.Tensor] = {}
    for number, batch in mine:
        machine.seed(plan.device, torch_seed(key("dropout", plan.seed, state.step, number)))
        terms = objective(batch.to(plan.device))
        loss = terms.scaled(counts)
        (loss * 2.0**state.scale_bits).backward()
        losses[number] = loss.detach()
        for name, loss_part in terms.parts.items():
            sums[name] = sums[name] + loss_part.total.detach().double()  # as processes add them up
            weights[name] = loss_part.weight
    parameters.zero_untouched()
    processes.sum(parameters.gradient)
    if state.scale_bits:
        parameters.gradient.mul_(2.0**-state.scale_bits)
    means = _means({n: float(s) for n, s in sums.items()}, counts, processes)
    norm = float(optimizer.norm())
    loss_of_step = sum(means[n] * weights[n] for n in means)
    is_finite = math.isfinite(loss_of_step) and math.isfinite(norm)
    figures: Record
    if is_finite:
        rate = _update(optimizer, plan, state, norm, average)
        figures = _shown(means, weights, counts) | {"learning_rate": rate, "gradient_norm": norm}
        state.skipped = 0
    elif (plan.on_nonfinite == "skip" or state.scale_bits) and state.skipped < SKIPS:
        state.skipped += 1
        figures = {"in_a_row": state.skipped}
    else:
        raise diverged(state, loss_of_step, means, norm, losses, parameters)
    if state.scale_bits:
        figures["loss_scale"] = 2.0**state.scale_bits
        state.adapt_scale(is_finite)
    state.step += 1
    state.samples += int(rows)
    state.tokens += int(tokens)
    state.targets += (targets := sum(counts.values()))
    kind = "skipped" if state.skipped else "train"
    return {"kind": kind, "step": state.step, **figures, "tokens": state.tokens, "targets": targets}


def _update(
    optimizer: OptimizerState,
    plan: TrainingPlan,
    state: TrainState,
    norm: float,
    average: Average | None,
) -> float:
    """Clip the gradient, whose norm is `norm`, update the weights, return the learning rate."""
    parameters = optimizer.parameters
    clip = optimizer.settings.clip
    if clip and norm > clip:
        parameters.gradient.mul_(clip / norm)
    factor = plan.schedule.factor(plan.budget.used(**state.counted), plan.budget.total)
    rate = optimizer.settings.learning_rate * factor
    optimizer.step(rate)
    if average is not None:
        average.update()
    return rate


def _counts(
    objective: Objective, mine: list[Batch], any_batch: Iterable[Batch | None], processes: Processes
) -> dict[str, int]:
    """Return the number of targets of the whole step by part of the loss. A process without a
    microbatch gets the names of the parts from `any_batch`."""
    totals: dict[str, int] = {}
    for batch in mine:
        for name, count in objective.counts(batch).items():
            totals[name] = totals.get(name, 0) + count
    batch_of_another = None if mine else next((b for b in any_batch if b is not None), None)
    if batch_of_another is not None:
        totals = dict.fromkeys(objective.counts(batch_of_another), 0)
    names = sorted(totals)
    sums = processes.totals([float(totals[n]) for n in names])
    counts = {n: int(s) for n, s in zip(names, sums, strict=True)}
    if not any(counts.values()):
        raise DataError(
            "a training step has no targets",
            found="rows that hold nothing but special tokens",
            do="check the corpus and the row length",
        )
    return counts


def _means(
    sums: dict[str, float], counts: dict[str, int], processes: Processes
) -> dict[str, float]:
    totals = processes.totals([sums[n] for n in sums])
    return {n: t / max(1, counts[n]) for n, t in zip(sums, totals, strict=True)}


def _shown(
    means: dict[str, float], weights: dict[str, float], counts: dict[str, int]
) -> dict[str, Any]:
    """Return the mean losses of the parts with targets in this step, and the recorded loss.

    A part without targets adds nothing to the trained loss. In the record its weight is distributed
    to the other parts, or the loss would seem to fall in such steps.
    """
    present = {name: mean for name, mean in means.items() if counts[name]}
    total, total_weight = sum(means[n] * weights[n] for n in means), sum(weights.values())
    share = sum(weights[n] for n in present)
    return {"loss": total * (total_weight / share) if share else total, "parts": present}
