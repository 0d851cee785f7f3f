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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright import commit, config
from maskwright.compare.entrant import Entrant, Equal, Pace, enter, finished, run_folder, train
from maskwright.data.pack import PackedDocuments
from maskwright.errors import IncompatibleError, UsageError
from maskwright.evaluate import likelihood, minimal_pairs
from maskwright.evaluate.minimal_pairs import Paradigm, Result
from maskwright.objectives import masked
from maskwright.pretrain import build, checkpoints, journal, run, start
from maskwright.recipes.recipe import Recipe, frozen_part
from maskwright.report import comparison, document
from maskwright.report.comparison import Comparison, Contender, Measure
from maskwright.report.say import Say, printer
from maskwright.report.wording import count
from maskwright.use import grammar
from maskwright.use.ask import open_model

# What of the corpus decides the held-out text: files named for it, or a share of all.
NAMED = ("held_out_text", "form", "column", "on_bad")
UNEQUAL = 0.05  # how far apart the budgets may come out without a word
APART = ("training.seed", "training.budget")
LOSS = Measure("loss", "held-out loss")
OWN = Measure("loss", "own held-out loss", compares=False)
# Of replaced tokens the network beside the model is asked, which draws them.
GENERATOR = replace(LOSS, title="held-out loss of the generator")
BITS = Measure("bits_per_byte", "bits per byte")
# Folded capitals and unknown words cost nothing to predict: such figures are of different texts.
KEPT_BITS = replace(BITS, title="bits per byte of what its tokenizer keeps", compares=False)
MASKED = Measure("masked_loss", "masked loss (15 %)")
PAIRS = Measure("pairs", "minimal pairs", higher_is_better=True)


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
        UsageError: no recipe, two of one name, or no seed.  ConfigError: not a budget.
        IncompatibleError: other held-out texts, no figure that compares all recipes, or a run in
            `out` that is not the one asked for.
        OutputError: `out` holds something else.
        SystemExit: a signal stopped the run that was going on; the same call continues.
    """
    equal, say, out = Equal.parse(budget), printer(stream), Path(out)
    data = None if data is None else Path(data)
    _refuse_names(recipes, seeds)
    _refuse_other_text(recipes)
    recipes = [build.resolved(recipe) for recipe in recipes]
    commit.require_own(out, "prepared", "runs")
    commit.probe_writable(out)
    paradigms = None if data is None else minimal_pairs.read(data)
    entrants = [enter(recipe, out, equal, say) for recipe in recipes]
    if len(entrants) > 1 and not _differences(entrants):
        say("note: the recipes differ in nothing but their names")
    _refuse_other_documents(entrants)
    measures = _measures(entrants, pairs=data is not None)
    planned = {
        run_folder(out, entrant.recipe.name, seed): (seed, entrant)
        for seed in range(seeds)
        for entrant in entrants
    }
    todo = {folder: entrant for folder, (_, entrant) in planned.items() if not finished(folder)}
    pace = Pace()
    for number, (folder, (seed, entrant)) in enumerate(planned.items(), start=1):
        left = pace.left(list(todo.values())) if folder in todo else ""
        say(f"run {number} of {len(planned)}: {entrant.recipe.name}, seed {seed}{left}")
        try:
            train(entrant, seed, out, stream)
        except run.Stopped:
            say("the same command goes on with the comparison")
            raise
        pace.add(entrant, folder)
        todo.pop(folder, None)
        if data is not None and paradigms is not None:
            _judged(entrant, folder, data, paradigms, say)
    made = _collect(entrants, seeds, out, equal, measures, data, paradigms, say)
    said = comparison.for_terminal(made)
    document.write(out / "results.json", json.dumps(comparison.to_json(made), indent=2) + "\n")
    say(f"{said}\nreport: {comparison.write_report(out, made)}")
    return made


# ------------------------------------------------------------------------------ refusals
def _refuse_names(recipes: Sequence[Recipe], seeds: int) -> None:
    names = [r.name for r in recipes]
    if not names or seeds < 1:
        raise UsageError("nothing to compare", found=f"{len(names)} recipes, {seeds} seeds")
    for name in names:
        if names.count(name) > 1 or not name or name.startswith(".") or "/" in name:
            raise UsageError(
                "recipes are told apart by their names", where="name", found=", ".join(names),
                wanted="different names without a slash",
                do="maskwright show RECIPE --set name=OTHER --set … > other.toml",
            )  # fmt: skip


def _refuse_other_text(recipes: Sequence[Recipe]) -> None:
    def held_out(recipe: Recipe) -> dict[str, Any]:
        plain: dict[str, Any] = config.to_plain(recipe.corpus)
        # Of texts with weights each has its own share held out, whatever the weights are.
        plain["weights"] = "one for each text" if recipe.corpus.weights else "none"
        named = {k: plain[k] for k in NAMED}
        return named if recipe.corpus.held_out_text else {**named, **plain}

    for other in recipes[1:]:
        for path, ours, theirs in config.differences(
            held_out(recipes[0]), held_out(other), "corpus"
        ):
            raise IncompatibleError(
                "the recipes do not hold out the same text", where=path,
                found=f"{recipes[0].name}: {ours!r}, {other.name}: {theirs!r}",
                wanted="the same questions for all",
                do=f"give all the same: --text, --set {path}=…, or corpus.held_out_text",
            )  # fmt: skip


def _refuse_other_documents(entrants: Sequence[Entrant]) -> None:
    """The same settings over files that changed meanwhile are another text."""
    first = entrants[0].prepared.held_out.document_bytes
    for other in entrants[1:]:
        if not np.array_equal(first, other.prepared.held_out.document_bytes):
            raise IncompatibleError(
                "the recipes do not hold out the same text", where="corpus",
                found=f"other documents for {entrants[0].recipe.name} and {other.recipe.name}",
                do="start the comparison anew in another folder",
            )  # fmt: skip


def _measures(entrants: Sequence[Entrant], *, pairs: bool) -> list[Measure]:
    """The figures to show. At least one compares all entrants.

    Raises:
        IncompatibleError: none does; the fields that differ are named.
    """
    alike = len({e.questions for e in entrants}) == 1
    one_tokenizer = len({e.prepared.tokenizer.fingerprint for e in entrants}) == 1
    codes, fills = ([getattr(e, name) for e in entrants] for name in ("codes_text", "fills"))
    coding = [e for e in entrants if e.codes_text]
    same_bits = len({e.prepared.tokenizer.fingerprint for e in coding}) == 1
    same_bits = same_bits or all(e.keeps_text for e in coding)
    common = alike or pairs or (all(codes) and same_bits) or (one_tokenizer and all(fills))
    if not common:
        field = "tokenizer" if not one_tokenizer else "objective"
        one, other = next(
            (entrants[0], e) for e in entrants[1:] if e.questions != entrants[0].questions
        )
        plain = [config.to_plain(getattr(e.recipe, field)) for e in (one, other)]
        changes = config.differences(plain[0], plain[1], field)
        listed = "; ".join(f"{path}: {ours!r} and {theirs!r}" for path, ours, theirs in changes)
        raise IncompatibleError(
            "no figure says the same of all these recipes", where=field,
            found=listed or f"{one.recipe.name} and {other.recipe.name} learn from other text",
            wanted="one tokenizer and one objective, or causal models whose tokenizers keep all of "
            "the text (byte-bpe that folds no capitals), for bits per byte",
            do="score minimal pairs with all of them: --data FOLDER",
        )  # fmt: skip
    usual = LOSS if all(e.scores_itself for e in entrants) else GENERATOR
    shown = [usual if alike else OWN]
    shown += [BITS if same_bits else KEPT_BITS] if any(codes) and not alike else []
    shown += [MASKED] if any(fills) and one_tokenizer and not alike else []
    return shown + ([PAIRS] if pairs else [])


# ------------------------------------------------------------------------------ afterwards
def _collect(
    entrants: Sequence[Entrant],
    seeds: int,
    out: Path,
    equal: Equal,
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
            if BITS in measures and e.codes_text:
                made.final["bits_per_byte"] = _bits(e, folder)
            if MASKED in measures and e.fills:
                made.final["masked_loss"] = _masked_loss(e, folder, length)
            if data is not None and paradigms is not None:
                results.append(_judged(e, folder, data, paradigms, say))
                made.final["pairs"] = results[-1].mean
            runs.append(made)
        judged[e.recipe.name] = results
        contenders.append(Contender(e.recipe.name, e.recipe.note, e.parameters, e.questions, runs))
    notes = [*_by_items(judged), *_unequal(contenders, equal), *_left_out(entrants, out)]
    return Comparison(str(equal), contenders, measures, _differences(entrants), notes)


def _unequal(contenders: Sequence[Contender], equal: Equal) -> list[str]:
    """How far apart budgets came out, where that is more than a little: the last step passes
    them."""
    name = {"flops": "operations", "minutes": "seconds"}.get(equal.unit, equal.unit)
    spent = {c.name: float(np.mean([getattr(r, name) for r in c.runs])) for c in contenders}
    most, least = max(spent, key=spent.__getitem__), min(spent, key=spent.__getitem__)
    if spent[most] <= (1 + UNEQUAL) * spent[least]:
        return []
    far = f"{most} spent {count(spent[most])} {name} and {least} {count(spent[least])}"
    return [f"Not equal: {far}, as a run ends with the first step past its budget."]


def _left_out(entrants: Sequence[Entrant], out: Path) -> list[str]:
    """Whose runs lie there and are not compared this time."""
    here = {e.recipe.name for e in entrants}
    others = sorted(p.name for p in (out / "runs").iterdir() if p.is_dir() and p.name not in here)
    if not others:
        return []
    return [f"Not compared here, though their runs lie in the same folder: {', '.join(others)}."]


def _figures(entrant: Entrant, folder: Path, seed: int) -> comparison.Run:
    """What the run's own journal says."""
    lines = journal.read(folder)
    state, _ = checkpoints.read_state(checkpoints.newest(folder))
    evaluations = [r for r in lines if r["kind"] == "evaluation"]
    tokens = {r["step"]: r["tokens"] for r in lines if "tokens" in r}
    times = journal.read(folder, journal.TIMINGS)
    marks = [0, *(t["step"] for t in times)], [0.0, *(t["seconds"] for t in times)]
    each = entrant.operations_per_token
    curve = [
        {"tokens": tokens[r["step"]], "operations": tokens[r["step"]] * each,
         "seconds": float(np.interp(r["step"], *marks)), "loss": r["loss"]}
        for r in evaluations
    ]  # fmt: skip
    final = {"loss": evaluations[-1]["loss"]}
    if entrant.codes_text:
        final["bits_per_byte"] = evaluations[-1]["bits_per_byte"]
    peak = max((t.get("peak_memory", 0) for t in times), default=0)
    spent = (state.tokens, state.tokens * each, state.seconds, peak)
    return comparison.Run(seed, *spent, final, curve)


def _bits(entrant: Entrant, folder: Path) -> float:
    """Bits per byte of all the held-out text: of a part of it, rows of other lengths or of another
    tokenizer would ask other documents."""
    loaded, tokenizer = open_model(folder)
    objective = build.objective(entrant.recipe, loaded.model, tokenizer)
    checkpoints.take_others(objective, checkpoints.model_folder(folder))
    store = entrant.prepared.held_out
    source = build.held_out_rows(entrant.recipe, store)
    each = float(store.document_bytes.sum()) / max(1, store.num_tokens)
    found = likelihood.evaluate(objective, source, rows=len(source), bytes_per_token=each)
    assert found.bits_per_byte is not None
    return found.bits_per_byte


def _masked_loss(entrant: Entrant, folder: Path, length: int) -> float:
    """Loss at the usual 15 %, in rows that all entrants have room for."""
    loaded, tokenizer = open_model(folder)
    usual = masked.build(loaded.model, masked.Options(), build.vocabulary(tokenizer))
    rows = PackedDocuments(entrant.prepared.held_out, length)
    return likelihood.evaluate(usual, rows).loss


def _judged(
    entrant: Entrant, folder: Path, data: Path, paradigms: Sequence[Paradigm], say: Say
) -> Result:
    """The run's minimal pairs, scored now or before."""
    asked = start.sha256(checkpoints.model_folder(folder))
    found = grammar.load(
        grammar.figures_path(folder, entrant.how, "all", paradigms), paradigms, asked
    )
    if found is None:
        say(f"scoring minimal pairs, {entrant.how}")
        found = grammar.evaluate_pairs(folder, data, folder, how=entrant.how, say=lambda text: None)
        say(f"{found.mean:.2%} right")
    return found


def _by_items(judged: dict[str, list[Result]]) -> list[str]:
    """How sure the differences are over pairs (the verdicts speak of seeds)."""
    means = {
        name: Result({p: np.mean([r.outcomes[p] for r in results], axis=0)
                      for p in results[0].outcomes})
        for name, results in judged.items() if results
    }  # fmt: skip
    notes, names = [], list(means)
    for name in names[1:]:
        gap, interval = minimal_pairs.difference(means[name], means[names[0]])
        if interval is not None:
            notes.append(
                f"Minimal pairs resampled, paired: {name} minus {names[0]} {gap:.4f} "
                f"(95 % {interval[0]:.4f} to {interval[1]:.4f})."
            )
    return notes


def _differences(entrants: Sequence[Entrant]) -> list[list[str]]:
    """A row for each setting that is not the same in all recipes."""
    plain = [frozen_part(e.recipe) for e in entrants]
    paths = dict.fromkeys(
        path
        for other in plain[1:]
        for path, _, _ in config.differences(plain[0], other)
        if not path.startswith(APART)
    )
    return [[path, *(_at(each, path) for each in plain)] for path in paths]


def _at(plain: Any, path: str) -> str:
    """The value at a dotted path, a dash where there is none."""
    for name in path.split("."):
        if isinstance(plain, dict):
            plain = plain.get(name)
        elif isinstance(plain, list) and int(name) < len(plain):
            plain = plain[int(name)]
        else:
            return "–"
    return "–" if plain is None else str(plain)
