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

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.ask.evaluate import compare_report as comparison
from maskwright.ask.evaluate import minimal_pairs
from maskwright.ask.evaluate.compare_report import Comparison, Metric, RecipeReport
from maskwright.base import config
from maskwright.base.budget import Budget, equal_budget
from maskwright.base.errors import ConfigError, Finding, IncompatibleError, UsageError, shorten
from maskwright.base.report import document
from maskwright.base.report.document import count
from maskwright.base.report.page import read_run
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.terminal import Say, printer, quiet
from maskwright.learn.pretrain import build, checkpoints, run
from maskwright.learn.pretrain.checkpoints import conventions_of
from maskwright.learn.pretrain.prepare import PreparedCorpus, keeps_text, prepare
from maskwright.learn.pretrain.rows import check_length, held_out_rows
from maskwright.learn.pretrain.run import flops_per_token
from maskwright.learn.pretrain.session import checkpoint_bytes
from maskwright.learn.recipes.base.find import config_of, read
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe, frozen_part
from maskwright.learn.train import loop
from maskwright.model.families.base.family import family
from maskwright.model.inference import held_out_loss, likelihood
from maskwright.model.inference.likelihood import Reads, scoring_method
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.corpus.saved import is_run
from maskwright.text.store.rows import PackedDocuments
from maskwright.text.tokenizer.training.train import TokenizerChoice

# ------------------------------------------------------------------------------ one recipe
EVALUATIONS = 10


@dataclass(frozen=True)
class ComparedRecipe:
    """A recipe with its budget, and the properties that determine which metrics apply.

    Attributes:
        folder: of its tokenizer and token stores.
        scoring: the method by which the model scores sentences.
        reads: the sides of a masked token that the model sees; None if tokens cannot be masked.
        fills: whether the model fills masks.
        scores_itself: whether the loss is that of the trained network, not of a generator.
    """

    recipe: Recipe
    prepared: PreparedCorpus
    folder: Path
    parameters: int
    flops_per_token: float
    scoring: str
    is_language_model: bool
    keeps_text: bool
    fills: bool
    reads: Reads | None
    scores_itself: bool

    @property
    def measure(self) -> str:
        """A hash that is equal for recipes whose held-out losses are comparable."""
        recipe, objective = self.recipe, self.recipe.objective
        about = (objective.name, objective.checked, recipe.rows, recipe.evaluation.rows)
        stores = [self.prepared.tokenizer.fingerprint, self.prepared.held_out.fingerprint]
        return config.fingerprint([config.to_plain(settings) for settings in about] + stores)


def enter(recipe: Recipe, out: Path, equal: Budget, say: Say) -> ComparedRecipe:
    """Prepare the text of `recipe`, convert the common budget `equal` to tokens, and describe what
    the model can be measured by."""
    about = [*map(config.to_plain, (recipe.corpus, recipe.tokenizer)), recipe.needs_sentences]
    about += [config.to_plain(recipe.subwords)] if recipe.subwords else []
    folder = out / "prepared" / config.fingerprint(about)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    prepared = prepare(recipe, folder, say)
    architecture = build.transformer_config(recipe, prepared.tokenizer)
    check_length(recipe, architecture)
    network = build.model(recipe, architecture)
    objective = build.objective(recipe, network, prepared.tokenizer)
    token_flops = flops_per_token(recipe, prepared, objective)
    budget, training, every = equal.in_tokens(token_flops), recipe.training, recipe.evaluation.every
    if budget.tokens is not None:
        every = max(1, budget.tokens // (training.batch * recipe.rows.length) // EVALUATIONS)
    scoring = scoring_method(network, conventions_of(recipe, len(network.config.stacks)))
    sides: dict[str, Reads] = {"masked": "both sides", "causal": "one side"}
    reads, has_mask = sides.get(scoring), prepared.tokenizer.mask is not None
    return ComparedRecipe(
        recipe=replace(
            recipe,
            training=replace(training, budget=budget, log_seconds=min(training.log_seconds, 1.0)),
            evaluation=replace(recipe.evaluation, every=every),
        ),
        prepared=prepared,
        folder=folder,
        parameters=network.num_parameters(),
        flops_per_token=token_flops,
        scoring=scoring,
        is_language_model=objective.is_language_model,
        keeps_text=keeps_text(prepared.tokenizer, prepared.held_out),
        reads=reads if len(architecture.stacks) == 1 and has_mask else None,
        fills=scoring == "masked" and has_mask,
        scores_itself=objective.scorer is objective.product,
    )


@dataclass
class TrainingSpeed:
    """Operations per second of the finished runs, to estimate the remaining time."""

    operations: float = 0.0
    seconds: float = 0.0

    def add(self, candidate: ComparedRecipe, folder: Path) -> None:
        """Add the finished run of `candidate` in `folder`."""
        state, _ = checkpoints.read_state(folders.newest(folder))
        self.operations += state.tokens * candidate.flops_per_token
        self.seconds += state.seconds

    def left(self, entrants: Sequence[ComparedRecipe]) -> str:
        """Return the estimated time to train these recipes as text; empty before the first run."""
        budgets = [(e.recipe.training.budget, e.flops_per_token) for e in entrants]
        seconds = sum(60.0 * b.minutes for b, _ in budgets if b.minutes is not None)
        operations = sum(per_token * b.tokens for b, per_token in budgets if b.tokens is not None)
        if operations and not self.operations:
            return ""
        seconds += operations * self.seconds / max(1.0, self.operations)
        runs = "this one" if len(entrants) == 1 else f"these {len(entrants)}"
        return f" · about {document.duration(seconds)} of training for {runs}"


def run_folder(out: Path, name: str, seed: int) -> Path:
    """Return the folder of the run of a recipe with a seed."""
    return out / "runs" / name / f"seed-{seed}"


def train(candidate: ComparedRecipe, seed: int, out: Path, stream: TextIO | None) -> None:
    """Start or resume a run, unless it is finished; raises an `IncompatibleError` if its folder has
    a run with other settings."""
    recipe = replace(candidate.recipe, training=replace(candidate.recipe.training, seed=seed))
    folder = run_folder(out, recipe.name, seed)
    if not is_run(folder):
        _lay_out(recipe, candidate.folder, folder)
    before = frozen_part(read(folder / run.RECIPE))
    for path, old, new in config.differences(before, frozen_part(recipe)):
        raise IncompatibleError(
            "another run lies where this one would",
            where=f"{folder}: {path}",
            found=repr(old),
            wanted=repr(new),
            do="choose another --out",
        )
    if not finished(folder):
        run.resume(folder, stream=stream)


def finished(folder: Path) -> bool:
    """Whether the run in `folder` is complete and has written its report."""
    if not (folder / "report.html").is_file() or not (folder / "checkpoints").is_dir():
        return False
    state, _ = checkpoints.read_state(folders.newest(folder))
    training = read(folder / run.RECIPE).training
    return loop.finished(training.budget, state, training.patience)


def _lay_out(recipe: Recipe, prepared: Path, folder: Path) -> None:
    """Write a run folder with its recipe and text, ready to be resumed, in one rename."""
    staged = folder.with_name(f".tmp-{folder.name}")
    if staged.exists():
        commit.remove_folder(staged)
    staged.mkdir(parents=True)
    document.write(staged / run.RECIPE, config.to_toml(recipe))
    for name in ("tokenizer", "data"):
        shutil.copytree(prepared / name, staged / name, copy_function=_link)
        for folder_path, _, _ in os.walk(staged / name, topdown=False):
            commit.DISK.fsync_folder(Path(folder_path))
    commit.DISK.fsync_folder(staged)
    commit.DISK.rename(staged, folder)
    commit.DISK.fsync_folder(folder.parent)


def _link(source: str, target: str) -> None:
    """Hard-link a file, which is never modified again, or copy it if links are not supported."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        commit.DISK.fsync_path(Path(target))


# ------------------------------------------------------------------------------ checks
# Corpus settings that determine the held-out text even if its files are named explicitly.
NAMED = ("held_out_text", "form", "column", "on_bad")
APART = ("training.seed", "training.budget")
KIND = ("kind", "lowercase")  # settings by which tokenizers are certain to differ
LOSS = Metric("loss", "held-out loss")
OWN = Metric("loss", "own held-out loss", compares=False)
# For replaced-token detection, the loss is that of the generator, which samples the replacements.
GENERATOR = replace(LOSS, title="held-out loss of the generator")
BITS = Metric("bits_per_byte", "bits per byte")
# Not comparable: lower-cased letters and unknown words cost nothing to predict.
KEPT_BITS = replace(BITS, title="bits per byte of what its tokenizer keeps", compares=False)
MASKED = Metric("masked_loss", "masked loss (15 %)")
# The metric that is shared by bidirectional and causal models.
HIDDEN = Metric("hidden", "hidden tokens named (15 %)", higher_is_better=True)
PAIRS = Metric("pairs", "minimal pairs", higher_is_better=True)


def refuse_names(recipes: Sequence[Recipe], seeds: int) -> None:
    """Raise a `UsageError` if there are no recipes or seeds, or names are invalid or not unique."""
    names = [r.name for r in recipes]
    if not names or seeds < 1:
        raise UsageError("nothing to compare", found=f"{len(names)} recipes, {seeds} seeds")
    for name in names:
        if names.count(name) > 1 or not name or name.startswith(".") or "/" in name:
            raise UsageError(
                "each recipe needs a name of its own",
                where="name",
                found=", ".join(names),
                wanted="different names without a slash",
                do="maskwright show RECIPE --set name=OTHER > other.toml",
            )


def refuse_equal(recipes: Sequence[Recipe]) -> None:
    """Raise a `UsageError` that names two recipes if their settings are equal."""
    for recipe, second in itertools.combinations(recipes, 2):
        if set(differences([recipe, second])[1]) <= {"model.size"}:  # its settings are compared
            raise UsageError(
                "two recipes are equal but for their names",
                where="recipes",
                found=f"{recipe.name} and {second.name}",
                wanted="a setting that differs, and not by being said where it is the default",
                do="leave one out, or change it: maskwright show RECIPE --set … > other.toml",
            )


def differences(recipes: Sequence[Recipe]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the recipes as plain values, and the paths of settings that differ. If all have the
    same objective or family, settings that a recipe omits are filled in with their defaults."""
    plain = [frozen_part(recipe) for recipe in recipes]
    families = {getattr(recipe.model, "family", None) for recipe in recipes}
    for recipe, values in zip(recipes, plain, strict=True):
        if len({recipe.objective.name for recipe in recipes}) == 1:
            values["objective"]["options"] |= config.to_plain(recipe.objective.checked)
        if len(families) == 1 and isinstance(recipe.model, FamilyModel):
            member = family(recipe.model.family)
            settings = member.read(config_of(recipe.model, {"vocab_size": 1 << 16}))
            values["model"]["settings"] |= {**settings, "architectures": None}
    paths = dict.fromkeys(
        path
        for compared in plain[1:]
        for path, _, _ in config.differences(plain[0], compared)
        if not path.startswith(APART)
    )
    return plain, list(paths)


def refuse_incomparable(recipes: Sequence[Recipe], *, pairs: bool) -> None:
    """Raise an `IncompatibleError`, before texts are prepared, where `measures` would do so later:
    for tokenizers of different kinds, if not all models have bits per byte."""
    if pairs or all(recipe.objective.spec.codes for recipe in recipes):
        return
    learned = [recipe for recipe in recipes if isinstance(recipe.tokenizer, TokenizerChoice)]
    for second in learned[1:]:
        if any(getattr(second.tokenizer, n) != getattr(learned[0].tokenizer, n) for n in KIND):
            raise _incomparable(learned[0], second, "tokenizer")


def same_characters(recipes: Sequence[Recipe]) -> tuple[list[Recipe], Finding | None]:
    """Let all recipes that split the text by character ranges hold out the range of the first one,
    unless another is trained on it. Returns the recipes, and a finding if any was changed."""
    reference, *contenders = recipes
    if reference.corpus.characters is None:
        return list(recipes), None
    reference_range, changed = reference.corpus.characters.held_out, list[str]()
    adjusted = [reference]
    for recipe in contenders:
        ranges = recipe.corpus.characters
        if ranges is not None and ranges.held_out != reference_range:
            begin, end = ranges.held_out
            changed.append(f"{recipe.name} holds out {begin:,} to {end:,} by itself")
            try:
                ranges = replace(ranges, held_out=reference_range)
            except ConfigError:  # they are trained on
                return list(recipes), None
            recipe = replace(recipe, corpus=replace(recipe.corpus, characters=ranges))
        adjusted.append(recipe)
    if not changed:
        return list(recipes), None
    begin, end = reference_range
    message = (
        f"all are asked about characters {begin:,} to {end:,}, as held out by {reference.name}"
    )
    return adjusted, Finding("held-out-alike", message, "; ".join(changed))


def refuse_other_text(recipes: Sequence[Recipe]) -> None:
    """Raise an `IncompatibleError` that names the first setting by which recipes hold out different
    text."""

    def held_out(recipe: Recipe) -> dict[str, Any]:
        plain: dict[str, Any] = config.to_plain(recipe.corpus)
        # With weights, a share of each text is held out, independent of the weights; mixing by a
        # column holds out the same as without.
        weights_by_text = recipe.corpus.mixed and recipe.corpus.mix_by is None
        plain["weights"] = "one for each text" if weights_by_text else "none"
        for name in ("weights_end", "mix_by", "temperature"):
            plain.pop(name)
        named_settings = {k: plain[k] for k in NAMED}
        return named_settings if recipe.corpus.held_out_text else {**named_settings, **plain}

    reference_texts = held_out(recipes[0])
    for second in recipes[1:]:
        for path, ours, theirs in config.differences(reference_texts, held_out(second), "corpus"):
            raise IncompatibleError(
                "the recipes do not hold out the same text",
                where=path,
                found=f"{recipes[0].name}: {ours!r}, {second.name}: {theirs!r}",
                wanted="the same questions for all",
                do=f"give all the same: --text, --set {path}=…, or corpus.held_out_text",
            )


def refuse_other_documents(entrants: Sequence[ComparedRecipe]) -> None:
    """Raise an `IncompatibleError` if held-out documents differ although the settings are equal, as
    the recipes have read different versions of the files."""
    document_bytes = entrants[0].prepared.held_out.document_bytes
    for candidate in entrants[1:]:
        if not np.array_equal(document_bytes, candidate.prepared.held_out.document_bytes):
            raise IncompatibleError(
                "the recipes do not hold out the same text",
                where="corpus",
                found=f"other documents for {entrants[0].recipe.name} and {candidate.recipe.name}",
                do="start the comparison anew in another folder",
            )


def measures(entrants: Sequence[ComparedRecipe], *, pairs: bool) -> list[Metric]:
    """Return the metrics to show, at least one of which compares all entrants.

    Raises:
        IncompatibleError: no metric compares all; the message names the fields that differ.
    """
    same_loss = len({e.measure for e in entrants}) == 1
    one_tokenizer = len({e.prepared.tokenizer.fingerprint for e in entrants}) == 1
    codes, fills = ([getattr(e, name) for e in entrants] for name in ("is_language_model", "fills"))
    coding = [e for e in entrants if e.is_language_model]
    same_bits = len({e.prepared.tokenizer.fingerprint for e in coding}) == 1
    same_bits = same_bits or all(e.keeps_text for e in coding)
    # The metric for bidirectional and causal models with one tokenizer.
    hidden_applies = one_tokenizer and all(e.reads is not None for e in entrants)
    hidden_applies = hidden_applies and len({e.reads for e in entrants}) > 1
    comparable = same_loss or pairs or hidden_applies
    comparable = comparable or (all(codes) and same_bits) or (one_tokenizer and all(fills))
    if not comparable:
        candidate = next(e for e in entrants[1:] if e.measure != entrants[0].measure)
        field = "tokenizer" if not one_tokenizer else "objective"
        raise _incomparable(entrants[0].recipe, candidate.recipe, field)
    loss_metric = LOSS if all(e.scores_itself for e in entrants) else GENERATOR
    metrics = [loss_metric if same_loss else OWN]
    metrics += [BITS if same_bits else KEPT_BITS] if any(codes) and not same_loss else []
    metrics += [MASKED] if any(fills) and one_tokenizer and not same_loss else []
    metrics += [HIDDEN] if hidden_applies else []
    return metrics + ([PAIRS] if pairs else [])


def _incomparable(recipe: Recipe, second: Recipe, field: str) -> IncompatibleError:
    """Return the error about two recipes without a common metric that differ in `field`."""
    changes = config.differences(getattr(recipe, field), getattr(second, field), field)
    listed = "; ".join(f"{path}: {ours!r} and {theirs!r}" for path, ours, theirs in changes)
    return IncompatibleError(
        "no figure says the same of all these recipes",
        where=field,
        found=listed or f"{recipe.name} and {second.name} learn from other text",
        wanted="one tokenizer and one objective; masked and causal models of one tokenizer "
        "that has a mask; or causal models whose tokenizers keep all of the text (byte-bpe "
        "that folds no capitals), for bits per byte",
        do="score minimal pairs with all of them: --data FOLDER",
    )


# ------------------------------------------------------------------------------ the comparison
LOCK = "compare.lock"
UNEQUAL = 0.05  # relative difference of spent budgets that is not reported
LONGEST_VALUE = 100  # characters of a setting in the table of differences
Score = Callable[[ComparedRecipe, Path, Model], minimal_pairs.PairEvaluation]  # by minimal pairs


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
    refuse_names(recipes, seeds)
    recipes, same_text = same_characters(recipes)
    if same_text:
        say(same_text.line())
    refuse_other_text(recipes)
    recipes = [build.resolved(recipe) for recipe in recipes]
    refuse_equal(recipes)
    refuse_incomparable(recipes, pairs=data is not None)
    commit.require_own(out, "prepared", "runs")
    commit.probe_writable(out)
    with commit.Lock(out / LOCK):
        score: Score | None = None
        if data is not None:
            score = partial(_pair_evaluation, data, minimal_pairs.read_paradigms(data), say)
        entrants = [enter(recipe, out, run_budget, say) for recipe in recipes]
        refuse_other_documents(entrants)
        metrics = measures(entrants, pairs=data is not None)
        planned = {
            run_folder(out, candidate.recipe.name, seed): (seed, candidate)
            for seed in range(seeds)
            for candidate in entrants
        }
        pending = {
            folder: recipe for folder, (_, recipe) in planned.items() if not finished(folder)
        }
        needed = (checkpoint_bytes(e.parameters, e.recipe, folder) for folder, e in pending.items())
        storage.require_space(out, sum(needed))
        training_speed = TrainingSpeed()
        for number, (folder, (seed, candidate)) in enumerate(planned.items(), start=1):
            time_left = training_speed.left(list(pending.values())) if folder in pending else ""
            say(f"run {number} of {len(planned)}: {candidate.recipe.name}, seed {seed}{time_left}")
            train(candidate, seed, out, stream)
            training_speed.add(candidate, folder)
            pending.pop(folder, None)
            if score is not None:
                score(candidate, folder, open_model(folder))
        outcome = _collect(entrants, seeds, out, run_budget, metrics, score)
        summary = comparison.for_terminal(outcome)
        document.write(
            out / "results.json", json.dumps(comparison.to_json(outcome), indent=2) + "\n"
        )
        page = document.write(out / comparison.NAME, comparison.render(outcome))
        say(f"{summary}\nreport: {page}")
        return outcome


# ------------------------------------------------------------------------------ evaluation
def _collect(
    entrants: Sequence[ComparedRecipe],
    seeds: int,
    out: Path,
    budget: Budget,
    measures: Sequence[Metric],
    score: Score | None,
) -> Comparison:
    """Compute the metrics of all finished runs, and findings and differences of settings."""
    length = min(candidate.recipe.rows.length for candidate in entrants)
    contenders = []
    for candidate in entrants:
        runs = []
        for seed in range(seeds):
            folder = run_folder(out, candidate.recipe.name, seed)
            run = _run_metrics(candidate, folder, seed)
            model = cache(partial(open_model, folder))  # only opened if a metric needs it
            if BITS in measures and candidate.is_language_model:
                run.final["bits_per_byte"] = _bits(candidate, model())
            if MASKED in measures and candidate.fills:
                run.final["masked_loss"] = _masked_loss(candidate, model(), length)
            if HIDDEN in measures:
                run.final["hidden"] = _masked_accuracy(candidate, model(), length)
            if score is not None:
                run.final["pairs"] = score(candidate, folder, model()).mean
            runs.append(run)
        recipe = candidate.recipe
        contenders.append(
            RecipeReport(recipe.name, recipe.note, candidate.parameters, candidate.measure, runs)
        )
    findings = _unequal_budgets(contenders, budget)
    plain, paths = differences([candidate.recipe for candidate in entrants])
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


def _run_metrics(candidate: ComparedRecipe, folder: Path, seed: int) -> comparison.Run:
    """Read metrics, costs and the loss curve of a run from its journal and last checkpoint."""
    newest = folders.newest(folder)
    state, _ = checkpoints.read_state(newest)
    saved = commit.read_manifest(newest).about.get("journal")
    records = checkpoints.figures(folder, saved, bits=candidate.is_language_model)
    evaluations = [r for r in records if r["kind"] == "evaluation"]
    tokens = {r["step"]: r["tokens"] for r in records if "tokens" in r}
    times = checkpoints.journal_times(folder)
    steps_and_seconds = [0, *(t["step"] for t in times)], [0.0, *(t["seconds"] for t in times)]
    per_token = candidate.flops_per_token
    curve = [
        {"tokens": tokens[r["step"]], "operations": tokens[r["step"]] * per_token}
        | {"seconds": float(np.interp(r["step"], *steps_and_seconds)), "loss": r["loss"]}
        for r in evaluations
    ]
    evaluation = read_run(folder).evaluation
    final = {"loss": evaluation["loss"]}
    if candidate.is_language_model:
        final["bits_per_byte"] = evaluation["bits_per_byte"]
    peaks = (document.number(t, "peak_memory") for t in times)
    peak = int(max(filter(math.isfinite, peaks), default=0))
    costs = (state.tokens, state.tokens * per_token, state.seconds, peak)
    return comparison.Run(seed, *costs, final, curve)


def _bits(candidate: ComparedRecipe, model: Model) -> float:
    """Compute bits per byte on all of the held-out text, as samples of rows with another length or
    tokenizer would contain different documents."""
    objective = build.objective(candidate.recipe, model.network, model.tokenizer)
    checkpoints.load_objective(objective, model.path)
    store = candidate.prepared.held_out
    source = held_out_rows(candidate.recipe, store)
    per_token = float(store.document_bytes.sum()) / max(1, store.num_tokens)
    figures = held_out_loss.evaluate(objective, source, rows=len(source), bytes_per_token=per_token)
    assert figures.bits_per_byte is not None
    return figures.bits_per_byte


def _masked_loss(candidate: ComparedRecipe, model: Model, length: int) -> float:
    """Compute the loss with 15 % of the tokens masked, in rows of a `length` common to all."""
    vocabulary = special_tokens.vocabulary(model.tokenizer)
    objective_module = usual_for("encoder")
    objective = objective_module.build(model.network, objective_module.options(), vocabulary)
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return held_out_loss.evaluate(objective, rows).loss


def _masked_accuracy(candidate: ComparedRecipe, model: Model, length: int) -> float:
    """Compute top-1 accuracy on single masked tokens, in rows of a `length` common to all."""
    assert candidate.reads is not None and model.tokenizer.mask is not None
    rows = PackedDocuments(candidate.prepared.held_out, length)
    return likelihood.top1(model.network, rows, candidate.reads, model.tokenizer.mask)


def _pair_evaluation(
    data: Path,
    paradigms: Sequence[minimal_pairs.Paradigm],
    say: Say,
    candidate: ComparedRecipe,
    folder: Path,
    model: Model,
) -> minimal_pairs.PairEvaluation:
    """Return the result of a run on minimal pairs, computed unless it is saved in `folder`."""
    path = minimal_pairs.figures_path(folder, candidate.scoring, "all", paradigms)
    result = minimal_pairs.load(path, paradigms, model.fingerprint)
    if result is None:
        say(f"scoring minimal pairs, {candidate.scoring}")
        result = minimal_pairs.evaluate_pairs(model, data, folder, how=candidate.scoring, say=quiet)
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
