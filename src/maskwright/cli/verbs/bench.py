"""How fast a model answers on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli.options import add_base, add_device, add_engine, add_model
from maskwright.model.device.choices import require_engine

SUMMARY = "measure how fast a model answers on this machine"
GROUP, ORDER = "models", 1
EXAMPLES = ("MODEL --data FILE",)
USES = ("runs/reviews --data new.csv", "runs/reviews --engine onnxruntime --seconds 30")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "the folder of a model, a run or a fine-tuning")
    parser.add_argument(
        "--data",
        type=Path,
        exists="data",
        metavar="FILE",
        help="rows or texts to answer (default: texts are made up of the model's own tokens)",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring (default 10)")
    add_engine(parser)
    add_device(parser, precision=True)
    add_base(parser)
    parser.add_argument(
        "--out", type=Path, default=None, metavar="FILE.json", help="write every time taken to it"
    )


def do(a: argparse.Namespace) -> None:
    require_engine(a.engine, "--engine")
    from maskwright.base.terminal import printer
    from maskwright.ship.bench import bench

    bench(
        a.model,
        data=a.data,
        seconds=a.seconds,
        engine=a.engine,
        threads=a.threads,
        base=a.base,
        out=a.out,
        say=printer(None),
    )
