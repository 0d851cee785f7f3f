"""From a recipe to a pretrained model."""

from __future__ import annotations

import argparse

from maskwright.cli.options import (
    SHORTER_ROWS,
    add_out,
    add_settings,
    add_short_settings,
    add_text,
    next_run_folder,
    print_model,
    require_texts,
)

SUMMARY = "pretrain a model from a recipe"
GROUP, ORDER = "pretraining", 1
EXAMPLES = ("RECIPE --text FILE",)
RECORDS_THREADS = True
READING_OPTION = "--set corpus."
LESS_MEMORY = SHORTER_ROWS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="a built-in recipe, a .toml file, or the folder of a run")
    add_text(parser)
    add_short_settings(parser)
    add_settings(parser)
    add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.learn.recipes.base.check import require_settings
    from maskwright.learn.recipes.base.find import find, override, run_of, with_text

    recipe = find(a.recipe)
    recipe = override(with_text(recipe, a.text) if a.text else recipe, a.settings)
    require_settings(recipe)
    require_texts(a.text)
    from maskwright.ask import closing

    out = a.out or next_run_folder(recipe.name)
    print_model(closing.pretrain(recipe, out, origin=run_of(a.recipe)), out)
