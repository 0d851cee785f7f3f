"""Recipes against each other, under an equal budget."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from maskwright.base import catalogue
from maskwright.base.errors import UsageError
from maskwright.base.terminal import shell_word
from maskwright.cli import options

SUMMARY = "train recipes under an equal budget and compare them"
GROUP, ORDER = "pretraining", 4
EXAMPLES = ("RECIPE OTHER --budget minutes=10",)
USES = (
    "bert-mini mine.toml --text texts/ --budget minutes=10",
    "runs/mine runs/other",
)
OPTION_GROUP = "training"
RECORDS_THREADS = True
READING_OPTION = "--set corpus."
LESS_MEMORY = options.SHORTER_ROWS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="recipe",
        usual=partial(catalogue.names, "recipes"),
        help="as for pretrain; or runs or results that exist",
    )
    parser.add_argument(
        "--budget",
        help="of each run: tokens=5e6, minutes=10 or flops=1e15; without it nothing is trained, "
        "and what runs or results recorded is compared",
    )
    parser.add_argument("--seeds", type=int, default=None, help="runs of each recipe (default 3)")
    options.add_text(parser)
    parser.add_argument(
        "--data",
        type=Path,
        exists="data",
        metavar="DIR",
        help="minimal pairs such as BLiMP's: a folder with a .jsonl file for each paradigm",
    )
    options.add_settings(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    if a.budget is None:
        _compare_records(a)
        return
    from maskwright.base.budget import equal_budget
    from maskwright.learn.recipes.base.find import find, override, require_settings, with_text

    equal_budget(a.budget)
    named_recipes = [find(name) for name in a.recipes]
    recipes = [override(with_text(r, a.text) if a.text else r, a.settings) for r in named_recipes]
    for recipe in recipes:
        require_settings(recipe)
    from maskwright.ask.evaluate.compare import compare

    out = a.out or options.next_run_folder("comparison")
    with options.resumable(f"the same command with --out {shell_word(out)}"):
        compare(recipes, out, budget=a.budget, seeds=3 if a.seeds is None else a.seeds, data=a.data)


def _compare_records(a: argparse.Namespace) -> None:
    """Compare runs or results by what they recorded."""
    folders = [Path(name) for name in a.recipes]
    untrained = [str(folder) for folder in folders if not folder.is_dir()]
    if unused := [
        name for name in ("text", "data", "settings", "out", "seeds") if getattr(a, name)
    ]:
        untrained.append(f"--{'set' if unused[0] == 'settings' else unused[0]}")
    if untrained or len(folders) < 2:
        raise UsageError(
            "recipes are compared under a budget",
            where="--budget",
            found=f"none, and {untrained[0] if untrained else folders[0]}",
            wanted="a budget; or without one, two runs or results that exist",
            do=a.command,
        )
    from maskwright.base.report.records import compared

    options.print_columns(compared(folders))
