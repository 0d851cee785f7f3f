"""Words with similar vectors, and analogies."""

from __future__ import annotations

import argparse

from maskwright.base.terminal import harmless
from maskwright.cli.options import add_model, note

SUMMARY = "show the nearest words of a word, or of a sum such as king woman --minus man"
GROUP, ORDER = "analysis", 5
EXAMPLES = ("MODEL bank", "MODEL king woman --minus man")
USES = ("runs/mine bank", "runs/mine king woman --minus man")
LESS_MEMORY = "a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("words", nargs="+", help="words whose vectors are added")
    parser.add_argument(
        "--minus", nargs="+", default=[], metavar="WORD", help="words whose vectors are subtracted"
    )
    parser.add_argument("--top", type=int, default=10, help="number of words to show (default 10)")


def do(a: argparse.Namespace) -> None:
    from maskwright.ask.analysis.neighbours import neighbours
    from maskwright.model.opening.open import open_model

    model = open_model(a.model)
    for finding in model.findings:
        note(finding)
    for word, cosine in neighbours(model, a.words, minus=a.minus, top=a.top):
        print(harmless(f"  {cosine:6.3f}  {word}"))
