"""Fine-tuning on labelled rows. The options are the fields of `FinetuneRecipe`."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace
from pathlib import Path

from maskwright.base.errors import DataError, UsageError
from maskwright.base.terminal import shell_word
from maskwright.cli import options
from maskwright.cli.parser import task_names
from maskwright.learn.finetune.method import AUTO, names
from maskwright.learn.finetune.recipe import FinetuneRecipe, changed, override, read, read_examples
from maskwright.learn.tasks.base.choices import GLOBAL_RULES, POOLINGS
from maskwright.model.checkpoint.fine_tuned import require_no_result
from maskwright.text.tables.reading_options import how_read

SUMMARY = "fine-tune a model on labelled texts"
GROUP, ORDER = "labelled rows", 1
EXAMPLES = ("MODEL --data FILE",)
USES = (
    "runs/mine --data reviews.csv --out runs/reviews",
    "runs/mine --data reviews.csv --method lora --epochs 5",
)
OPTION_GROUP = "training"
READING_OPTION = "--read "
LABELLED = True
LESS_MEMORY = (
    "a step in more portions (--accumulate 4), --gradient-checkpointing, a smaller --batch, "
    "a shorter --length, or a smaller model"
)
# Usual values of fields.
USUAL = {
    "method": lambda: [AUTO, *names()],
    "task": task_names,
    "pooling": lambda: list(POOLINGS),
    "global_attention": lambda: GLOBAL_RULES,
}
# Fields of a recipe whose options are declared by hand, or that have none.
OTHERS = ("data", "adapters", "columns", "curve", "read", "made_from")
# Fields that are positional arguments or options of every verb.
ELSEWHERE = ("model", "threads")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        hub=True,
        help="the folder of a model or a run; or the finetune.toml of an earlier result, which "
        "names model and data itself",
    )
    parser.add_argument(
        "--model",
        dest="moved",
        type=Path,
        metavar="FOLDER",
        help="where the model that a finetune.toml names lies now",
    )
    parser.add_argument(
        "--data",
        type=Path,
        exists="data",
        metavar="PATH",
        help="a csv, tsv, jsonl, parquet, conll or conllu file, or a folder of them for train, "
        "validation and test; or a folder of texts for each class",
    )
    options.add_fields(parser, FinetuneRecipe, without=(*OTHERS, *ELSEWHERE), values=USUAL)
    options.add_settings(
        parser,
        "set any of these, or a setting of the method, as lora.rank=16 or prefix.length=10; may be "
        "repeated",
    )
    options.add_columns(parser)
    options.add_read(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show how the data is understood and what it would cost",
    )
    parser.add_argument(
        "--curve",
        metavar="N,N,all",
        help="do not save a model; measure each method of --method with these numbers of labels",
    )
    options.add_log(parser)
    options.add_out(parser)


def do(a: argparse.Namespace) -> None:
    from_file = a.model.suffix == ".toml" and a.model.is_file()
    if not from_file:
        options.require_existing(a.model, "model", a.command)
    if a.data is None and not from_file:
        raise UsageError("no labelled file is named", where="--data", do=a.command)
    if a.moved is not None and not from_file:
        raise UsageError(
            "two models are named",
            where="--model",
            found=f"{a.moved} and {a.model}",
            wanted="one",
            do="leave --model out, or name a finetune.toml",
        )
    values = options.given_options(a, FinetuneRecipe, without=(*OTHERS, "model"))
    if a.dimensions is not None:
        values["dimensions"] = options.parse_numbers(a.dimensions, "--dimensions")
    columns, curve = options.parse_columns(a), options.parse_numbers(a.curve, "--curve", "all")
    values |= {"data": str(a.data)} if a.data is not None else {}
    values |= {"curve": curve} if curve else {}
    if from_file:  # of these, too, only what is named is another
        recipe = read(a.model)
        values |= {"columns": recipe.columns | columns} if columns else {}
        values |= {"read": how_read(a.read, recipe.read)} if a.read else {}
        recipe = changed(recipe, values)
    else:
        values |= {"columns": columns} if columns else {}
        values |= {"read": how_read(a.read)} if a.read else {}
        recipe = FinetuneRecipe(model=str(a.model), **values)
    recipe = override(recipe, a.settings)
    if a.moved is not None:  # the same, by its hash
        recipe = replace(recipe, model=str(a.moved))
    for path, kind in ((recipe.model, "model"), (recipe.data, "data")):
        if not Path(path).exists():
            raise UsageError(
                f"no such {kind}",
                where=f"{a.model}: {kind}",
                found=path,
                do=f"say where it lies now: --{kind} PATH",
            )
    out, examples = a.out or options.next_run_folder("finetune"), None
    if not recipe.curve:
        require_no_result(out)
    # Rows that cannot be read are refused before torch is imported, which takes longer. Left out,
    # they are listed in `out`, which is checked first.
    if recipe.read.reading.on_bad == "strict":
        try:
            examples = read_examples(recipe)
        except DataError as error:
            everything = f"`maskwright doctor {shell_word(recipe.data)}` shows all problems at once"
            raise error.advising("; ".join(filter(None, (error.do, everything)))) from None
    from maskwright.learn.finetune.command import finetune_recipe
    from maskwright.learn.train.records import logging_to

    again = f"the same command with --out {shell_word(out)}"
    resuming = recipe.curve and not a.dry_run
    with logging_to(a.log), options.resumable(again) if resuming else contextlib.nullcontext():
        finetune_recipe(recipe, out, examples=examples, dry=a.dry_run)
