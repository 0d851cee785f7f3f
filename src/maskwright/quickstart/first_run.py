"""`maskwright quickstart`: from nothing to a model that fills masks, with an honest report.

No argument, no network, no GPU: the text is the documentation inside this Python installation.
The machine's speed decides how many steps fit into the time; the resolved recipe is saved like
any other.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from maskwright.budget import Budget
from maskwright.data.loader import Loader
from maskwright.errors import UsageError
from maskwright.findings import Finding
from maskwright.pretrain import build, run
from maskwright.pretrain.microbatches import Microbatches
from maskwright.pretrain.prepare import Prepared
from maskwright.pretrain.rows import training_rows
from maskwright.quickstart.comparison import compare
from maskwright.recipes import quickstart as member
from maskwright.recipes.parts.recipe import Recipe
from maskwright.report import document, tables
from maskwright.report.page import write_report
from maskwright.report.say import printer
from maskwright.report.wording import duration
from maskwright.terminal import shell_word
from maskwright.train import loop
from maskwright.train.distribute import Processes
from maskwright.train.machine import machine, process_memory
from maskwright.train.parameters import Parameters
from maskwright.train.state import TrainState

RESULTS = "results.json"
MARKER = "quickstart.json"  # says that a run is the quickstart's
# What the labelled task, evaluations and the corpus take of the time, measured on two cores.
OVERHEAD_SECONDS = 60.0
TRIAL_STEPS, FEWEST_STEPS = 6, 200


def quickstart(out: Path, *, minutes: float = 4.0) -> dict[str, Any]:
    """The whole first run in the new folder `out`; returns the content of `results.json`.

    Args:
        minutes: how long it may take on this machine, everything included; longer, with a note, if
            that is too little for the fewest steps.

    Raises:
        UsageError: less than what surrounds the training takes.
    """
    started = time.monotonic()
    if not OVERHEAD_SECONDS < minutes * 60 < math.inf:
        raise UsageError(
            "too few minutes: corpus, evaluations and the labelled task alone take about "
            f"{duration(OVERHEAD_SECONDS)}",
            where="--minutes",
            found=f"{minutes:g}",
            wanted=f"above {OVERHEAD_SECONDS / 60:g}",
            do="leave --minutes out: four are enough to see something",
        )
    say = printer(None)
    say(f"maskwright quickstart: {minutes:g} minutes asked for; everything goes to {out}\n")

    def adjust(recipe: Recipe, prepared: Prepared) -> Recipe:
        document.write(out / MARKER, json.dumps({"minutes": minutes}) + "\n")
        step_seconds = _seconds_per_step(recipe, prepared)
        return sized(recipe, _fit_steps(step_seconds, minutes * 60, time.monotonic() - started))

    run.pretrain(member.recipe(), out, adjust=adjust)
    results = {"tables": compare(out, say), "seconds": round(time.monotonic() - started, 1)}
    _write(out, results)
    say(f"report: {write_report(out)}")
    say(f"took {results['seconds']:.0f} seconds\n\nnext:")
    for line in (
        f'maskwright fill-mask {shell_word(out)} "The function returns a [MASK] of strings."',
        f"maskwright explore {shell_word(out)}",
        f"maskwright show {shell_word(out)}",
        "maskwright pretrain bert-mini --text your-documents.txt      # on text of your own",
        "maskwright list                                              # what else there is",
    ):
        say(f"  {line}")
    return results


def close(out: Path, *, stream: TextIO | None = None) -> None:
    """Add the labelled task to the quickstart's complete run `out`, if the quickstart was stopped
    before."""
    if tables.read(out):
        return
    say = printer(stream)
    _write(out, {"tables": compare(out, say)})
    say(f"report: {write_report(out)}")


def _write(out: Path, results: dict[str, Any]) -> None:
    document.write(out / RESULTS, json.dumps(results, indent=2) + "\n")


def sized(recipe: Recipe, steps: int) -> Recipe:
    """`recipe` for `steps` steps, with six evaluations and three checkpoints on the way."""
    every = max(1, steps // 6)
    return replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=steps)),
        evaluation=replace(recipe.evaluation, every=every),
        checkpoints=replace(recipe.checkpoints, every=2 * every),
    )


def _fit_steps(step_seconds: float, seconds: float, used: float) -> int:
    """The number of steps of `step_seconds` that fit into `seconds`, of which some are `used`;
    prints the expected time, and a note if that is longer."""
    fitting = int((seconds - used - OVERHEAD_SECONDS) / step_seconds)
    steps = max(FEWEST_STEPS, fitting)
    print(
        f"{steps:,} steps, in all about {duration(used + steps * step_seconds + OVERHEAD_SECONDS)}"
    )
    if fitting < steps:
        what = f"longer than the {duration(seconds)} asked for"
        why = f"with fewer than {FEWEST_STEPS} steps there is nothing to see"
        print(Finding("longer-than-asked", what, why).line())
    return steps


def _seconds_per_step(recipe: Recipe, prepared: Prepared) -> float:
    """The seconds of a step of `recipe`, from a short trial run."""
    training = recipe.training
    chosen = machine.choose(training.precision, training.device)
    architecture = build.transformer_config(recipe, prepared.tokenizer)
    network = build.model(recipe, architecture).to(chosen.device)
    objective = build.objective(recipe, network, prepared.tokenizer)
    optimizer = training.optimizer.start(Parameters(objective, chosen.compute))
    plan = loop.Plan(
        seed=0,
        microbatches=1,
        budget=Budget(steps=100),
        schedule=training.schedule,
        device=chosen.device,
    )
    process_memory.keep_memory()
    loader = Loader(training_rows(recipe, prepared.train), training.batch, 0)
    state, marks = TrainState(), []
    batches = Microbatches(objective, [(1.0, loader)], plan, state)
    objective.train()
    for _ in range(TRIAL_STEPS):
        loop.step(objective, batches, optimizer, plan, state, Processes())
        marks.append(time.perf_counter())
    step_seconds = float(np.median(np.diff(marks)))
    tokens = training.batch * recipe.rows.length
    print(
        f"machine: {chosen.device}, {chosen.name} ({chosen.reason}), "
        f"{torch.get_num_threads()} threads; "
        f"{tokens / step_seconds:,.0f} tokens/s"
    )
    return step_seconds
