"""The honest part of the first run: the model beside what needs no pretraining.

Three tables: held-out text against the unigram line and a random encoder, a few filled masks, and
the labelled task. Each is printed and kept for the report.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maskwright.inference import held_out_loss as likelihood
from maskwright.inference.fill_mask import fill
from maskwright.models.open import open_weights
from maskwright.nn.transformer import Transformer
from maskwright.pretrain import build, run
from maskwright.pretrain.prepare import Prepared, prepare
from maskwright.pretrain.rows import held_out_rows, training_rows
from maskwright.quickstart import task
from maskwright.recipes.parts.find import read
from maskwright.recipes.parts.recipe import Recipe
from maskwright.report.say import Say
from maskwright.report.tables import Table, for_terminal

SENTENCES = (
    "Return the number of [MASK] in the list.",
    "The default [MASK] is None.",
    "This method should be [MASK] by subclasses.",
    "Raise an [MASK] if the file does not exist.",
)


def compare(out: Path, say: Say) -> list[Table]:
    """The three tables of the run in `out`, each told to `say` as soon as it is there."""
    recipe = read(out / run.RECIPE)
    prepared = prepare(recipe, out, lambda text: None)
    model = open_weights(out).network
    tables = []
    for make in (_held_out, _filled, _task):
        tables.append(make(recipe, prepared, model))
        say(f"\n{for_terminal(tables[-1])}")
    return tables


def _held_out(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
    """Loss and accuracy at the usual mask rate, so that figures compare with others'."""
    usual = replace(recipe, objective=replace(recipe.objective, options={"rate": 0.15}))
    source = held_out_rows(recipe, prepared.held_out)
    train = training_rows(recipe, prepared.train)
    rows, batch = recipe.evaluation.rows, recipe.evaluation.batch
    other = replace(recipe, training=replace(recipe.training, seed=recipe.training.seed + 1))
    objectives = [
        build.objective(usual, network, prepared.tokenizer)
        for network in (model, build.model(other, model.config))
    ]
    own, random = (likelihood.evaluate(o, source, rows=rows, batch_rows=batch) for o in objectives)
    counts = likelihood.token_counts(prepared.train, recipe.corpus.weights)
    lines = likelihood.reference_lines(
        objectives[0], counts, train, source, rows=rows, batch_rows=batch
    )
    shown = [
        ("this model", own.loss, own.top1, own.top5),
        ("unigram line", lines.unigram_loss, lines.unigram_top1, lines.unigram_top5),
        ("random encoder", random.loss, random.top1, random.top5),
        ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
    ]
    return {
        "title": "Held-out text, 15 % masked",
        "own_first": True,
        "head": ["", "loss", "top-1", "top-5"],
        "rows": [[name, *(f"{v:.3f}" for v in values)] for name, *values in shown],
        "note": f"{own.targets:,} masked tokens; loss in nats. The unigram line is what guessing "
        "by frequency reaches: below it, the model reads the context.",
    }


def _filled(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
    found = fill(model, prepared.tokenizer, SENTENCES, top=4)
    return {
        "title": "Filled masks",
        "head": ["text", "likeliest"],
        "rows": [
            [text, "  ".join(f"{c.token} {c.probability:.0%}" for c in holes[0].candidates)]
            for text, holes in zip(SENTENCES, found, strict=True)
        ],
        "note": "The four sentences are fixed; they were not chosen for their answers.",
    }


def _task(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
    chosen = task.load(prepared.tokenizer, recipe.rows.length)
    scores = task.compare(chosen, model, prepared.tokenizer)
    return {
        "title": "Which exception carries this message?",
        "head": ["", "accuracy", "macro-F1", "seeds"],
        "rows": [[name, *score.cells()] for name, score in scores.items()],
        "note": f"{len(chosen.train):,} messages to learn from, {len(chosen.test):,} to answer, "
        f"from other files; {len(chosen.names)} classes; {chosen.truncated} messages cut to "
        f"{recipe.rows.length} tokens. ± is the standard deviation over seeds.",
    }
