"""A model in files that other programs load."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from maskwright.cli.options import add_base, add_fields, add_model

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
    from maskwright.ship.export.target import target, target_keywords

    target(a.to)  # refused before torch is imported
    from maskwright.ship.export.run import export_model

    values = {n: getattr(a, n) for n in target_keywords() if getattr(a, n) is not None}
    export_model(a.model, a.out, to=a.to, options=values, base=a.base)
