"""Models and methods against each other on one labelled file. Its options are, besides those below,
the fields of `FinetuneRecipe`."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.base.terminal import shell_word
from maskwright.cli import options
from maskwright.cli.verbs.finetune import LESS_MEMORY as LESS_MEMORY
from maskwright.cli.verbs.finetune import USUAL
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.text.tables.reading_options import how_read

SUMMARY = "compare models and methods on labelled texts, with cost"
GROUP, ORDER = "labelled rows", 4
EXAMPLES = ("MODEL OTHER bag-of-words --data FILE --method embeddings,full",)
USES = (
    "runs/mine bag-of-words --data reviews.csv",
    "runs/mine bag-of-words --data reviews.csv --method full",
)
OPTION_GROUP = "training"
READING_OPTION = "--read "
LABELLED = True
# Fields of a recipe whose options are declared by hand, or that have none.
OTHERS = ("model", "data", "method", "seeds", "adapters", "columns", "curve", "read", "made_from")
ELSEWHERE = ("threads", "dimensions")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        hub=True,
        metavar="model",
        usual=("bag-of-words",),
        help="the folder of a model or a run; untrained:FOLDER, a copy of it with new weights; or "
        "bag-of-words",
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        exists="data",
        metavar="PATH",
        help="labelled rows, as for finetune",
    )
    parser.add_argument(
        "--method",
        default="embeddings,full",
        metavar="NAME,NAME",
        help="methods of finetune, each with every model (default embeddings,full)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    options.add_fields(parser, FinetuneRecipe, without=(*OTHERS, *ELSEWHERE), values=USUAL)
    options.add_columns(parser)
    options.add_read(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    for model in a.models:
        if model != "bag-of-words":
            options.require_existing(Path(model.removeprefix("untrained:")), "model", a.command)
    settings = options.given_options(a, FinetuneRecipe, without=OTHERS)
    columns = options.parse_columns(a)
    settings |= {"columns": columns} if columns else {}
    settings |= {"read": how_read(a.read)} if a.read else {}
    from maskwright.learn.finetune.experiment import experiment

    out = a.out or options.next_run_folder("experiment")
    methods = [name.strip() for name in a.method.split(",")]
    with options.resumable(f"the same command with --out {shell_word(out)}"):
        experiment(a.models, a.data, out, methods=methods, seeds=a.seeds, settings=settings)
