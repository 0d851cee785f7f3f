"""Lists of recipes, objectives, families and other choices."""

from __future__ import annotations

import argparse

from maskwright.base.errors import UsageError, near

ROOMS = (
    *("families", "objectives", "adapters", "methods", "tasks", "recipes"),
    *("steps", "targets", "dialects"),
)
# The open sets whose names on the command line are shorter.
SETS = {
    "methods": "finetune.methods",
    "steps": "curate.steps",
    "targets": "export.targets",
    "dialects": "serve.dialects",
}
SUMMARY = "list families, objectives, adapters, methods, tasks, recipes, steps, targets, dialects"
GROUP, ORDER = "models", 4
EXAMPLES = ("recipes",)
USES = ("", "recipes")
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "room",
        nargs="?",
        help="only one of these: families, objectives, adapters, methods (of fine-tuning that are "
        "fitted), tasks, recipes, steps (of a curation, with their settings), targets (of an "
        "export) or dialects (of a server)",
    )


def do(a: argparse.Namespace) -> None:
    if a.room is not None and a.room not in ROOMS:
        raise UsageError(
            "there is no such list",
            found=repr(a.room),
            wanted=near(a.room, ROOMS),
            do="maskwright list",
        )
    if a.room == "steps":
        from maskwright.text.curate.recipe import step_lines

        print("\n".join(step_lines()))
        return
    for room in (a.room,) if a.room else ROOMS:
        print(f"{room}: {', '.join(_names(room))}")


def _names(room: str) -> list[str]:
    """Return the names of the members of a set: those of tasks are the names of their shapes."""
    from maskwright.base import catalogue
    from maskwright.text.tables.shapes import shapes

    if room == "tasks":
        return list(shapes())
    return catalogue.names(SETS.get(room, room))
