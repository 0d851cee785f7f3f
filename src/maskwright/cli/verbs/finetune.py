"""From labelled rows to a model that answers."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from maskwright.cli.verbs.arguments import (
    add_columns,
    add_out,
    add_read,
    add_task,
    existing,
    named_columns,
    next_run,
)
from maskwright.errors import UsageError

SUMMARY = "fine-tune a model on labelled texts"
# Options that a recipe has by the same names.
PLAIN = (
    "method",
    "task",
    "seeds",
    "epochs",
    "batch",
    "accumulate",
    "rate",
    "length",
    "long",
    "layer_decay",
    "head_rate",
    "weight_decay",
    "warmup",
    "patience",
    "prompt",
    "pooling",
    "measure",
    "threads",
    "within_words",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        help="the folder of a model or a run; or the finetune.toml of an earlier result, which "
        "names model and data itself",
    )
    parser.add_argument(
        "--model",
        dest="moved",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="where the model that a finetune.toml names lies now",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="PATH",
        help="a csv, tsv, jsonl, parquet, conll or conllu file, or a folder of them for train, "
        "validation and test; or a folder of texts for each class",
    )
    parser.add_argument(
        "--method",
        default=None,
        help="which weights are trained: full, probe (only a linear head), head (the model's own "
        "head with its pooler), last-N (the last N layers), reinit-N (all, the last N layers from "
        "new weights), gradual (unfreezing), or an adapter such as lora (default full)",
    )
    add_task(parser)
    add_columns(parser)
    add_read(parser)
    parser.add_argument(
        "--seeds", type=int, default=None, help="number of seeds to try (default 3)"
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=None,
        help="number of passes over the rows (default 3, or more for few rows)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show how the data is understood and what it would cost",
    )
    parser.add_argument("--batch", type=int, default=None, help="examples per step (default 32)")
    parser.add_argument(
        "--accumulate",
        type=int,
        default=None,
        metavar="N",
        help="compute each step in N portions: less memory, the same result (default 1)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=None,
        help="learning rate (default: by the method and the model's width)",
    )
    parser.add_argument(
        "--layer-decay",
        type=float,
        default=None,
        help="factor on the learning rate from each layer to the one below it (default 1)",
    )
    parser.add_argument(
        "--head-rate",
        type=float,
        default=None,
        help="factor on the learning rate of the last layer of a new head (default 10 where layers "
        "are trained and no --rate is given, else 1)",
    )
    parser.add_argument(
        "--weight-decay",
        type=float,
        default=None,
        help="weight decay of the matrices (default 0.01)",
    )
    parser.add_argument(
        "--warmup",
        type=float,
        default=None,
        help="share of the run in which the learning rate rises (default 0.1)",
    )
    parser.add_argument(
        "--patience",
        type=int,
        default=None,
        help="stop a seed after this many epochs without improvement",
    )
    parser.add_argument(
        "--length",
        type=int,
        default=None,
        help="maximum number of tokens per text (default: the model's maximum, at most 512)",
    )
    parser.add_argument(
        "--long",
        default=None,
        help="how longer texts are read: cut to their head, tail or head-and-tail; or whole, in "
        "pieces: pieces-mean or pieces-max combines the scores of the pieces, vectors-mean or "
        "vectors-max their vectors, hierarchical adds layers over the vectors (default head)",
    )
    parser.add_argument(
        "--pooling",
        default=None,
        help="how token vectors become one vector per text: cls, mean or max (default cls; for "
        "embedding tasks the one the model was made with, or mean)",
    )
    parser.add_argument(
        "--measure",
        default=None,
        metavar="NAME",
        help="validation metric that selects epoch and seed, such as macro_f1 or matthews "
        "(default: the usual one of the task)",
    )
    parser.add_argument(
        "--prompt",
        default=None,
        metavar="TEXT",
        help='input template of a model that writes its answer: "summarize: {source}"; with '
        '"sst2 sentence: {text}" or "{first} and {second}" it writes the label instead of using '
        "a head",
    )
    parser.add_argument(
        "--within-words",
        action="store_true",
        default=None,
        help="answers to questions may begin and end within words (default: where those to learn "
        "from often do)",
    )
    parser.add_argument(
        "--curve",
        default=None,
        metavar="N,N,all",
        help="do not save a model; measure each method with these numbers of labels",
    )
    add_out(parser)


def do(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    from_file = a.model.suffix == ".toml" and a.model.is_file()
    if a.data is not None:
        existing(a.data, "data")
    elif not from_file:
        raise UsageError(
            "no labelled file is named",
            where="--data",
            wanted="a file or a folder",
            do="maskwright finetune --help",
        )
    if a.moved is not None and not from_file:
        raise UsageError(
            "two models are named",
            where="--model",
            found=f"{a.moved} and {a.model}",
            wanted="one",
            do="leave --model out, or name a finetune.toml",
        )
    columns, curve = named_columns(a), _counts(a.curve)
    from maskwright.finetune.command import finetune_recipe
    from maskwright.finetune.recipe import Recipe, changed, read
    from maskwright.labelled.formats.options import how_read

    given = {name: getattr(a, name) for name in PLAIN if getattr(a, name) is not None}
    if a.data is not None:
        given["data"] = str(a.data)
    for name, value in (("columns", columns), ("curve", curve)):
        if value:
            given[name] = value
    if from_file:  # of these, too, only what is named is another
        recipe = read(a.model)
        given |= {"columns": recipe.columns | columns} if columns else {}
        given |= {"read": how_read(a.read, recipe.read)} if a.read else {}
        given |= {"least_steps": 0} if "epochs" in given else {}
        recipe = changed(recipe, given)
        if a.moved is not None:  # the same, by its hash
            recipe = replace(recipe, model=str(existing(a.moved, "model")))
        for path, what in ((recipe.model, "model"), (recipe.data, "data")):
            if not Path(path).exists():
                raise UsageError(
                    f"no such {what}",
                    where=f"{a.model}: {what}",
                    found=path,
                    do=f"say where it lies now: --{what} PATH",
                )
    else:
        given |= {"read": how_read(a.read)} if a.read else {}
        recipe = Recipe(model=str(a.model), **given)
    finetune_recipe(recipe, a.out or next_run("finetune"), dry=a.dry_run)


def _counts(given: str | None) -> list[int]:
    """Numbers with commas between, 0 for "all"."""
    words = [word.strip() for word in given.split(",")] if given else []
    if not all(word == "all" or (word.isdecimal() and int(word)) for word in words):
        raise UsageError(
            "not numbers of labels",
            where="--curve",
            found=repr(given),
            wanted="numbers with commas between, such as 50,200,all",
        )
    return [0 if word == "all" else int(word) for word in words]
