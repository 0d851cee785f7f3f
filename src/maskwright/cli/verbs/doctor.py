"""Problems of labelled data, before any training."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli import options
from maskwright.text.tables.reading_options import how_read

SUMMARY = "examine labelled data: label errors, leaks, copies, lengths, what a score can tell"
GROUP, ORDER = "labelled rows", 0
EXAMPLES = ("FILE", "FILE MODEL")
USES = ("reviews.csv", "reviews.csv runs/mine --out runs/diagnosis")
READING_OPTION = "--read "
LABELLED = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, exists="data", help="labelled rows, as for finetune")
    parser.add_argument(
        "model",
        type=Path,
        exists="model",
        nargs="?",
        help="the folder of a model: lengths are compared with what it reads, and its embeddings "
        "judge labels (default: a bag of words judges them)",
    )
    options.add_task(parser)
    options.add_columns(parser)
    options.add_read(parser)
    options.add_device(parser)
    options.add_out(
        parser, "where to write report.html, and diagnosis.json with all rows to look at", "nowhere"
    )


def do(a: argparse.Namespace) -> None:
    columns, read = options.parse_columns(a), how_read(a.read)
    from maskwright.ask.doctor.check import Subject
    from maskwright.ask.doctor.doctor import examine

    subject = Subject.load(a.data, columns, a.task, read)  # before torch is imported
    options.note_busy(a.threads)
    examine(subject, a.model, a.out)
