"""`maskwright quickstart`: from nothing to a model that fills masks, with an honest report.

No argument, no network, no GPU: the text is the documentation inside this Python installation.
The machine's speed decides how many steps fit into the time; the resolved recipe is saved like
any other.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.checkpoint import pretrained
from maskwright.data.loader import Loader
from maskwright.evaluate import likelihood
from maskwright.generate.fill import fill
from maskwright.pretrain import build, checkpoints, run
from maskwright.pretrain.prepare import Prepared, prepare
from maskwright.quickstart import task
from maskwright.recipes import quickstart as member
from maskwright.recipes.recipe import Recipe, read
from maskwright.report.page import write_report
from maskwright.train import loop, machine
from maskwright.train.distribute import Processes
from maskwright.train.optimizer import AdamWState
from maskwright.train.parameters import Parameters
from maskwright.train.schedule import Budget
from maskwright.train.state import TrainState

RESULTS = "quickstart.json"
# What the labelled task, evaluations and the corpus take of the time, measured on two cores.
OVERHEAD_SECONDS = 75.0
TRIAL_STEPS, FEWEST_STEPS = 6, 200
SENTENCES = (
    "Return the number of [MASK] in the list.",
    "The default [MASK] is None.",
    "This method should be [MASK] by subclasses.",
    "Raise an [MASK] if the file does not exist.",
)


def quickstart(out: Path, *, minutes: float = 4.0) -> dict[str, Any]:
    """The whole first run in the new folder `out`; returns what `quickstart.json` holds.

    Args:
        minutes: how long it may take on this machine, everything included.
    """
    begun = time.monotonic()
    print(f"maskwright quickstart: about {minutes:g} minutes; everything goes to {out}\n")
    machine.settle()

    def settle(recipe: Recipe, prepared: Prepared) -> Recipe:
        left = minutes * 60 - (time.monotonic() - begun) - OVERHEAD_SECONDS
        return sized(recipe, _fit_steps(recipe, prepared, left))

    run.pretrain(member.recipe(), out, settle=settle)
    results = _results(out)
    results["seconds"] = round(time.monotonic() - begun, 1)
    (out / RESULTS).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"\nreport      {write_report(out)}")
    print(f"took        {results['seconds']:.0f} seconds\n\nnext:")
    for line in (
        f'maskwright fill-mask {out} "The function returns a [MASK] of strings."',
        f"maskwright show {out}",
        "maskwright pretrain bert-mini --text your-documents.txt      # on text of your own",
        "maskwright list                                              # what else there is",
    ):
        print(f"  {line}")
    return results


def sized(recipe: Recipe, steps: int) -> Recipe:
    """`recipe` for so many steps, with six evaluations and three checkpoints on the way."""
    every = max(1, steps // 6)
    return replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=steps)),
        evaluation=replace(recipe.evaluation, every=every),
        checkpoints=replace(recipe.checkpoints, every=2 * every),
    )


def _fit_steps(recipe: Recipe, prepared: Prepared, seconds: float) -> int:
    """How many steps of `recipe` fit into `seconds`, by a short trial that is thrown away."""
    training = recipe.training
    chosen = machine.choose(training.precision, training.device)
    point = build.transformer_config(recipe, prepared.tokenizer)
    network = build.model(recipe, point).to(chosen.device)
    objective = build.objective(recipe, network, prepared.tokenizer)
    optimizer = AdamWState(Parameters(objective, chosen.compute), training.optimizer)
    plan = loop.Plan(seed=0, rows=training.batch, microbatches=1, budget=Budget(steps=100),
                     schedule=training.schedule, device=chosen.device)  # fmt: skip
    loader = Loader(build.rows(recipe, prepared.train), training.batch, 0)
    batches = run.Microbatches(objective, loader, 0, 1)
    objective.train()
    state, marks = TrainState(), []
    for _ in range(TRIAL_STEPS):
        loop.step(objective, batches, optimizer, plan, state, Processes())
        marks.append(time.perf_counter())
    pace = float(np.median(np.diff(marks)))
    steps = max(FEWEST_STEPS, int(seconds / pace))
    tokens = training.batch * recipe.rows.length
    print(
        f"machine: {chosen.device}, {chosen.name} ({chosen.reason}), "
        f"{torch.get_num_threads()} threads; "
        f"{tokens / pace:,.0f} tokens/s, so {steps:,} steps"
    )
    return steps


def _results(out: Path) -> dict[str, Any]:
    """The honest part: the model beside what needs no pretraining."""
    recipe = read(out / run.RECIPE)
    prepared = prepare(recipe, out, lambda text: None)
    loaded = pretrained.load(checkpoints.newest(out))
    point = loaded.config
    held_out = build.rows(recipe, prepared.held_out)
    rows, batch = recipe.evaluation.rows, recipe.evaluation.batch
    figures = {}
    untrained = replace(recipe, training=replace(recipe.training, seed=recipe.training.seed + 1))
    for name, network in (("pretrained", loaded.model), ("random", build.model(untrained, point))):
        objective = build.objective(_at_fifteen_percent(recipe), network, prepared.tokenizer)
        figures[name] = likelihood.evaluate(objective, held_out, rows=rows, batch_rows=batch)
    lines = likelihood.reference_lines(
        objective, prepared.train, held_out, rows=rows, batch_rows=batch
    )
    print("\nheld-out text, 15 % masked      loss    top-1   top-5")
    for name, loss, top1, top5 in (
        (
            "this model",
            figures["pretrained"].loss,
            figures["pretrained"].top1,
            figures["pretrained"].top5,
        ),
        ("unigram line", lines.unigram_loss, lines.unigram_top1, lines.unigram_top5),
        ("random encoder", figures["random"].loss, figures["random"].top1, figures["random"].top5),
        ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
    ):
        print(f"  {name:26} {loss:8.3f} {top1:8.3f} {top5:7.3f}")
    print("\nfilled masks")
    filled = []
    for sentence, holes in zip(
        SENTENCES, fill(loaded.model, prepared.tokenizer, SENTENCES, top=4), strict=True
    ):
        found = [(c.token, c.probability) for c in holes[0].candidates]
        print(f"  {sentence:58} " + "  ".join(f"{t} {p:.0%}" for t, p in found))
        filled.append({"text": sentence, "candidates": found})
    print("\nwhich exception carries this message? (packages never shared between train and test)")
    chosen = task.load(prepared.tokenizer, recipe.rows.length)
    print(
        f"  {len(chosen.train):,} messages to learn from, {len(chosen.test):,} to answer, "
        f"{len(chosen.names)} classes, {chosen.truncated} cut to {recipe.rows.length} tokens"
    )
    print(f"  {'':24} accuracy         macro-F1   (± over {len(task.SEEDS)} seeds)")
    scores = task.compare(chosen, loaded.model, prepared.tokenizer, print)
    return {
        "held_out": {n: f.to_json() for n, f in figures.items()},
        "lines": lines.to_json(),
        "filled": filled,
        "task": {
            "name": "exception type of a message",
            "classes": chosen.names,
            "train": len(chosen.train),
            "test": len(chosen.test),
            "truncated": chosen.truncated,
            "scores": {
                n: {"accuracy": s.accuracy, "macro_f1": s.macro_f1} for n, s in scores.items()
            },
        },
    }


def _at_fifteen_percent(recipe: Recipe) -> Recipe:
    """The recipe's objective with the usual mask rate, so that figures compare with others'."""
    return replace(recipe, objective=replace(recipe.objective, options={"rate": 0.15}))
