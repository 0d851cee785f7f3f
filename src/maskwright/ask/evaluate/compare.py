"""`compare(recipes, out, budget=…)`: recipes × seeds under an equal budget, and what came of it.

    out/
      prepared/…            tokenizer and stores, once for all runs that read the same text alike
      runs/NAME/seed-0/     whole runs, as `pretrain` leaves them
      results.json          figures by recipe and seed, verdicts
      report.html           written whenever all runs are there

Started again with the same `out`, finished runs are reused and a stopped one goes on; recipes and
seeds may be added. Everything is looked at before anything is trained: recipes that no common
figure compares are refused, and the field in which they differ is named.
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
from maskwright.ask.evaluate.compare_candidate import (
    Candidate,
    Pace,
    enter,
    finished,
    run_folder,
    train,
)
from maskwright.ask.evaluate.compare_report import CandidateReport, Comparison, Measure
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
from maskwright.model.inference import minimal_pairs
from maskwright.model.inference.minimal_pairs import PairEvaluation, Paradigm
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.text.store.pack import PackedDocuments

LOCK = "compare.lock"
UNEQUAL = 0.05  # how far apart the budgets may come out without a word
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
    """Train each of `recipes` with the seeds 0 … `seeds` - 1 and compare what they became.

    Args:
        budget: "tokens=5e6", "minutes=10" or "flops=1e15", for every single run.
        data: minimal pairs to score the finished models with; they compare any two models.

    Raises:
        UsageError: no recipe, two of one name or that are equal, or no seed.
        ConfigError: not a budget.
        IncompatibleError: other held-out texts, no figure that compares all recipes, or a run in
            `out` that is not the one asked for.
        OutputError: `out` holds something else.
        StoppedError: another process writes it.
        SystemExit: a signal stopped the run that was going on; the same call continues.
    """
    equal, say, out = equal_budget(budget), printer(stream), Path(out)
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
        return _compared(recipes, out, equal, seeds, data, stream, say)


def _compared(
    recipes: Sequence[Recipe],
    out: Path,
    equal: Budget,
    seeds: int,
    data: Path | None,
    stream: TextIO | None,
    say: Say,
) -> Comparison:
    """The same under the lock of `out`."""
    paradigms = None if data is None else minimal_pairs.read(data)
    entrants = [enter(recipe, out, equal, say) for recipe in recipes]
    comparable.refuse_other_documents(entrants)
    measures = comparable.measures(entrants, pairs=data is not None)
    planned = {
        run_folder(out, candidate.recipe.name, seed): (seed, candidate)
        for seed in range(seeds)
        for candidate in entrants
    }
    todo = {folder: candidate for folder, (_, candidate) in planned.items() if not finished(folder)}
    needed = (checkpoint_bytes(e.parameters, e.recipe, folder) for folder, e in todo.items())
    storage.require_space(out, sum(needed))
    seconds_left = Pace()
    for number, (folder, (seed, candidate)) in enumerate(planned.items(), start=1):
        left = seconds_left.left(list(todo.values())) if folder in todo else ""
        say(f"run {number} of {len(planned)}: {candidate.recipe.name}, seed {seed}{left}")
        train(candidate, seed, out, stream)
        seconds_left.add(candidate, folder)
        todo.pop(folder, None)
        if data is not None and paradigms is not None:
            _judged(candidate, folder, open_model(folder), data, paradigms, say)
    made = _collect(entrants, seeds, out, equal, measures, data, paradigms, say)
    summary = comparison.for_terminal(made)
    document.write(out / "results.json", json.dumps(comparison.to_json(made), indent=2) + "\n")
    say(f"{summary}\nreport: {comparison.write_report(out, made)}")
    return made


# ------------------------------------------------------------------------------ afterwards
def _collect(
    entrants: Sequence[Candidate],
    seeds: int,
    out: Path,
    equal: Budget,
    measures: Sequence[Measure],
    data: Path | None,
    paradigms: Sequence[Paradigm] | None,
    say: Say,
) -> Comparison:
    length = min(e.recipe.rows.length for e in entrants)
    contenders, judged = [], {}
    for e in entrants:
        runs, results = [], []
        for seed in range(seeds):
            folder = run_folder(out, e.recipe.name, seed)
            made = _figures(e, folder, seed)
            model = open_model(folder)
            if comparable.BITS in measures and e.is_language_model:
                made.final["bits_per_byte"] = _bits(e, model)
            if comparable.MASKED in measures and e.fills:
                made.final["masked_loss"] = _masked_loss(e, model, length)
            if comparable.HIDDEN in measures:
                made.final["hidden"] = _hidden(e, model, length)
            if data is not None and paradigms is not None:
                results.append(_judged(e, folder, model, data, paradigms, say))
                made.final["pairs"] = results[-1].mean
            runs.append(made)
        judged[e.recipe.name] = results
        contenders.append(
            CandidateReport(e.recipe.name, e.recipe.note, e.parameters, e.measure, runs)
        )
    found = [*_by_items(judged), *_unequal(contenders, equal), *_left_out(entrants, out)]
    plain, paths = comparable.differences([e.recipe for e in entrants])
    table = [[path, *(_at(each, path) for each in plain)] for path in paths]
    return Comparison(str(equal), contenders, measures, table, found)


def _unequal(contenders: Sequence[CandidateReport], equal: Budget) -> list[Finding]:
    """How far apart budgets came out, where that is more than a little: the last step passes
    them."""
    name = {"flops": "operations", "minutes": "seconds"}.get(equal.unit, equal.unit)
    spent = {c.name: float(np.mean([getattr(r, name) for r in c.runs])) for c in contenders}
    most, least = max(spent, key=spent.__getitem__), min(spent, key=spent.__getitem__)
    if spent[most] <= (1 + UNEQUAL) * spent[least]:
        return []
    far = f"{most} spent {count(spent[most])} {name} and {least} {count(spent[least])}"
    why = "a run ends with the first step past its budget"
    return [Finding("unequal-budgets", f"not equal: {far}", why)]


def _left_out(entrants: Sequence[Candidate], out: Path) -> list[Finding]:
    """Whose runs lie there and are not compared this time."""
    here = {e.recipe.name for e in entrants}
    others = sorted(p.name for p in (out / "runs").iterdir() if p.is_dir() and p.name not in here)
    if not others:
        return []
    what = f"not compared here, though their runs lie in the same folder: {', '.join(others)}"
    return [Finding("other-runs-in-folder", what)]


def _figures(candidate: Candidate, folder: Path, seed: int) -> comparison.Run:
    """What the run's own journal says."""
    newest = folders.newest(folder)
    state, _ = checkpoints.read_state(newest)
    saved = commit.read_manifest(newest).about.get("journal")
    lines = journal.figures(folder, saved, bits=candidate.is_language_model)
    evaluations = [r for r in lines if r["kind"] == "evaluation"]
    tokens = {r["step"]: r["tokens"] for r in lines if "tokens" in r}
    times = journal.times(folder)
    marks = [0, *(t["step"] for t in times)], [0.0, *(t["seconds"] for t in times)]
    each = candidate.flops_per_token
    curve = [
        {
            "tokens": tokens[r["step"]],
            "operations": tokens[r["step"]] * each,
            "seconds": float(np.interp(r["step"], *marks)),
            "loss": r["loss"],
        }
        for r in evaluations
    ]
    final = {"loss": evaluations[-1]["loss"]}
    if candidate.is_language_model:
        final["bits_per_byte"] = evaluations[-1]["bits_per_byte"]
    peaks = [figure_of(t, "peak_memory") for t in times]
    peak = int(max((each for each in peaks if math.isfinite(each)), default=0))
    spent = (state.tokens, state.tokens * each, state.seconds, peak)
    return comparison.Run(seed, *spent, final, curve)


def _bits(candidate: Candidate, model: Model) -> float:
    """Bits per byte of all the held-out text: of a part of it, rows of other lengths or of another
    tokenizer would ask other documents."""
    objective = build.objective(candidate.recipe, model.network, model.tokenizer)
    checkpoints.take_others(objective, model.path)
    store = candidate.prepared.held_out
    source = held_out_rows(candidate.recipe, store)
    each = float(store.document_bytes.sum()) / max(1, store.num_tokens)
    found = likelihood.evaluate(objective, source, rows=len(source), bytes_per_token=each)
    assert found.bits_per_byte is not None
    return found.bits_per_byte


def _masked_loss(candidate: Candidate, model: Model, length: int) -> float:
    """Loss at the usual 15 %, in rows that all entrants have room for."""
    known = special_tokens.vocabulary(model.tokenizer)
    usual = usual_for("encoder")
    objective = usual.build(model.network, usual.options(), known)
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return likelihood.evaluate(objective, rows).loss


def _hidden(candidate: Candidate, model: Model, length: int) -> float:
    """Share of hidden tokens that are named, in rows that all entrants have room for."""
    assert candidate.reads is not None and model.tokenizer.mask is not None
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return pseudo_likelihood.top1(model.network, rows, candidate.reads, model.tokenizer.mask)


def _judged(
    candidate: Candidate,
    folder: Path,
    model: Model,
    data: Path,
    paradigms: Sequence[Paradigm],
    say: Say,
) -> PairEvaluation:
    """The run's minimal pairs, scored now or before."""
    path = pairs_of.figures_path(folder, candidate.how, "all", paradigms)
    found = pairs_of.load(path, paradigms, model.fingerprint)
    if found is None:
        say(f"scoring minimal pairs, {candidate.how}")
        found = pairs_of.evaluate_pairs(
            model, data, folder, how=candidate.how, say=lambda text: None
        )
        say(f"{found.mean:.2%} right")
    return found


def _by_items(judged: dict[str, list[PairEvaluation]]) -> list[Finding]:
    """How sure the differences are over pairs (the verdicts speak of seeds)."""
    means = {
        name: PairEvaluation(
            {p: np.mean([r.outcomes[p] for r in results], axis=0) for p in results[0].outcomes}
        )
        for name, results in judged.items()
        if results
    }
    findings, names = [], list(means)
    for name in names[1:]:
        gap, interval = minimal_pairs.difference(means[name], means[names[0]])
        summary = "no interval: a single pair, or all came out alike"
        if interval is not None:
            summary = f"95 % {interval[0]:.4f} to {interval[1]:.4f}"
        what = f"minimal pairs resampled, paired: {name} minus {names[0]} {gap:.4f} ({summary})"
        findings.append(Finding("pairs-resampled", what))
    return findings


def _at(plain: Any, path: str) -> str:
    """The value at a dotted path, a dash where there is none."""
    for name in path.split("."):
        if isinstance(plain, dict):
            plain = plain.get(name)
        elif isinstance(plain, list) and int(name) < len(plain):
            plain = plain[int(name)]
        else:
            return "–"
    # A whole stack, where only one of the recipes has one, is no value to read in a table.
    return "–" if plain is None else shorten(str(plain), LONGEST_VALUE)
