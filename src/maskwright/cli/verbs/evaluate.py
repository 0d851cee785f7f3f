"""How good a model is: on text, on minimal pairs, on labelled rows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from maskwright.ask.evaluate.kind import PARTS as PAIR_PARTS
from maskwright.ask.evaluate.kind import answers_tasks, is_retrieval_folder
from maskwright.base.errors import UsageError, near
from maskwright.base.terminal import harmless_lines
from maskwright.cli import options
from maskwright.text.tables.reading_options import how_read

SUMMARY = "evaluate a model on text, minimal pairs, labelled rows or retrieval"
GROUP, ORDER = "pretraining", 5
EXAMPLES = ("MODEL --data FILE", "MODEL --text FILE")
READING_OPTION = "--read "


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
    retrieval = a.data is not None and not a.text and is_retrieval_folder(a.data)
    _require_choices(a.how, None if retrieval else a.part)
    dimensions = options.parse_numbers(a.dimensions, "--dimensions")
    rows = a.data is not None and not (a.text or retrieval) and answers_tasks(a.model)
    pairs = a.data is not None and not (rows or retrieval)
    _refuse_idle(a, rows=rows, pairs=pairs, retrieval=retrieval)
    options.note_busy(a.threads)
    if a.data is None or a.text:
        from maskwright.ask.evaluate.text import evaluate_text

        if not rows:
            read.require_only("reading")
        reading = read.reading if a.read else None
        print(harmless_lines(evaluate_text(a.model, a.text, reading=reading).render()))
    if retrieval:
        from maskwright.ask.evaluate.retrieval import evaluate_retrieval

        evaluate_retrieval(
            a.model, a.data, part=a.part, dimensions=dimensions, out=a.out, base=a.base
        )
    elif rows:
        common: dict[str, Any] = {"part": a.part, "columns": columns, "read": read, "out": a.out}
        if a.against is not None:
            from maskwright.ask.evaluate.against import evaluate_against

            evaluate_against(a.model, a.against, a.data, **common)
        else:
            from maskwright.ask.evaluate.labelled_rows import evaluate_file

            common |= {"base": a.base, "by": a.by, "generalisation": a.generalisation}
            evaluate_file(a.model, a.data, also=a.also, **common)
    elif pairs:
        from maskwright.ask.evaluate.minimal_pairs import evaluate_pairs
        from maskwright.text.corpus.saved import is_run

        out = a.out or (a.model if is_run(a.model) else options.next_run_folder("evaluation"))
        evaluate_pairs(a.model, a.data, out, how=a.how, part=a.part or "all")


def _require_choices(method: str | None, split_name: str | None) -> None:
    """Refuse an unknown method or part before the model is opened.

    Raises:
        UsageError: with similar names.
    """
    if method is not None:
        from maskwright.model.inference.likelihood_prompts import require_method

        require_method(method, "--how")
    if split_name is not None:
        from maskwright.text.tables.rows import PARTS

        choices = (*PAIR_PARTS, *PARTS)
        if split_name not in choices:
            raise UsageError(
                "no such part of the data",
                where="--part",
                found=repr(split_name),
                wanted=near(split_name, choices),
                do="leave it out for the usual part",
            )


def _refuse_idle(a: argparse.Namespace, *, rows: bool, pairs: bool, retrieval: bool) -> None:
    """Refuse options that would have no effect.

    Raises:
        UsageError: naming the first of them.
    """
    idle = {
        "--base": a.base is not None and (not (rows or retrieval) or a.against is not None),
        "--dimensions": a.dimensions is not None and not retrieval,
        "--by": a.by is not None and (not rows or a.against is not None),
        "--generalisation": a.generalisation and (not rows or a.against is not None),
        "--against": a.against is not None and not rows,
        "--also": bool(a.also) and (not rows or a.against is not None),
        "--how": a.how is not None and not pairs,
        "--out": a.out is not None and not (rows or pairs or retrieval),
        "--part": a.part is not None and not (rows or pairs or retrieval),
        "--column": bool(a.column) and not rows,
        "--read": bool(a.read) and (pairs or retrieval) and not a.text,
    }
    for option in (name for name, has_no_effect in idle.items() if has_no_effect):
        compares = a.against is not None and rows
        about = "labelled rows" if rows else "minimal pairs" if pairs else "text"
        about = "a retrieval folder" if retrieval else about
        about += " against another model" if compares else ""
        raise UsageError(
            "option has no effect here",
            where=option,
            found=f"the model is evaluated on {about}",
            do="leave it out",
        )
