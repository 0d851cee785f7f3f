"""A model in files that other programs load."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from maskwright.base.errors import UsageError, near
from maskwright.cli.options import add_base, add_fields, add_model, require_existing

SUMMARY = "write a model in a form that other programs load, and prove it by reading it again"
GROUP, ORDER = "models", 2
EXAMPLES = ("MODEL --to onnx --out FOLDER",)
USES = (
    "runs/reviews --to onnx --out reviews-onnx",
    "runs/mine --to safetensors-bf16 --out mine-bf16",
)
OPTION_GROUP = "target"


def arguments(parser: argparse.ArgumentParser) -> None:
    from maskwright.ship.export.target import target, targets

    add_model(parser, "the folder of a model, a run or a fine-tuning")
    parser.add_argument(
        "--to",
        required=True,
        usual=targets(),
        metavar="TARGET",
        help=f"one of {', '.join(targets())}",
    )
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="the folder to make")
    add_base(parser)
    added_options: set[str] = set()
    for name in targets():
        options = target(name).Options
        add_fields(parser, options, without=added_options)
        added_options |= {field.name for field in dataclasses.fields(options)}


def do(a: argparse.Namespace) -> None:
    from maskwright.ship.export.target import target, target_keywords, targets

    if a.to not in targets():
        raise UsageError(
            "there is no such target", where="--to", found=repr(a.to), wanted=near(a.to, targets())
        )
    require_existing(a.model, "model", a.command)
    target_options = {field.name for field in dataclasses.fields(target(a.to).Options)}
    option_values: dict[str, Any] = {
        n: getattr(a, n) for n in target_keywords() if getattr(a, n) is not None
    }
    if foreign_options := sorted(option_values.keys() - target_options):
        names = [f"--{name.replace('_', '-')}" for name in sorted(target_options)]
        raise UsageError(
            f"the target {a.to} has no such option",
            where=f"--{foreign_options[0].replace('_', '-')}",
            wanted=", ".join(names) or "no options",
            do="leave it out",
        )
    from maskwright.ship.export.run import export_model

    export_model(a.model, a.out, to=a.to, options=option_values, base=a.base)
