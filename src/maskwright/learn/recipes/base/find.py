"""A recipe by the name that a user gives: a built-in name, a TOML file, the folder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskwright.base import catalogue, config, dotted
from maskwright.base.budget import UNITS, Budget
from maskwright.base.errors import ConfigError, UsageError, near, shorten
from maskwright.base.terminal import shell_word
from maskwright.base.toml import from_table, read_table
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Folder,
    ObjectiveChoice,
    Recipe,
    TokenizerFolder,
)
from maskwright.model.opening.run_folder import is_run
from maskwright.text.corpus.files import Paths, listed

BUDGET = "training.budget."
OPTIMIZER = "training.optimizer"
BUILT_IN = Path(__file__).parents[1]
# Table -> the settings of which another value than the inherited one makes the table begin anew.
CHOICES = {
    "tokenizer": ("type", "kind"),
    "model": ("type", "family", "config"),
    "objective": ("name",),
    "budget": UNITS,
    "optimizer": ("kind",),
}
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
    assignments = dotted.assignments(settings, "for example --set training.batch=32")
    for path, text in assignments.items():
        _require_under_options(recipe.objective, path, text)
    for path, text in sorted(assignments.items(), key=lambda setting: setting[0] not in FOLDERS):
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


def find(name: str) -> Recipe:
    """A recipe by built-in name, by TOML file, or by run folder.

    Raises:
        UsageError: none of these; the message has the near names.
        ConfigError: the file is not a recipe.
    """
    path = Path(name)
    if is_run(path):
        return read(path / "recipe.toml")
    if path.suffix == ".toml":
        return read(path)
    names = catalogue.names("recipes")
    if name not in names:
        if any((path / inside / "config.json").is_file() for inside in ("", "model")):
            raise UsageError(
                "a model, not a recipe",
                where=path,
                wanted="a built-in recipe, a .toml file or the folder of a run",
                do=f"train it further: maskwright adapt {shell_word(path)} --text FILE",
            )
        if path.exists():
            raise UsageError(
                "text, not a recipe",
                where=path,
                wanted="a built-in recipe, a .toml file or the folder of a run",
                do=f"name both: maskwright pretrain bert-mini --text {shell_word(path)}",
            )
        raise UsageError(
            "no recipe of that name",
            found=repr(name),
            wanted=near(name, names),
            do="maskwright list recipes",
        )
    built_in = BUILT_IN / f"{name}.toml"
    if built_in.is_file():
        return read(built_in)
    recipe = catalogue.load("recipes", name).recipe()
    assert isinstance(recipe, Recipe)
    return recipe


def run_of(name: str) -> Path | None:
    """The folder of the run whose recipe `find(name)` gives; None if it is not the recipe
    of a run."""
    path = Path(name)
    if is_run(path):
        return path
    return path.parent if path.name == "recipe.toml" and path.is_file() else None


def read(path: Path) -> Recipe:
    """A recipe from a TOML file; what the file leaves out is that of the recipe that it `extends`.

    Raises:
        UsageError: no such file, or no recipe that it could extend.
        ConfigError: not TOML, not a recipe, or one that extends itself.
    """
    return _read(path, ())


def _read(path: Path, extensions: tuple[Path, ...]) -> Recipe:
    """`read`, for a recipe that `extensions` extend."""
    plain = read_table(path)
    if "extends" not in plain:
        return from_table(Recipe, plain, path)
    name = plain.pop("extends")
    where = f"{path}, extends"
    if not isinstance(name, str):
        raise ConfigError("not the name of a recipe", where=where, found=repr(name))
    extensions = (*extensions, path.resolve())
    inherited = path.parent / name
    if inherited.suffix == ".toml":
        if inherited.resolve() in extensions:
            raise ConfigError("a recipe extends itself", where=where, found=repr(name))
        recipe = _read(inherited, extensions)
    else:
        recipe = find(str(inherited) if is_run(inherited) else name)
    return from_table(Recipe, _extended(config.to_plain(recipe), plain), path)


def _extended(inherited: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The tables of `inherited` with those of `changes` merged into them."""
    merged = dict(inherited)
    for name, change in changes.items():
        before = inherited.get(name)
        if isinstance(before, dict) and isinstance(change, dict):
            choices = [key for key in CHOICES.get(name, ()) if key in change]
            if all(change[key] == before.get(key) for key in choices):
                change = _extended(before, change)
        merged[name] = change
    return merged
