"""A tokenizer of your text, and how well it fits."""

from __future__ import annotations

import argparse

from maskwright.verbs.arguments import add_out, add_read, add_text, existing_texts, next_run

SUMMARY = "train a tokenizer on your text and report on it"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    parser.add_argument(
        "--kind",
        default="wordpiece",
        help="character, bpe, byte-bpe, wordpiece or unigram (default wordpiece)",
    )
    parser.add_argument("--vocabulary", type=int, default=8192, help="its size (default 8192)")
    parser.add_argument("--lowercase", action="store_true", help="convert text to lower case")
    add_read(parser)
    add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.pretrain.tokenizer_run import train_and_report
    from maskwright.tasks.how_read import how_read

    existing_texts(a.text)
    read = how_read(a.read)
    read.require_only("reading")
    train_and_report(
        a.text,
        a.out or next_run("tokenizer"),
        kind=a.kind,
        vocabulary=a.vocabulary,
        lowercase=a.lowercase,
        reading=read.reading,
    )
