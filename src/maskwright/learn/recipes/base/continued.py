"""The recipe of continued pretraining. No torch: the parts that follow from the model's folder (its
head, its objective) are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base import check
from maskwright.learn.recipes.base.find import override, read
from maskwright.learn.recipes.base.recipe import (
    Corpus,
    Folder,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    TokenizerFolder,
    Training,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Ramp, Schedule
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening.run_folder import RECIPE, is_run

# A low learning rate avoids forgetting: a share of a run's own rate; for other models a rate for a
# width of 768, and proportionally more for narrower models.
SHARE, RATE, WIDTH = 0.3, 1e-4, 768
LENGTH, BATCH = 128, 64
SCHEDULE = Schedule(kind="linear", warmup=0.1)


def of_run(folder: Path, minutes: float) -> Recipe:
    """Return the recipe that continues the pretraining of a run's model, on the embedded text
    unless another text is set later."""
    recipe_of_run = read(folder / RECIPE)
    rate = SHARE * recipe_of_run.training.optimizer.learning_rate
    training = replace(
        recipe_of_run.training,
        budget=Budget(minutes=minutes),
        phases=(),
        ramp=Ramp(),
        optimizer=replace(recipe_of_run.training.optimizer, learning_rate=rate),
        schedule=SCHEDULE,
    )
    further = replace(
        recipe_of_run,
        corpus=Corpus(),
        model=Folder(path=str(folder)),
        training=training,
        tokenizer=TokenizerFolder(path=str(folder)),
    )
    return replace(
        further, name=f"{recipe_of_run.name}-further", note=f"{recipe_of_run.note}, further"
    )


def of_model(
    model: Folder,
    minutes: float,
    *,
    name: str,
    note: str,
    objective: str,
    rate: float = RATE,
    length: int = LENGTH,
) -> Recipe:
    """Return the recipe that continues the pretraining of a model from another library."""
    return Recipe(
        name=name,
        note=note,
        tokenizer=TokenizerFolder(path=model.path),
        model=model,
        objective=ObjectiveChoice(name=objective, options={}),
        rows=RowChoice(length=length),
        training=Training(
            budget=Budget(minutes=minutes),
            batch=BATCH,
            optimizer=AdamW(learning_rate=rate),
            schedule=SCHEDULE,
        ),
    )


def require_settings(folder: Path, minutes: float, settings: Sequence[str]) -> None:
    """Check settings of a recipe for the model in `folder` before that is opened.

    Raises:
        UsageError, ConfigError, IncompatibleError: as `override` and `check.require_settings`.
    """
    if is_run(folder):
        check.require_settings(override(of_run(folder, minutes), settings))
        return
    usual = usual_for("encoder").name
    recipe = of_model(Folder(path=str(folder)), minutes, name="", note="", objective=usual)
    recipe = override(recipe, settings)
    # The objective, and so its options, depends on the model and is not known yet.
    check.require_settings(replace(recipe, objective=recipe.objective.with_options({})))
