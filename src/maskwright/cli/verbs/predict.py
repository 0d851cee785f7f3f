"""Predictions for the rows of a file."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from maskwright.ask.predict.inputs import require_effect
from maskwright.base.errors import UsageError
from maskwright.base.terminal import counted, printer, shell_word
from maskwright.cli import options
from maskwright.model.device.choices import require_engine
from maskwright.text.corpus.files import KINDS
from maskwright.text.tables.reading_options import how_read

STDIN = Path("-")
SUMMARY = "apply a fine-tuned model to the rows of a file"
GROUP, ORDER = "labelled rows", 2
EXAMPLES = ("MODEL FILE", 'MODEL "TEXT"')
USES = ('runs/reviews "What a film!"', "runs/reviews new.csv --out predictions.jsonl")
OPTION_GROUP = "prediction"
READING_OPTION = "--read "
LABELLED = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        hub=True,
        nargs="?",
        help="a folder written by finetune, or a model folder; with --server the name of a model "
        "there, which may be left out where there is only one",
    )
    parser.add_argument(
        "file",
        nargs="?",
        default=str(STDIN),
        help="a table, or a .txt file with one text per line (default, and -: standard input: "
        "lines of text or JSON, or with --read separator=, a table with a header row); or a text "
        "with blanks, read like standard input",
    )
    parser.add_argument(
        "--also",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="MODEL",
        help="more models that were fine-tuned from the same model with --method probe; all of "
        "them answer, and each text is encoded only once",
    )
    options.add_base(parser)
    options.add_columns(parser)
    parser.add_argument(
        "--labels",
        metavar="LABEL,LABEL",
        help="with a model of natural-language inference: which of these each text is about",
    )
    parser.add_argument(
        "--hypothesis",
        metavar="TEMPLATE",
        help='with --labels: what is said of a text, {} for the label (default "This example is '
        '{}.")',
    )
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="of a text-to-text model of another library: the task whose settings and prefix its "
        "folder has, such as summarization or translation_en_to_de",
    )
    options.add_read(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .jsonl, .csv or .tsv file to write (default: the terminal)",
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        help="let a running `maskwright serve` answer, such as http://127.0.0.1:8000",
    )
    parser.add_argument(
        "--server-token",
        help="of that server (default: the variable MASKWRIGHT_TOKEN)",
    )
    parser.add_argument(
        "--long",
        choices=("as_trained", "windows", "refuse"),
        default="as_trained",
        help="a text longer than the model reads is read as the model was trained (default; most "
        "lose its end), in windows whose answers are put together, or refused",
    )
    options.add_engine(parser)
    options.add_device(parser, precision=True)
    parser.add_argument(
        "--top",
        type=int,
        help="list this many best answers for each row; in a table predicted_label_1, …_2",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="give no label (null) to a row whose probability is below this; of several labels "
        "give each from this probability on, in place of the thresholds that validation data chose",
    )
    parser.add_argument(
        "--scores",
        choices=("chosen", "all"),
        default="chosen",
        help="all: also the probability of every label, as probabilities",
    )
    parser.add_argument(
        "--uncertain",
        type=int,
        metavar="N",
        help="give only the N rows that are worth labelling next: uncertain ones that stand for "
        "many others, with their line and the labels between which the model decides",
    )


def do(a: argparse.Namespace) -> None:
    require_effect(vars(a))
    text = None
    if not a.file:
        raise UsageError("empty path", where="file", found="''", wanted="a file or a text")
    if not os.path.exists(a.file) and " " in a.file and Path(a.file).suffix.lower() not in KINDS:
        text, a.file = a.file, STDIN
    a.file = Path(a.file)
    is_alone = a.model is not None and a.file == STDIN and text is None
    if a.server is not None and is_alone and (a.model == STDIN or a.model.exists()):
        a.model, a.file = None, a.model
    if a.file == STDIN and text is None and len(a.also) > 1 and a.also[-1].is_file():
        a.file = a.also.pop()  # a model is a folder
    if a.server is None:
        if a.model is None:
            expected = "MODEL FILE before the options, or after --; or --server URL"
            raise UsageError("no model to predict with", wanted=expected, do=a.command)
        for model in (a.model, *a.also):
            options.require_existing(model, "model", a.command)
    if a.file != STDIN:
        echo = f"if it is a text: echo {shell_word(a.file)} | maskwright predict"
        of_text = f"{echo} {shell_word(a.model)}" if a.model and not a.file.suffix else ""
        options.require_existing(a.file, "file", of_text)
    elif text is None and sys.stdin.isatty():
        raise UsageError(
            "there are no rows to predict", wanted="a file, or lines from a pipe", do=a.command
        )
    if a.top is not None and (a.threshold is not None or a.scores == "all"):
        raise UsageError(
            "two ways to list labels",
            where="--top",
            found="--threshold" if a.scores == "chosen" else "--scores all",
            wanted="one of them",
            do="leave --top out: --scores all lists every label",
        )
    labels = [] if a.labels is None else [label.strip() for label in a.labels.split(",")]
    columns, read = options.parse_columns(a), how_read(a.read)
    read.require_only("reading", "header")
    require_engine(a.engine, "--engine")
    from maskwright.ask.predict.rows import require_readable, stdin_file

    if a.file != STDIN and not (a.server or a.also or labels or a.task):
        require_readable(a.model, a.file, read, columns)  # before torch is imported
    if a.server is None:
        options.note_busy(a.threads)
    from maskwright.ask.predict.file import predict_file, write_predictions
    from maskwright.ask.predict.remote import RemoteServer

    server = None
    if a.server is not None:
        token = a.server_token or os.environ.get("MASKWRIGHT_TOKEN")
        server = RemoteServer(a.server, token, None if a.model is None else str(a.model))
    arguments_passed = "also hypothesis task top base long engine threshold uncertain"
    keywords: dict[str, Any] = {name: getattr(a, name) for name in arguments_passed.split()}
    keywords |= {"columns": columns, "labels": labels, "read": read, "server": server}
    keywords |= {"all_scores": a.scores == "all", "say": printer(sys.stderr)}
    stream = sys.stdin.buffer if text is None else io.BytesIO(os.fsencode(text))
    with (
        contextlib.nullcontext(a.file)
        if a.file != STDIN
        else stdin_file(stream, read, complete=a.out is not None) as file
    ):
        if a.out is None:
            predict_file(a.model or STDIN, file, sys.stdout, **keywords)
            return
        count = write_predictions(a.model or STDIN, file, a.out, **keywords)
        printer(None)(f"{counted(count, 'prediction')}: {a.out}")
