"""A recipe with settings replaced: by `--set path=value`, and by the user's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from maskwright import config, dotted
from maskwright.budget import Budget
from maskwright.corpus.files import Paths, listed
from maskwright.errors import ConfigError, shorten
from maskwright.recipes.parts.recipe import (
    FamilyModel,
    Folder,
    ObjectiveChoice,
    Recipe,
    TokenizerFolder,
)

BUDGET = "training.budget."
OPTIMIZER = "training.optimizer"
FOLDERS = ("model.folder", "tokenizer.folder")


def with_text(recipe: Recipe, paths: Paths) -> Recipe:
    """`recipe` on the user's own files; a limit on the embedded corpus does not apply to them.

    Raises:
        ConfigError: the recipe weighs another number of texts.
    """
    limit = recipe.corpus.limit_bytes if recipe.corpus.text else None
    return replace(
        recipe, corpus=replace(recipe.corpus, text=tuple(listed(paths)), limit_bytes=limit)
    )


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """`recipe` with each `path=value` applied (a text is one of them); all are in place before they
    are checked.

    A setting inside `model.settings` or `objective.options` may be new, to any depth; whether there
    is one of that name is asked when they are read. All others must exist. A budget given in
    another unit, or whole (`training.budget=10min`), takes the place of the one that is there, and
    an optimizer of another kind brings its own settings, all but the learning rate.
    `model.folder=PATH` and `tokenizer.folder=PATH` put what lies there in the place of what the
    recipe would make; of a family's model the architecture stays.
    """
    values: dict[str, Any] = {}
    given = dotted.assignments(settings, "for example --set training.batch=32")
    for path, text in given.items():
        _require_under_options(recipe.objective, path, text)
    for path, text in sorted(given.items(), key=lambda setting: setting[0] not in FOLDERS):
        if path == f"{OPTIMIZER}.kind" and text != recipe.training.optimizer.kind:
            rate = recipe.training.optimizer.learning_rate
            fresh = {OPTIMIZER: {"kind": text, "learning_rate": rate}}
            recipe = dotted.replace_at(recipe, fresh)
        elif path.startswith(BUDGET):
            budget = values.setdefault(BUDGET[:-1], {})  # of two, the budget itself refuses one
            budget[path.removeprefix(BUDGET)] = dotted.parse_value(text)
        elif path == BUDGET[:-1] and not text.startswith("{"):
            values[path] = config.to_plain(Budget.parse(text, where=path))
        elif path in FOLDERS:
            values |= _from_folder(recipe, path.split(".")[0], text)
        else:
            values[path] = dotted.parse_value(text)
    return dotted.replace_at(recipe, values)


def _require_under_options(chosen: ObjectiveChoice, path: str, text: str) -> None:
    """Refuse an option that is set as `objective.rate`, not `objective.options.rate`.

    Raises:
        ConfigError: naming the path at which it is set.
    """
    table, _, option = path.partition(".")
    names = {field.name for field in fields(chosen.member.options)} if table == "objective" else ()
    if option.partition(".")[0] in names:
        raise ConfigError(
            "options of the objective are set under objective.options",
            where=path,
            found=shorten(f"{path}={text}"),
            wanted="the path objective.options.…",
            do=f"--set objective.options.{shorten(option)}={shorten(text)}",
        )


def _from_folder(recipe: Recipe, table: str, path: str) -> dict[str, Any]:
    """The plain value of `table` that takes the model or tokenizer at `path`."""
    choice: Folder | TokenizerFolder = TokenizerFolder(path=path)
    if table == "model":
        model = recipe.model
        architecture = model.architecture if isinstance(model, FamilyModel) else None
        choice = Folder(path=path, architecture=architecture)
    return {table: {"type": type(choice).__name__, **config.to_plain(choice)}}
