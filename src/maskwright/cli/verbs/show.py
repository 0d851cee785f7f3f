"""What a recipe, a run or a model is."""

from __future__ import annotations

import argparse

from maskwright.cli.verbs.arguments import add_settings
from maskwright.terminal import harmless_lines

SUMMARY = "print a recipe as TOML, or describe a run or a model folder"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "thing", help="a built-in recipe, a .toml file, a run folder or a model folder"
    )
    add_settings(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.cli.show import show

    print(harmless_lines(show(a.thing, a.settings)))
