"""`compare(recipes, out, budget=…)`: train recipes × seeds under an equal budget, and compare them.

    out/
      prepared/…            tokenizer and stores, shared by runs with equal text and settings
      runs/NAME/seed-0/     complete run folders, as `pretrain` writes them
      results.json          metrics by recipe and seed, verdicts
      report.html           written when all runs are complete

Another call with the same `out` reuses finished runs and resumes a stopped one; recipes and seeds
may be added. Before training, recipes that have no common metric are rejected with an error that
names the field in which they differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.ask.evaluate import compare_checks as comparable
from maskwright.ask.evaluate import compare_report as comparison
from maskwright.ask.evaluate import minimal_pairs as pairs_of
from maskwright.ask.evaluate import pair_outcomes
from maskwright.ask.evaluate.compare_recipe import (
    ComparedRecipe,
    TrainingSpeed,
    enter,
    finished,
    run_folder,
    train,
)
from maskwright.ask.evaluate.compare_report import Comparison, Metric, RecipeReport
from maskwright.ask.evaluate.pair_outcomes import PairEvaluation, Paradigm
from maskwright.base.budget import Budget, equal_budget
from maskwright.base.errors import shorten
from maskwright.base.findings import Finding
from maskwright.base.report import document
from maskwright.base.report.say import Say, printer
from maskwright.base.report.wording import count
from maskwright.base.report.wording import number as figure_of
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.learn.pretrain import build, checkpoints, journal
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.session import checkpoint_bytes
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.inference import likelihood as pseudo_likelihood
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.text.store.rows import PackedDocuments

LOCK = "compare.lock"
UNEQUAL = 0.05  # relative difference of spent budgets that is not reported
LONGEST_VALUE = 100  # characters of a setting in the table of differences


def compare(
    recipes: Sequence[Recipe],
    out: Path | str,
    *,
    budget: str,
    seeds: int = 3,
    data: Path | str | None = None,
    stream: TextIO | None = None,
) -> Comparison:
    """Train each recipe with the seeds 0 … `seeds` - 1 and compare the resulting models.

    Args:
        budget: "tokens=5e6", "minutes=10" or "flops=1e15", for each run.
        data: minimal pairs to score the trained models with; they compare any two models.

    Raises:
        UsageError: no recipe, two with equal names or settings, or no seed.
        ConfigError: the budget is malformed.
        IncompatibleError: held-out texts differ, the recipes have no common metric, or a run in
            `out` has other settings.
        OutputError: `out` has other content.
        StoppedError: another process is writing to `out`.
        SystemExit: a signal stopped the current run; the same call continues it.
    """
    run_budget, say, out = equal_budget(budget), printer(stream), Path(out)
    data = None if data is None else Path(data)
    comparable.refuse_names(recipes, seeds)
    recipes, same_text = comparable.same_characters(recipes)
    if same_text:
        say(same_text.line())
    comparable.refuse_other_text(recipes)
    recipes = [build.resolved(recipe) for recipe in recipes]
    comparable.refuse_equal(recipes)
    comparable.refuse_incomparable(recipes, pairs=data is not None)
    commit.require_own(out, "prepared", "runs")
    commit.probe_writable(out)
    with commit.Lock(out / LOCK):
        return _compared(recipes, out, run_budget, seeds, data, stream, say)


def _compared(
    recipes: Sequence[Recipe],
    out: Path,
    budget: Budget,
    seeds: int,
    data: Path | None,
    stream: TextIO | None,
    say: Say,
) -> Comparison:
    """Train and compare checked recipes; the caller holds the lock of `out`."""
    paradigms = None if data is None else pair_outcomes.read(data)
    entrants = [enter(recipe, out, budget, say) for recipe in recipes]
    comparable.refuse_other_documents(entrants)
    metrics = comparable.measures(entrants, pairs=data is not None)
    planned = {
        run_folder(out, candidate.recipe.name, seed): (seed, candidate)
        for seed in range(seeds)
        for candidate in entrants
    }
    pending = {folder: recipe for folder, (_, recipe) in planned.items() if not finished(folder)}
    needed = (checkpoint_bytes(e.parameters, e.recipe, folder) for folder, e in pending.items())
    storage.require_space(out, sum(needed))
    seconds_left = TrainingSpeed()
    for number, (folder, (seed, candidate)) in enumerate(planned.items(), start=1):
        time_left = seconds_left.left(list(pending.values())) if folder in pending else ""
        say(f"run {number} of {len(planned)}: {candidate.recipe.name}, seed {seed}{time_left}")
        train(candidate, seed, out, stream)
        seconds_left.add(candidate, folder)
        pending.pop(folder, None)
        if data is not None and paradigms is not None:
            _pair_evaluation(candidate, folder, open_model(folder), data, paradigms, say)
    outcome = _collect(entrants, seeds, out, budget, metrics, data, paradigms, say)
    summary = comparison.for_terminal(outcome)
    document.write(out / "results.json", json.dumps(comparison.to_json(outcome), indent=2) + "\n")
    say(f"{summary}\nreport: {comparison.write_report(out, outcome)}")
    return outcome


# ------------------------------------------------------------------------------ evaluation
def _collect(
    entrants: Sequence[ComparedRecipe],
    seeds: int,
    out: Path,
    budget: Budget,
    measures: Sequence[Metric],
    data: Path | None,
    paradigms: Sequence[Paradigm] | None,
    say: Say,
) -> Comparison:
    """Compute the metrics of all finished runs, and findings and differences of settings."""
    length = min(candidate.recipe.rows.length for candidate in entrants)
    contenders = []
    for candidate in entrants:
        runs = []
        for seed in range(seeds):
            folder = run_folder(out, candidate.recipe.name, seed)
            run = _run_metrics(candidate, folder, seed)
            model = open_model(folder)
            if comparable.BITS in measures and candidate.is_language_model:
                run.final["bits_per_byte"] = _bits(candidate, model)
            if comparable.MASKED in measures and candidate.fills:
                run.final["masked_loss"] = _masked_loss(candidate, model, length)
            if comparable.HIDDEN in measures:
                run.final["hidden"] = _masked_accuracy(candidate, model, length)
            if data is not None and paradigms is not None:
                scored = _pair_evaluation(candidate, folder, model, data, paradigms, say)
                run.final["pairs"] = scored.mean
            runs.append(run)
        recipe = candidate.recipe
        contenders.append(
            RecipeReport(recipe.name, recipe.note, candidate.parameters, candidate.measure, runs)
        )
    findings = _unequal_budgets(contenders, budget)
    findings += _unused_runs(entrants, out)
    plain, paths = comparable.differences([candidate.recipe for candidate in entrants])
    table = [[path, *(_at(settings, path) for settings in plain)] for path in paths]
    return Comparison(str(budget), contenders, measures, table, findings)


def _unequal_budgets(contenders: Sequence[RecipeReport], budget: Budget) -> list[Finding]:
    """A finding if the runs spent budgets that differ by more than `UNEQUAL`: the last step of a
    run exceeds its budget."""
    name = {"flops": "operations", "minutes": "seconds"}.get(budget.unit, budget.unit)
    spent = {c.name: float(np.mean([getattr(r, name) for r in c.runs])) for c in contenders}
    most, least = max(spent, key=spent.__getitem__), min(spent, key=spent.__getitem__)
    if spent[most] <= (1 + UNEQUAL) * spent[least]:
        return []
    message = f"{most} spent {count(spent[most])} {name} and {least} {count(spent[least])}"
    evidence = "a run ends with the first step past its budget"
    return [Finding("unequal-budgets", f"not equal: {message}", evidence)]


def _unused_runs(entrants: Sequence[ComparedRecipe], out: Path) -> list[Finding]:
    """A finding if `out` has runs of recipes that are not compared this time."""
    names = {path.name for path in (out / "runs").iterdir() if path.is_dir()}
    left_out = sorted(names - {candidate.recipe.name for candidate in entrants})
    if not left_out:
        return []
    message = f"not compared here, though their runs lie in the same folder: {', '.join(left_out)}"
    return [Finding("other-runs-in-folder", message)]


def _run_metrics(candidate: ComparedRecipe, folder: Path, seed: int) -> comparison.Run:
    """Read metrics, costs and the loss curve of a run from its journal and last checkpoint."""
    newest = folders.newest(folder)
    state, _ = checkpoints.read_state(newest)
    saved = commit.read_manifest(newest).about.get("journal")
    records = journal.figures(folder, saved, bits=candidate.is_language_model)
    evaluations = [r for r in records if r["kind"] == "evaluation"]
    tokens = {r["step"]: r["tokens"] for r in records if "tokens" in r}
    times = journal.times(folder)
    steps_and_seconds = [0, *(t["step"] for t in times)], [0.0, *(t["seconds"] for t in times)]
    per_token = candidate.flops_per_token
    curve = [
        {
            "tokens": tokens[r["step"]],
            "operations": tokens[r["step"]] * per_token,
            "seconds": float(np.interp(r["step"], *steps_and_seconds)),
            "loss": r["loss"],
        }
        for r in evaluations
    ]
    final = {"loss": evaluations[-1]["loss"]}
    if candidate.is_language_model:
        final["bits_per_byte"] = evaluations[-1]["bits_per_byte"]
    peaks = [figure_of(t, "peak_memory") for t in times]
    peak = int(max(filter(math.isfinite, peaks), default=0))
    costs = (state.tokens, state.tokens * per_token, state.seconds, peak)
    return comparison.Run(seed, *costs, final, curve)


def _bits(candidate: ComparedRecipe, model: Model) -> float:
    """Compute bits per byte on all of the held-out text, as samples of rows with another length or
    tokenizer would contain different documents."""
    objective = build.objective(candidate.recipe, model.network, model.tokenizer)
    checkpoints.take_others(objective, model.path)
    store = candidate.prepared.held_out
    source = held_out_rows(candidate.recipe, store)
    per_token = float(store.document_bytes.sum()) / max(1, store.num_tokens)
    figures = likelihood.evaluate(objective, source, rows=len(source), bytes_per_token=per_token)
    assert figures.bits_per_byte is not None
    return figures.bits_per_byte


def _masked_loss(candidate: ComparedRecipe, model: Model, length: int) -> float:
    """Compute the loss with 15 % of the tokens masked, in rows of a `length` common to all."""
    vocabulary = special_tokens.vocabulary(model.tokenizer)
    objective_module = usual_for("encoder")
    objective = objective_module.build(model.network, objective_module.options(), vocabulary)
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return likelihood.evaluate(objective, rows).loss


def _masked_accuracy(candidate: ComparedRecipe, model: Model, length: int) -> float:
    """Compute top-1 accuracy on single masked tokens, in rows of a `length` common to all."""
    assert candidate.reads is not None and model.tokenizer.mask is not None
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return pseudo_likelihood.top1(model.network, rows, candidate.reads, model.tokenizer.mask)


def _pair_evaluation(
    candidate: ComparedRecipe,
    folder: Path,
    model: Model,
    data: Path,
    paradigms: Sequence[Paradigm],
    say: Say,
) -> PairEvaluation:
    """Return the result of a run on minimal pairs, computed unless it is saved in `folder`."""
    path = pairs_of.figures_path(folder, candidate.scoring, "all", paradigms)
    result = pairs_of.load(path, paradigms, model.fingerprint)
    if result is None:
        say(f"scoring minimal pairs, {candidate.scoring}")
        result = pairs_of.evaluate_pairs(
            model, data, folder, how=candidate.scoring, say=lambda text: None
        )
        say(f"{result.mean:.2%} right")
    return result


def _at(plain: Any, path: str) -> str:
    """Return the value at a dotted path of nested settings as text; a dash if there is none."""
    for name in path.split("."):
        if isinstance(plain, dict):
            plain = plain.get(name)
        elif isinstance(plain, list) and int(name) < len(plain):
            plain = plain[int(name)]
        else:
            return "–"
    # A whole stack that only one recipe has would be too long for a table.
    return "–" if plain is None else shorten(str(plain), LONGEST_VALUE)
