"""Models in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.base.report.document import EXPLORER_PORT
from maskwright.cli.options import add_device

SUMMARY = "see a model in the browser: masks, generation, attention, its tokenizer"
GROUP, ORDER = "analysis", 3
EXAMPLES = ("MODEL",)
USES = ("runs/mine", 'runs/mine runs/reviews --text "The court allowed it."')
OPTION_GROUP = "page"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        type=Path,
        exists="model",
        nargs="+",
        metavar="model",
        help="the folder of a model, or of a run, whose checkpoints are then all shown",
    )
    parser.add_argument(
        "--text", default=None, metavar="TEXT", help="the text that the pages begin with"
    )
    parser.add_argument(
        "--port",
        type=int,
        help=f"of the server on this machine, 0: one that is free (default: {EXPLORER_PORT}, or a "
        "free one if it is in use)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open no browser"
    )
    add_device(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.ship.explore.server import explore

    explore(a.models, port=a.port, text=a.text, browser=not a.no_browser)
