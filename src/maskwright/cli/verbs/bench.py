"""How fast a model answers on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli.options import add_base, require_existing

SUMMARY = "measure how fast a model answers here, also beside other engines"
GROUP, ORDER = "models", 1
EXAMPLES = ("MODEL --data FILE",)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the folder of a model, a run or a fine-tuning")
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="FILE",
        help="rows or texts to answer (default: texts are made up of the model's own tokens)",
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of measuring, for each side (default 10)"
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="measure ONNX Runtime and OpenVINO as well, where they are installed",
    )
    add_base(parser)
    parser.add_argument(
        "--out", type=Path, default=None, metavar="FILE.json", help="write every time taken to it"
    )


def do(a: argparse.Namespace) -> None:
    require_existing(a.model, "model", a.command)
    require_existing(a.data, "data")
    from maskwright.base.terminal import printer
    from maskwright.ship.bench.bench import bench

    bench(
        a.model,
        data=a.data,
        seconds=a.seconds,
        beside=a.peers,
        threads=a.threads,
        base=a.base,
        out=a.out,
        say=printer(None),
    )
