"""A first model from text that every installation has."""

from __future__ import annotations

import argparse

from maskwright.cli.options import add_out, next_run_folder

SUMMARY = "train a first model on the documentation of this Python installation"
GROUP, ORDER = "text", 1
USES = ("", "--minutes 10 --out runs/first")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=4.0, help="time in minutes (default 4)")
    add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.ask.quickstart import quickstart

    quickstart(a.out or next_run_folder("quickstart"), minutes=a.minutes)
