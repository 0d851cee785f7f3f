"""How good a model is: on text, on minimal pairs, on labelled rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.ask.evaluate.kind import OPTIONS, PAIRS, kind_of
from maskwright.base.terminal import harmless_lines
from maskwright.cli import options
from maskwright.text.tables.reading_options import how_read

SUMMARY = "evaluate a model on text, minimal pairs, labelled rows or retrieval"
GROUP, ORDER = "pretraining", 5
EXAMPLES = ("MODEL --data FILE", "MODEL --text FILE")
USES = ("runs/mine --text other.txt", "runs/reviews --data labelled.csv --by source")
OPTION_GROUP = "evaluation"
READING_OPTION = "--read "


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    options.add_text(parser)
    parser.add_argument(
        "--data",
        type=Path,
        exists="data",
        metavar="PATH",
        help="of a fine-tuned model: labelled rows, as for finetune; of others minimal pairs such "
        "as BLiMP's, a folder with a .jsonl file for each paradigm; of any model that embeds texts "
        "a retrieval folder in BEIR's format: corpus.jsonl, queries.jsonl and qrels/test.tsv",
    )
    parser.add_argument(
        "--dimensions",
        metavar="N,N",
        help="with a retrieval folder: numbers of leading dimensions that are evaluated, too "
        "(default: those that the model was trained for)",
    )
    options.add_base(parser)
    options.add_device(parser, precision=True)
    options.add_columns(parser)
    parser.add_argument(
        "--how",
        metavar="METHOD",
        help="scoring method for --data, such as causal or masked (default: as trained)",
    )
    parser.add_argument(
        "--part",
        help="which pairs: all, choosing (a tenth, to choose models or methods by) or reporting "
        "(the other nine tenths) (default all); or which part of a folder of labelled rows "
        "(default test, else validation); or which judgements of a retrieval folder (default test)",
    )
    parser.add_argument(
        "--by",
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
        exists="model",
        metavar="MODEL",
        help="labelled rows: another fine-tuned model of the same task, compared on the same rows",
    )
    parser.add_argument(
        "--other-data",
        action="extend",
        nargs="+",
        type=Path,
        exists="data",
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
    columns, read = options.parse_columns(a), how_read(a.read)
    if a.how is not None:
        from maskwright.model.inference.likelihood_prompts import require_method

        require_method(a.how, "--how")
    dimensions = options.parse_numbers(a.dimensions, "--dimensions")
    settings = {option: getattr(a, option) for option in OPTIONS}
    kind = kind_of(a.model, a.data, settings)
    options.note_busy(a.threads)
    from maskwright.api import evaluate, evaluate_text

    if a.data is None:
        read.require_only("reading")
        reading = read.reading if a.read else None
        print(harmless_lines(evaluate_text(a.model, a.text, reading=reading).render()))
        return
    if kind == PAIRS and a.out is None:
        from maskwright.text.corpus.saved import is_run

        settings["out"] = a.model if is_run(a.model) else options.next_run_folder("evaluation")
    del settings["column"], settings["precision"]
    settings |= {"columns": columns, "dimensions": dimensions, "read": read}
    evaluate(a.model, a.data, text=a.text, **settings)
