"""From a text, a time, memory and disk to a recipe; or what a recipe costs on a text."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from maskwright.base.errors import UsageError
from maskwright.cli import options

SUMMARY = "plan a pretraining: what can be trained in a time, or what a recipe costs"
GROUP, ORDER = "pretraining", 2
EXAMPLES = ("--text FILE --time 2h", "--text FILE --recipe bert-small")
READING_OPTION = "--set corpus."


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_text(parser)
    for option, metavar, help_text in (
        ("--time", "TIME", "time for the training, as 45min or 2h; without it --recipe as it is"),
        ("--memory", "SIZE", "at most so much memory, as 4GB"),
        ("--disk", "SIZE", "at most so much disk space, as 500MB"),
        (
            "--recipe",
            "RECIPE",
            "a name or a .toml file; with --time its family and objective (default: bert-mini)",
        ),
    ):
        parser.add_argument(option, metavar=metavar, help=help_text)
    parser.add_argument(
        "--write-recipe",
        type=Path,
        metavar="FILE",
        help="write the planned recipe to this new .toml file, for pretrain",
    )
    options.add_settings(parser)


def do(a: argparse.Namespace) -> None:
    if a.time is None and a.recipe is None:
        raise UsageError(
            "nothing to plan",
            found="neither --time nor --recipe",
            wanted="a time for the training, or a recipe to measure",
            do="for example --time 2h",
        )
    if a.write_recipe is not None and a.write_recipe.suffix != ".toml":
        raise UsageError(
            "not a recipe file",
            where="--write-recipe",
            found=a.write_recipe,
            wanted="NAME.toml",
        )
    memory, disk = _bytes(a.memory, "--memory"), _bytes(a.disk, "--disk")
    from maskwright.api import plan

    plan(
        a.recipe or "bert-mini",
        text=a.text,
        time=a.time,
        settings=a.settings,
        write_recipe=a.write_recipe,
        memory=memory,
        disk=disk,
    )


def _bytes(text: str | None, where: str) -> float:
    """Parse a size such as 4GB; infinite for None."""
    if text is None:
        return math.inf
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise UsageError("not a size", where=where, found=repr(text), wanted="4GB or 500MB")
    return float(match[1]) * 1000.0 ** " kmgt".index(match[2] or " ")
