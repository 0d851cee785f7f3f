"""How good a model is: on text, on minimal pairs, on labelled rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.ask.evaluate.kind import PARTS as PAIR_PARTS
from maskwright.ask.evaluate.kind import answers_tasks, is_retrieval_folder
from maskwright.base.errors import UsageError, near
from maskwright.base.terminal import harmless_lines
from maskwright.cli import options
from maskwright.text.tables.reading_options import how_read
from maskwright.text.tables.rows import PARTS

SUMMARY = "evaluate a model on text, minimal pairs, labelled rows or retrieval"
GROUP, ORDER = "pretraining", 5
EXAMPLES = ("MODEL --data FILE", "MODEL --text FILE")
READING_OPTION = "--read "
# Which options have an effect on what is evaluated.
USED = {
    "text": ("read",),
    "minimal pairs": ("how", "out", "part"),
    "a retrieval folder": ("base", "dimensions", "out", "part"),
    "labelled rows": ("part", "column", "read", "out", "base", "by", "generalisation", "also"),
    "labelled rows against another model": ("part", "column", "read", "out", "against"),
}
OPTIONS = sorted({option for names in USED.values() for option in names})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="the folder of a model or a run")
    options.add_text(parser)
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="PATH",
        help="of a fine-tuned model: labelled rows, as for finetune; of others minimal pairs such "
        "as BLiMP's, a folder with a .jsonl file for each paradigm; of any model that embeds texts "
        "a retrieval folder in BEIR's format: corpus.jsonl, queries.jsonl and qrels/test.tsv",
    )
    parser.add_argument(
        "--dimensions",
        default=None,
        metavar="N,N",
        help="with a retrieval folder: numbers of leading dimensions that are evaluated, too "
        "(default: those that the model was trained for)",
    )
    options.add_base(parser)
    options.add_columns(parser)
    parser.add_argument(
        "--how",
        default=None,
        metavar="METHOD",
        help="scoring method for --data, such as causal or masked (default: as trained)",
    )
    parser.add_argument(
        "--part",
        default=None,
        help="which pairs: all, choosing (a tenth, to choose models or methods by) or reporting "
        "(the other nine tenths) (default all); or which part of a folder of labelled rows "
        "(default test, else validation); or which judgements of a retrieval folder (default test)",
    )
    parser.add_argument(
        "--by",
        default=None,
        metavar="COLUMN",
        help="labelled rows: the figures also for the rows with each value of this column, and "
        "where they are worse than elsewhere",
    )
    parser.add_argument(
        "--generalisation",
        action="store_true",
        help="labelled rows: also the distance of the weights from those before training, the gap "
        "to training rows, and a PAC-Bayes bound on the error",
    )
    parser.add_argument(
        "--against",
        type=Path,
        default=None,
        metavar="MODEL",
        help="labelled rows: another fine-tuned model of the same task, compared on the same rows",
    )
    parser.add_argument(
        "--also",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="labelled rows: other rows with the same columns, such as of another domain, with the "
        "difference to --data",
    )
    options.add_read(parser)
    options.add_out(
        parser,
        "with --data: where to write every pair's outcome, or the figures of labelled rows and a "
        "page with the worst mistakes",
        "of pairs the next free folder under runs/, of rows nowhere",
    )


def do(a: argparse.Namespace) -> None:
    options.require_existing(a.model, "model", a.command)
    options.require_texts(a.text)
    for path in (a.data, *a.also):
        options.require_existing(path, "data")
    options.require_existing(a.against, "model", a.command)
    columns, read = options.parse_columns(a), how_read(a.read)
    in_beir_format = a.data is not None and is_retrieval_folder(a.data)
    if a.how is not None:
        from maskwright.model.inference.likelihood_prompts import require_method

        require_method(a.how, "--how")
    choices = (*PAIR_PARTS, *PARTS)
    if a.part is not None and not in_beir_format and a.part not in choices:
        raise UsageError(
            "no such part of the data",
            where="--part",
            found=repr(a.part),
            wanted=near(a.part, choices),
            do="leave it out for the usual part",
        )
    dimensions = options.parse_numbers(a.dimensions, "--dimensions")
    kind = "a retrieval folder" if in_beir_format else "text"
    if a.data is not None and not in_beir_format:
        compared = "labelled rows against another model" if a.against else "labelled rows"
        kind = compared if answers_tasks(a.model) else "minimal pairs"
    for option in OPTIONS:
        if getattr(a, option) and option not in (*USED[kind], "read" if a.text else ""):
            raise UsageError(
                "option has no effect here",
                where=f"--{option}",
                found=f"the model is evaluated on {kind}",
                do="leave it out",
            )
    options.note_busy(a.threads)
    from maskwright.api import evaluate, evaluate_text

    if a.data is None or a.text:
        read.require_only("reading")
        reading = read.reading if a.read else None
        print(harmless_lines(evaluate_text(a.model, a.text, reading=reading).render()))
    if a.data is None:
        return
    out = a.out
    if kind == "minimal pairs" and out is None:
        from maskwright.text.corpus.saved import is_run

        out = a.model if is_run(a.model) else options.next_run_folder("evaluation")
    names = "how", "part", "base", "by", "generalisation", "against", "also"
    settings = {name: getattr(a, name) for name in names}
    settings |= {"columns": columns, "read": read, "dimensions": dimensions, "out": out}
    evaluate(a.model, a.data, **settings)
