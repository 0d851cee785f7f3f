"""Training a tokenizer, and how well it fits the text."""

from __future__ import annotations

import argparse

from maskwright.base.errors import UsageError
from maskwright.base.terminal import shell_word
from maskwright.cli import options

# Training methods of WordPiece -> least frequency of a pair (None: a falling floor).
WORDPIECE = {"floored": None, "published": 2}
SUMMARY = "train a tokenizer on your text and report on it"
GROUP, ORDER = "text", 3
EXAMPLES = ("--text FILE",)
USES = (
    "--text my-documents/ --out words",
    "--text my-documents/ --kind byte-bpe --vocabulary 16384",
)
OPTION_GROUP = "tokenizer"
READING_OPTION = "--read "
LESS_MEMORY = "less text, or a smaller --vocabulary"


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_text(parser)
    parser.add_argument(
        "--kind",
        default="wordpiece",
        usual=("wordpiece", "bpe", "byte-bpe", "unigram", "word", "character"),
        help="what tokens are (default wordpiece)",
    )
    parser.add_argument("--vocabulary", type=int, default=8192, help="its size (default 8192)")
    parser.add_argument(
        "--wordpiece",
        choices=tuple(WORDPIECE),
        help="how WordPiece is trained: floored (frequent pairs first; the default) or published "
        "(by likelihood alone)",
    )
    parser.add_argument("--lowercase", action="store_true", help="convert text to lower case")
    options.add_read(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    from maskwright.learn.pretrain.prepare import train_and_report
    from maskwright.text.tables.reading_options import how_read

    if a.wordpiece is not None and a.kind != "wordpiece":
        raise UsageError(
            "--wordpiece applies to WordPiece vocabularies only",
            where="--wordpiece",
            found=f"--kind {a.kind}",
            do="leave --wordpiece out, or say --kind wordpiece",
        )
    method = a.wordpiece or "floored"
    read = how_read(a.read)
    read.require_only("reading")
    out = a.out or options.next_run_folder("tokenizer")
    train_and_report(
        a.text,
        out,
        kind=a.kind,
        vocabulary=a.vocabulary,
        lowercase=a.lowercase,
        min_frequency=WORDPIECE[method],
        reading=read.reading,
    )
    if a.kind == "wordpiece":
        alternative = next(name for name in WORDPIECE if name != method)
        print(f"the other training method: --wordpiece {alternative}")
    command = f"maskwright pretrain bert-mini --set tokenizer.folder={shell_word(out)}"
    print("next:", " ".join([command, *(["--text"] if a.text else []), *map(shell_word, a.text)]))
