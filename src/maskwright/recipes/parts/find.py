"""A recipe by the name that a user gives: a built-in name, a TOML file, the folder of a run."""

from __future__ import annotations

from pathlib import Path

from maskwright import catalogue
from maskwright.errors import UsageError, near
from maskwright.models.run_folder import is_run
from maskwright.recipes.parts.recipe import Recipe
from maskwright.terminal import shell_word
from maskwright.toml import read_toml


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
    known = catalogue.names("recipes")
    if name not in known:
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
            wanted=near(name, known),
            do="maskwright list recipes",
        )
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
    """A recipe from a TOML file.

    Raises:
        UsageError: no such file.  ConfigError: not TOML, or not a recipe.
    """
    return read_toml(Recipe, path)
