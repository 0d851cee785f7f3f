"""The likeliest tokens for a mask."""

from __future__ import annotations

import argparse

from maskwright.base.terminal import harmless
from maskwright.cli.options import add_device, add_model, note

SUMMARY = "show the most likely tokens for each mask in a text"
GROUP, ORDER = "analysis", 4
EXAMPLES = ("MODEL TEXT",)
USES = (
    'runs/mine "The court [MASK] the appeal."',
    'runs/t5 "The court <extra_id_0> the appeal." --top 3',
)
LESS_MEMORY = "a shorter text, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("text", help="a text with the model's mask token in it, such as [MASK]")
    add_device(parser)
    parser.add_argument("--top", type=int, default=5, help="number of tokens to show (default 5)")


def do(a: argparse.Namespace) -> None:
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
