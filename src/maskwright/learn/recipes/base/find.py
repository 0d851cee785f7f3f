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
    """Return `recipe` for the user's files; a limit on the embedded corpus does not apply to them.

    Raises:
        ConfigError: the recipe has weights for another number of texts.
    """
    limit = recipe.corpus.limit_bytes if recipe.corpus.text else None
    return replace(
        recipe, corpus=replace(recipe.corpus, text=tuple(listed(paths)), limit_bytes=limit)
    )


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Return `recipe` with `settings` changed, texts of the form `path=value`. They are checked
    after all are set.

    A setting inside `model.settings` or `objective.options` may be new, at any depth; its name is
    checked later. All others must exist. A budget in another unit, or a complete one
    (`training.budget=10min`), replaces the recipe's; another optimizer kind has its default
    settings, except for the learning rate. `model.folder=PATH` and `tokenizer.folder=PATH` replace
    the model or tokenizer of the recipe by that in the folder; the architecture of a family's model
    is kept.
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
            budget = values.setdefault(BUDGET[:-1], {})  # two units are an error of `Budget`
            budget[path.removeprefix(BUDGET)] = dotted.parse_value(text)
        elif path == BUDGET[:-1] and not text.startswith("{"):
            values[path] = config.to_plain(Budget.parse(text, where=path))
        elif path in FOLDERS:
            values |= _from_folder(recipe, path.split(".")[0], text)
        else:
            values[path] = dotted.parse_value(text)
    return dotted.replace_at(recipe, values)


def _require_under_options(chosen: ObjectiveChoice, path: str, text: str) -> None:
    """Check that `path` is not `objective.rate` instead of `objective.options.rate`.

    Raises:
        ConfigError: with the correct path.
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
    """Return the plain value of `table` for the model or tokenizer in the folder `path`."""
    choice: Folder | TokenizerFolder = TokenizerFolder(path=path)
    if table == "model":
        model = recipe.model
        architecture = model.architecture if isinstance(model, FamilyModel) else None
        choice = Folder(path=path, architecture=architecture)
    return {table: {"type": type(choice).__name__, **config.to_plain(choice)}}


def find(name: str) -> Recipe:
    """Load a recipe by built-in name, TOML file, or run folder.

    Raises:
        UsageError: `name` is none of these; the message has similar names.
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
    """Return the folder of the run whose recipe `find(name)` loads; None if it is no run's."""
    path = Path(name)
    if is_run(path):
        return path
    return path.parent if path.name == "recipe.toml" and path.is_file() else None


def read(path: Path) -> Recipe:
    """Read a recipe from a TOML file; missing settings are those of the recipe that it `extends`.

    Raises:
        UsageError: the file, or the recipe that it extends, does not exist.
        ConfigError: the file is no TOML or no recipe, or extends itself.
    """
    return _read(path, ())


def _read(path: Path, extensions: tuple[Path, ...]) -> Recipe:
    """`read`, where `extensions` are the files that lead to `path` by `extends`."""
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
    """Merge the tables of `changes` into those of `inherited`."""
    merged = dict(inherited)
    for name, change in changes.items():
        before = inherited.get(name)
        if isinstance(before, dict) and isinstance(change, dict):
            choices = [key for key in CHOICES.get(name, ()) if key in change]
            if all(change[key] == before.get(key) for key in choices):
                change = _extended(before, change)
        merged[name] = change
    return merged
