"""Word vectors in word2vec's text format as a model folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli.options import note

SUMMARY = "make a model folder of word vectors in word2vec's text format"
GROUP, ORDER = "models", 5
EXAMPLES = ("FILE --out FOLDER",)
USES = ("vectors.txt --out vectors", "glove.6B.100d.txt --out glove")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        exists="file",
        help="word vectors: numbers of words and dimensions, then a line per word; or GloVe's",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to make")


def do(a: argparse.Namespace) -> None:
    from maskwright.model.opening.import_vectors import import_vectors

    print(f"model: {import_vectors(a.file, a.out, note)}")
