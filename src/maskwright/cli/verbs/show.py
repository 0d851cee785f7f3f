"""A recipe, a run or a model as text."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from maskwright.base import catalogue
from maskwright.base.errors import UsageError, near
from maskwright.base.terminal import harmless_lines
from maskwright.cli.options import add_settings
from maskwright.text.corpus.saved import is_run

SUMMARY = "print a recipe as TOML, or describe a run or a model folder"
GROUP, ORDER = "models", 3
EXAMPLES = ("RECIPE",)
USES = ("runs/reviews", "bert-mini --set training.batch=128")
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "thing",
        hub=True,
        usual=partial(catalogue.names, "recipes"),
        help="a built-in recipe, a .toml file, the folder of a run, a result or a model, or the "
        "name of a model on the hub",
    )
    add_settings(parser)


def do(a: argparse.Namespace) -> None:
    _require(a.thing, a.settings)
    from maskwright.cli.show import show

    print(harmless_lines(show(a.thing, a.settings)))


def _require(name_or_path: str, settings: list[str]) -> None:
    """Refuse a path that cannot be shown, and settings that the recipe does not have."""
    path = Path(name_or_path)
    if name_or_path not in catalogue.names("recipes") and path.suffix != ".toml":
        if not path.exists():
            beside = path.parent.iterdir() if path.parent.is_dir() else ()
            neighbours = [p.name for p in beside if p.is_dir() or p.suffix == ".toml"]
            raise UsageError(
                "no such recipe, run or model",
                found=repr(name_or_path),
                wanted=near(path.name, [*catalogue.names("recipes"), *neighbours]),
                do="maskwright list recipes",
            )
        if not is_run(path):
            return
    if settings:
        from maskwright.learn.recipes.base.find import find, override, require_settings

        require_settings(override(find(name_or_path), settings))
