"""The attention of the heads of a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli import options

SUMMARY = "show what the attention heads of a model look at"
GROUP, ORDER = "analysis", 2
EXAMPLES = ("MODEL --sentence TEXT", "MODEL --text FILE", "MODEL --image FILE")
USES = (
    'runs/mine --sentence "she sat on the bank of the river"',
    "runs/mine --tree english.conllu --out runs/heads",
)
LESS_MEMORY = "less text, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    options.add_text(parser)
    parser.add_argument(
        "--sentence",
        metavar="TEXT",
        help="a text whose strongest head is named",
    )
    parser.add_argument(
        "--tree",
        type=Path,
        exists="text",
        metavar="FILE",
        help="a treebank in CoNLL-U format; heads are compared with its dependencies",
    )
    parser.add_argument(
        "--image",
        type=Path,
        metavar="FILE",
        help="an image, of a model that reads images; its attention is drawn over it",
    )
    options.add_device(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.ask.analysis.attention import attention

    options.note_busy(a.threads)

    attention(
        a.model,
        a.out or options.next_run_folder("attention"),
        text=a.text,
        sentence=a.sentence,
        tree=a.tree,
        image=a.image,
    )
