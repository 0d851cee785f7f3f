"""Lists of recipes, objectives, families and other choices."""

from __future__ import annotations

import argparse

from maskwright.errors import UsageError, near

ROOMS = ("families", "objectives", "adapters", "recipes")
SUMMARY = "list families, objectives, adapters and recipes"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "room", nargs="?", help="only one of these: families, objectives, adapters or recipes"
    )


def do(a: argparse.Namespace) -> None:
    from maskwright import catalogue

    if a.room is not None and a.room not in ROOMS:
        raise UsageError(
            "there is no such list",
            found=repr(a.room),
            wanted=near(a.room, ROOMS),
            do="maskwright list",
        )
    for room in (a.room,) if a.room else ROOMS:
        print(f"{room}: {', '.join(catalogue.names(room))}")
