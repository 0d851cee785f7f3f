"""Text that a model writes."""

from __future__ import annotations

import argparse

from maskwright.base.terminal import harmless_lines
from maskwright.cli.options import (
    add_device,
    add_fields,
    add_model,
    given_options,
    note,
)
from maskwright.model.inference.generation_settings import GenerationSettings

SUMMARY = "generate text with a decoder or an encoder-decoder"
GROUP, ORDER = "analysis", 5
EXAMPLES = ("MODEL TEXT",)
USES = ('runs/writer "Once upon a time"', 'runs/writer "Once" --temperature 0 --tokens 50')
OPTION_GROUP = "generation"
BY_HAND = ("stop",)  # an option that may be repeated
LESS_MEMORY = "fewer --tokens, a shorter prompt, or a smaller model"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "prompt",
        nargs="?",
        default="",
        help="the text to continue, or the input of an encoder-decoder",
    )
    add_fields(parser, GenerationSettings, without=BY_HAND)
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text where it is written; may be repeated",
    )
    add_device(parser, precision=True)


def do(a: argparse.Namespace) -> None:
    from maskwright.ask.predict.language_model import load

    model = load(a.model)
    for finding in model.findings:
        note(finding)
    settings = given_options(a, GenerationSettings, without=BY_HAND)
    written = model.generate(a.prompt, stop=a.stop, precision=a.precision, **settings)
    assert isinstance(written, str)  # of one prompt
    print(harmless_lines(written))
