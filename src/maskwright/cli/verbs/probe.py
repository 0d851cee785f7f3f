"""What each layer of a model knows."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli import options
from maskwright.text.tables.reading_options import how_read

SUMMARY = "probe what each layer of a frozen model encodes"
GROUP, ORDER = "analysis", 1
EXAMPLES = ("MODEL --data FILE",)
USES = ("runs/mine --data tags.conll", "runs/mine --data senses.csv --word bank")
READING_OPTION = "--read "
LABELLED = True
LESS_MEMORY = "fewer --items, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    parser.add_argument(
        "--data",
        type=Path,
        exists="data",
        metavar="PATH",
        help="labelled texts or words, or pairs with a similarity (default: built-in sentences "
        'with two meanings of "bank")',
    )
    parser.add_argument(
        "--word",
        help="compare the meanings of this word; --data is then a csv with the columns text "
        "and label (the meaning)",
    )
    options.add_task(parser)
    options.add_columns(parser)
    options.add_read(parser)
    parser.add_argument(
        "--items", type=int, default=None, help="maximum number of words or texts (default 10000)"
    )
    options.add_device(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    columns, read = options.parse_columns(a), how_read(a.read)
    if a.task is not None:
        from maskwright.text.tables.shapes import shape_of

        shape_of(a.task)
    options.note_busy(a.threads)
    from maskwright.ask.analysis.probe import probe

    probe(
        a.model,
        a.out or options.next_run_folder("probe"),
        data=a.data,
        word=a.word,
        task=a.task,
        columns=columns,
        items=a.items,
        read=read,
    )
