"""Text that a model writes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from maskwright.base.terminal import harmless_lines
from maskwright.cli.options import note, require_existing
from maskwright.model.device.choices import Precision

SUMMARY = "generate text with a decoder or an encoder-decoder"
GROUP, ORDER = "analysis", 5
EXAMPLES = ("MODEL TEXT",)
LESS_MEMORY = "fewer --tokens, a shorter prompt, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the folder of a model or a run")
    parser.add_argument(
        "prompt",
        nargs="?",
        default="",
        help="the text to continue, or the input of an encoder-decoder",
    )
    parser.add_argument("--tokens", type=int, default=100, help="maximum number (default 100)")
    parser.add_argument("--temperature", type=float, help="0 is greedy (default 0.8)")
    parser.add_argument("--top-k", type=int, default=0, help="sample from the k likeliest (0: all)")
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        help="sample from the likeliest tokens that make up this probability (default 1: all)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument(
        "--num-beams",
        type=int,
        default=1,
        metavar="N",
        help="search the likeliest whole text with N beams, drawing nothing (default 1: draw)",
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text where it is written; may be repeated",
    )
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        default="auto",
        help="auto is bfloat16 where the machine has matrix units for it (default auto)",
    )


def do(a: argparse.Namespace) -> None:
    require_existing(a.model, "model", a.command)
    from maskwright.ask.predict.language_model import load

    model = load(a.model)
    for finding in model.findings:
        note(finding)
    written = model.generate(
        a.prompt,
        tokens=a.tokens,
        temperature=a.temperature,
        top_k=a.top_k,
        top_p=a.top_p,
        seed=a.seed,
        stop=a.stop,
        num_beams=a.num_beams,
        precision=a.precision,
    )
    assert isinstance(written, str)  # of one prompt
    print(harmless_lines(written))
