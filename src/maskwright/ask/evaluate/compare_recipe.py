"""One recipe of a comparison: prepare its text, compute its budget, train its runs.

out/prepared/…            tokenizer and stores, shared by runs with equal text and settings
out/runs/NAME/seed-0/     complete run folders, as `pretrain` writes them
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from maskwright.base import config
from maskwright.base.budget import Budget
from maskwright.base.errors import IncompatibleError
from maskwright.base.report import document
from maskwright.base.storage import commit
from maskwright.base.terminal import Say
from maskwright.learn.pretrain import build, checkpoints, run
from maskwright.learn.pretrain.checkpoints import conventions_of
from maskwright.learn.pretrain.prepare import PreparedCorpus, keeps_text, prepare
from maskwright.learn.pretrain.rows import check_length
from maskwright.learn.pretrain.run import flops_per_token
from maskwright.learn.recipes.base.find import read
from maskwright.learn.recipes.base.recipe import Recipe, frozen_part
from maskwright.learn.train import loop
from maskwright.model.inference.likelihood import Reads, scoring_method
from maskwright.model.opening import folders
from maskwright.text.corpus.saved import is_run

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
