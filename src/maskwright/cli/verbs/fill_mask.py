"""The likeliest tokens for a mask."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.base.terminal import harmless
from maskwright.cli.options import note, require_existing

SUMMARY = "show the most likely tokens for each mask in a text"
GROUP, ORDER = "analysis", 4
EXAMPLES = ("MODEL TEXT",)
LESS_MEMORY = "a shorter text, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the folder of a model or a run")
    parser.add_argument("text", help="a text with the model's mask token in it, such as [MASK]")
    parser.add_argument("--top", type=int, default=5, help="number of tokens to show (default 5)")


def do(a: argparse.Namespace) -> None:
    require_existing(a.model, "model", a.command)
    from maskwright.ask.predict.language_model import load

    model = load(a.model)
    for finding in model.findings:
        note(finding)
    (holes,) = model.filled([a.text], a.top, note, live=True)
    words = model.model.tokenizer
    for number, hole in enumerate(holes, start=1):
        if len(holes) > 1:
            print(f"mask {number}")
        for token in hole.candidates:
            is_entry = words.vocabulary[token.id] == token.token  # else the text of a gap
            spelled = words.decode([token.id]).strip() if is_entry else token.token
            shown = spelled or token.token
            print(harmless(f"  {token.probability:6.1%}  {shown:<14} {token.text}"))
