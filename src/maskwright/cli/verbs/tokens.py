"""The tokens of a text, and how well a tokenizer fits a text."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli.options import add_model, add_read, add_text

SUMMARY = "show the tokens of a text, and which are unknown"
GROUP, ORDER = "text", 4
EXAMPLES = ("MODEL TEXT",)
USES = ('runs/mine "The court allowed it."', "runs/mine --text my-documents/ --beside words")
READING_OPTION = "--read "


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "the folder of a model, a run or a tokenizer")
    parser.add_argument("passage", nargs="?", metavar="text", help="a text to show")
    parser.add_argument("pair", nargs="?", help="a second text, where a pair is read")
    add_text(parser)
    parser.add_argument(
        "--beside",
        type=Path,
        exists="model",
        metavar="FOLDER",
        help="another model or tokenizer, shown side by side on the same text",
    )
    add_read(parser)


def do(a: argparse.Namespace) -> None:
    folders = [folder for folder in (a.model, a.beside) if folder is not None]
    from maskwright.ask.analysis.tokens import show_tokens
    from maskwright.text.tables.reading_options import how_read

    read = how_read(a.read)
    read.require_only("reading")
    print(show_tokens(folders, a.passage, a.pair, texts=a.text, reading=read.reading))
