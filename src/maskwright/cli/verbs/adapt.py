"""Continued pretraining of a model on other text."""

from __future__ import annotations

import argparse

from maskwright.base.errors import UsageError
from maskwright.cli import options

SUMMARY = "continue pretraining a model on other text"
GROUP, ORDER = "pretraining", 2
EXAMPLES = ("MODEL --text FILE",)
USES = (
    "runs/mine --text contracts/ --out runs/law",
    "bert-base-uncased --text notes.txt --minutes 30",
)
OPTION_GROUP = "training"
RECORDS_THREADS = True
READING_OPTION = "--set corpus."
LESS_MEMORY = options.SHORTER_ROWS


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    options.add_text(parser)
    parser.add_argument("--minutes", type=float, default=10.0, help="time in minutes (default 10)")
    options.add_short_settings(parser, without=("--minutes", "--steps"))
    options.add_settings(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    if not a.text:
        raise UsageError("no text to train on", where="--text", do=a.command)
    from maskwright.learn.recipes.base.find import require_continued_settings

    require_continued_settings(a.model, a.minutes, a.settings)
    from maskwright.learn.pretrain.continued_pretraining import adapt

    out = a.out or options.next_run_folder("adapted")
    options.print_model(adapt(a.model, a.text, out, minutes=a.minutes, settings=a.settings), out)
