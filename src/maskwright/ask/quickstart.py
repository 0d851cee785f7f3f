"""`maskwright quickstart`: train a small model that fills masks, and report its quality.

Needs no arguments, network or GPU: the text is the documentation of this Python installation. The
number of steps is chosen by the machine's speed; the resolved recipe is saved as usual.
"""

from __future__ import annotations

import io
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from maskwright.base.budget import Budget
from maskwright.base.errors import Finding, UsageError
from maskwright.base.randomness import key, permute
from maskwright.base.report import document
from maskwright.base.report.document import Table, duration, for_terminal
from maskwright.base.report.page import write_report
from maskwright.base.terminal import Say, printer, shell_word
from maskwright.learn import quickstart_task
from maskwright.learn.finetune.experiment import BAG_OF_WORDS, UNTRAINED, experiment
from maskwright.learn.pretrain import build, run
from maskwright.learn.pretrain.cost import TextSample, measure
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.pretrain.rows import held_out_rows, training_rows, weights_of
from maskwright.learn.recipes.base.find import find, read
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.device import machine
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.fill_mask import fill
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.open import open_weights

SENTENCES = (
    "Return the number of [MASK] in the list.",
    "The default [MASK] is None.",
    "This method should be [MASK] by subclasses.",
    "Raise an [MASK] if the file does not exist.",
)
SETTINGS = {"epochs": 3, "rate": 1e-3}
TASK, COMPARISON = "exceptions", "comparison"  # folders of labelled messages and of results
# Few labels, since pretraining helps most there.
LABELS = 1_000


def compare(out: Path, say: Say) -> list[Table]:
    """Compute the three result tables of the run in `out`; each is printed by `say` at once."""
    recipe = read(out / run.RECIPE)
    prepared = prepare(recipe, out, lambda text: None)
    model = open_weights(out).network

    def printed(table: Table) -> Table:
        say(f"\n{for_terminal(table)}")
        return table

    tables = [printed(_held_out(recipe, prepared, model)), printed(_filled(prepared, model))]
    return [*tables, printed(_labelled_task(out))]


def _held_out(recipe: Recipe, prepared: PreparedCorpus, model: Transformer) -> Table:
    """Return a table of loss and accuracy at the usual mask rate, beside baselines."""
    usual_recipe = replace(recipe, objective=replace(recipe.objective, options={"rate": 0.15}))
    source = held_out_rows(recipe, prepared.held_out)
    train = training_rows(recipe, prepared.train)
    reseeded = replace(recipe, training=replace(recipe.training, seed=recipe.training.seed + 1))
    objectives = [
        build.objective(usual_recipe, network, prepared.tokenizer)
        for network in (model, build.model(reseeded, model.config))
    ]
    size: dict[str, Any] = {"rows": recipe.evaluation.rows, "batch_rows": recipe.evaluation.batch}
    figures, untrained = (held_out_loss.evaluate(o, source, **size) for o in objectives)
    counts = held_out_loss.token_counts(prepared.train, weights_of(recipe.corpus, prepared.train))
    lines = held_out_loss.reference_lines(objectives[0], counts, train, source, **size)
    rows_by_name = [
        ("this model", figures.loss, figures.top1, figures.top5),
        ("unigram baseline", lines.unigram_loss, lines.unigram_top1, lines.unigram_top5),
        ("random encoder", untrained.loss, untrained.top1, untrained.top5),
        ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
    ]
    return {
        "title": "Held-out text, 15 % masked",
        "own_first": True,
        "head": ["", "loss", "top-1", "top-5"],
        "rows": [[name, *(f"{v:.3f}" for v in values)] for name, *values in rows_by_name],
        "note": f"{figures.targets:,} masked tokens; loss in nats. The unigram baseline predicts "
        "each token by its frequency: below it, the model uses the context.",
    }


def _filled(prepared: PreparedCorpus, model: Transformer) -> Table:
    holes_by_text = fill(model, prepared.tokenizer, SENTENCES, top=4)
    return {
        "title": "Filled masks",
        "head": ["text", *(f"{number}. guess" for number in range(1, 5))],
        "rows": [
            [text, *(f"{c.token} · {c.probability:.0%}" for c in holes[0].candidates)]
            for text, holes in zip(SENTENCES, holes_by_text, strict=True)
        ],
        "note": "The four sentences are fixed; they were not chosen for their answers.",
    }


def _labelled_task(out: Path) -> Table:
    """Fine-tune the model of the run in `out`, and an untrained copy of it, on messages of the
    packages installed here; return a table of the results with the verdict in its note."""
    train, test = quickstart_task.split(quickstart_task.exception_messages())
    order = permute(key("draw", 0), len(train), np.arange(min(LABELS, len(train))))
    labels = {train[i].label for i in order}
    parts = {"train": [train[i] for i in order], "test": [m for m in test if m.label in labels]}
    (out / TASK).mkdir(exist_ok=True)
    for name, messages in parts.items():
        rows = [json.dumps({"text": m.text, "label": m.label}) + "\n" for m in messages]
        document.write(out / TASK / f"{name}.jsonl", "".join(rows))
    models, folders = [f"{out}", f"{UNTRAINED}{out}", BAG_OF_WORDS], (out / TASK, out / COMPARISON)
    sheet = experiment(models, *folders, settings=SETTINGS, stream=io.StringIO())
    note = f"{sheet.verdict} {len(order):,} messages to learn from, in other files."
    title = "Which exception carries this message?"
    return {**sheet.table, "title": title, "note": f"{note} {sheet.table['note']}"}


RESULTS = "results.json"
# Time of corpus, evaluations and labelled task without training, measured on two cores.
OVERHEAD_SECONDS = 60.0
FEWEST_STEPS = 200


def quickstart(out: Path, *, minutes: float = 4.0) -> dict[str, Any]:
    """Train and evaluate in the new folder `out`; returns the content of `results.json`.

    Args:
        minutes: the total time on this machine; exceeded, with a note, if it is too short for
            `FEWEST_STEPS` steps.

    Raises:
        UsageError: the time is too short for corpus and evaluation alone.
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

    def adjust(recipe: Recipe, prepared: PreparedCorpus) -> Recipe:
        document.write(out / quickstart_task.MARKER, json.dumps({"minutes": minutes}) + "\n")
        step_seconds = _seconds_per_step(recipe, prepared)
        return sized(recipe, _fit_steps(step_seconds, minutes * 60, time.monotonic() - started))

    run.pretrain(find("quickstart"), out, adjust=adjust)
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
    """Add the result tables to the completed run `out` of a quickstart that was interrupted."""
    if document.read(out):
        return
    say = printer(stream)
    _write(out, {"tables": compare(out, say)})
    say(f"report: {write_report(out)}")


def _write(out: Path, results: dict[str, Any]) -> None:
    document.write(out / RESULTS, json.dumps(results, indent=2) + "\n")


def sized(recipe: Recipe, steps: int) -> Recipe:
    """Return `recipe` for `steps` steps, with six evaluations and three checkpoints."""
    every = max(1, steps // 6)
    return replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=steps)),
        evaluation=replace(recipe.evaluation, every=every),
        checkpoints=replace(recipe.checkpoints, every=2 * every),
    )


def _fit_steps(step_seconds: float, seconds: float, used: float) -> int:
    """Return the number of steps of `step_seconds` that fit into `seconds` after `used` of them;
    prints the expected time, and a note if it is longer."""
    fitting = int((seconds - used - OVERHEAD_SECONDS) / step_seconds)
    steps = max(FEWEST_STEPS, fitting)
    print(
        f"{steps:,} steps, in all about {duration(used + steps * step_seconds + OVERHEAD_SECONDS)}"
    )
    if fitting < steps:
        message = f"longer than the {duration(seconds)} asked for"
        why = f"with fewer than {FEWEST_STEPS} steps there is nothing to see"
        print(Finding("longer-than-asked", message, why).line())
    return steps


def _seconds_per_step(recipe: Recipe, prepared: PreparedCorpus) -> float:
    """Measure the seconds per step of `recipe` in a short trial run."""
    tokens = sum(store.num_tokens for store in prepared.train)
    cost = measure(recipe, TextSample(prepared, tokens, complete=True))
    chosen = machine.choose(recipe.training.precision, recipe.training.device)
    print(
        f"machine: {chosen.device}, {chosen.name} ({chosen.reason}), "
        f"{torch.get_num_threads()} threads; "
        f"{1 / cost.seconds_per_token:,.0f} tokens/s"
    )
    return cost.seconds
