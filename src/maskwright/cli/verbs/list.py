"""Lists of recipes, objectives, families and other choices."""

from __future__ import annotations

import argparse
import sys

from maskwright.base import catalogue, threads
from maskwright.base.terminal import counted
from maskwright.cli.options import print_columns
from maskwright.cli.parser import task_names

COSTS = ("recipes", "models")
KINDS = (
    *("families", "models", "objectives", "adapters", "methods", "tasks", "recipes"),
    *("steps", "targets", "dialects"),
)
# The open sets whose names on the command line are shorter.
SETS = {
    "methods": "finetune.methods",
    "steps": "curate.steps",
    "targets": "export.targets",
    "dialects": "serve.dialects",
}
HEAD = ("", "family", "objective", "size", "tok/s", "≈ time")
TIMES = {"recipes": "the recipe's budget", "models": "20 tokens for each parameter"}
SUMMARY = "list recipes and models with their cost here, and what else there is to choose from"
GROUP, ORDER = "models", 4
EXAMPLES = ("recipes",)
USES = ("", "recipes")
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        nargs="?",
        metavar="kind",
        choices=KINDS,
        help=f"one of {', '.join(KINDS)}, with descriptions (default: the names of all); recipes "
        "and models with the time that training takes on this machine",
    )


def do(a: argparse.Namespace) -> None:
    if a.kind == "steps":
        from maskwright.text.curate.recipe import step_lines

        print("\n".join(step_lines()))
    elif a.kind in COSTS:
        _print_costs(a.kind)
    elif a.kind is not None:
        print_columns([(name, _description(a.kind, name)) for name in _names(a.kind)])
    else:
        for kind in KINDS:
            if kind != "models":
                print(f"{kind}: {', '.join(_names(kind))}")
        print("more: maskwright list recipes, with their cost on this machine; … families, …")


def _names(kind: str) -> list[str]:
    """Return the names of the members of a set: those of tasks are the names of their shapes."""
    return task_names() if kind == "tasks" else catalogue.names(SETS.get(kind, kind))


def _description(kind: str, name: str) -> str:
    if kind != "tasks":
        return catalogue.description(SETS.get(kind, kind), name)
    from maskwright.text.tables.shapes import shape_of

    return f"metrics: {', '.join(shape_of(name).metrics)}"


def _print_costs(kind: str) -> None:
    threads.prepare()
    from maskwright.learn.pretrain.cost import table

    print("measuring how fast this machine trains", file=sys.stderr)
    rows = [HEAD]
    for name, family, objective, parameters, speed, seconds in table(kind):
        size = f"{parameters / 1e6:,.1f}"[:6].rstrip(".") + " M" if parameters else "-"
        rate = f"{float(f'{speed:.2g}'):,.3g}" if speed < 100 else f"{speed:,.0f}"
        rows.append((name, family, objective, size, rate, _about(seconds)))
    print_columns(rows)
    print(
        f"A rough estimate of training for {TIMES[kind]}, from two seconds of a small\n"
        "model next to whatever else runs now. Large models use a processor better: their times\n"
        "are upper limits."
    )


def _about(seconds: float) -> str:
    """Return a rough duration, such as `200 days`."""
    for unit, size in (("year", 31_557_600), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return counted(int(float(f"{seconds / size:.2g}")), unit)
    return "1 minute" if seconds else "-"
