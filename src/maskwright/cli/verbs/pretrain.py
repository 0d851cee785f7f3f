"""From a recipe to a pretrained model."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from maskwright.base import catalogue
from maskwright.base.terminal import harmless_lines
from maskwright.cli import options

if TYPE_CHECKING:
    from maskwright.learn.recipes.base.recipe import Recipe

SUMMARY = "pretrain a model from a recipe"
GROUP, ORDER = "pretraining", 1
EXAMPLES = ("RECIPE --text FILE",)
USES = (
    "bert-mini --text my-documents/ --minutes 60",
    "mine.toml --text my-documents/ --lr 1e-3 --batch-size 64",
)
OPTION_GROUP = "training"
RECORDS_THREADS = True
READING_OPTION = "--set corpus."
LESS_MEMORY = options.SHORTER_ROWS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe",
        usual=partial(catalogue.names, "recipes"),
        help="a built-in recipe (maskwright list recipes), a .toml file, or the folder of a run",
    )
    options.add_text(parser)
    options.add_short_settings(parser)
    options.add_settings(parser)
    options.add_log(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="train nothing; show the files, and documents, tokens, steps, time, memory and disk",
    )
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.learn.recipes.base.find import (
        find,
        override,
        require_settings,
        run_of,
        with_text,
    )

    recipe = find(a.recipe)
    recipe = override(with_text(recipe, a.text) if a.text else recipe, a.settings)
    require_settings(recipe)
    if a.dry_run:
        _plan(recipe)
        return
    from maskwright.api import pretrain

    out = a.out or options.next_run_folder(recipe.name)
    options.print_model(pretrain(recipe, out, origin=run_of(a.recipe), log=a.log).path, out)


def _plan(recipe: Recipe) -> None:
    """Print what would be read, and what the run would cost."""
    from maskwright.api import plan
    from maskwright.text.corpus.files import find_all

    for source in find_all(recipe.corpus.text) if recipe.corpus.text else ():
        column = "" if source.format == "text" else f", column {recipe.corpus.column!r}"
        print(harmless_lines(f"{source.shown}: {source.format}{column}"))
    plan(recipe)
