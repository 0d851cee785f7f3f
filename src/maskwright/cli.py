"""The command `maskwright`: one verb per thing that can be done, in the order of the work.

Nothing heavy is imported before a verb needs it, so help and mistakes answer at once. Every verb
is one import away in Python: this file only reads arguments, calls, and prints. A refusal is
printed in five parts without a traceback (`--debug` shows it) and its class is the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from maskwright import __version__
from maskwright.errors import MaskwrightError, UsageError, near

ROOMS = ("families", "objectives", "adapters", "recipes")
STDIN = Path("-")
# How each verb that reads files is told how to.
TYPED = {
    **dict.fromkeys(("pretrain", "adapt", "compare"), "--set corpus."),
    **dict.fromkeys(("tokenizer", "evaluate", "finetune", "predict", "probe"), "--read "),
}


class Help(argparse.HelpFormatter):
    """argparse measures verbs without their own indentation, and then breaks the longer ones."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2


class Parser(argparse.ArgumentParser):
    """argparse that refuses in the house's form, with near names."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, do=f"{self.prog} --help")


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="maskwright",
        description="Text of your own to a language Transformer of your own.",
        formatter_class=Help,
        epilog="First time here? Run: maskwright quickstart",
    )
    top.add_argument("--version", action="version", version=f"maskwright {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)

    def verb(name: str, summary: str, do: Callable[[argparse.Namespace], None]) -> Parser:
        made = verbs.add_parser(name, help=summary, description=summary)
        made.set_defaults(do=do)
        made.add_argument("--debug", action="store_true", help="show the traceback of an error")
        return made

    made = verb(
        "quickstart",
        "train a first model on the documentation of this Python installation",
        _quickstart,
    )
    made.add_argument("--minutes", type=float, default=4.0, help="time in minutes (default 4)")
    _out(made)

    made = verb("tokenizer", "train a tokenizer on your text and report on it", _tokenizer)
    _text(made)
    made.add_argument(
        "--kind",
        default="wordpiece",
        help="character, bpe, byte-bpe, wordpiece or unigram (default wordpiece)",
    )
    made.add_argument("--vocabulary", type=int, default=8192, help="its size (default 8192)")
    made.add_argument("--lowercase", action="store_true", help="convert text to lower case")
    _read(made)
    _out(made)

    made = verb("pretrain", "pretrain a model from a recipe", _pretrain)
    made.add_argument("recipe", help="a built-in recipe, a .toml file, or the folder of a run")
    _text(made)
    _settings(made)
    _out(made)

    made = verb("adapt", "continue pretraining a model on other text", _adapt)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    made.add_argument("--minutes", type=float, default=10.0, help="time in minutes (default 10)")
    _settings(made)
    _out(made)

    made = verb("resume", "continue a run from its last checkpoint", _resume)
    made.add_argument("run", type=Path, help="the folder of the run")
    _settings(made)

    made = verb("compare", "train recipes under an equal budget and compare them", _compare)
    made.add_argument("recipes", nargs="+", metavar="recipe", help="two or more, as for pretrain")
    made.add_argument(
        "--budget", required=True, help="of each run: tokens=5e6, minutes=10 or flops=1e15"
    )
    made.add_argument("--seeds", type=int, default=3, help="runs of each recipe (default 3)")
    _text(made)
    _pairs(made)
    _settings(made)
    _out(made)

    made = verb("evaluate", "evaluate a model on text, minimal pairs or labelled rows", _evaluate)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    made.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="PATH",
        help="of a fine-tuned model: labelled rows, as for finetune; of others minimal pairs such "
        "as BLiMP's, a folder with a .jsonl file for each paradigm",
    )
    _columns(made)
    made.add_argument(
        "--how",
        default=None,
        metavar="METHOD",
        help="scoring method for --data, such as causal or masked (default: as trained)",
    )
    made.add_argument(
        "--part",
        default="all",
        help="which pairs: all, choosing (a tenth, to choose models or methods by) or reporting "
        "(the other nine tenths) (default all); or which part of a folder of labelled rows",
    )
    _read(made)
    _out(made)

    made = verb("finetune", "fine-tune a model on labelled texts", _finetune)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="PATH",
        help="a csv, tsv, jsonl, parquet or conll file, or a folder of them for train, validation "
        "and test",
    )
    made.add_argument(
        "--method",
        default="full",
        help="which weights are trained: full, probe (only the head), last-N (the last N layers), "
        "gradual (unfreezing), or an adapter such as lora (default full)",
    )
    _task(made)
    _columns(made)
    _read(made)
    made.add_argument("--seeds", type=int, default=3, help="number of seeds to try (default 3)")
    made.add_argument("--epochs", type=int, default=3, help="number of epochs (default 3)")
    made.add_argument("--batch", type=int, default=32, help="examples per step (default 32)")
    made.add_argument(
        "--rate",
        type=float,
        default=None,
        help="learning rate (default: by the method and the model's width)",
    )
    made.add_argument(
        "--layer-decay",
        type=float,
        default=1.0,
        help="factor on the learning rate from each layer to the one below it (default 1)",
    )
    made.add_argument(
        "--head-rate",
        type=float,
        default=None,
        help="factor on the learning rate of the task's head (default 10 where layers are trained, "
        "else 1)",
    )
    made.add_argument(
        "--patience",
        type=int,
        default=None,
        help="stop a seed after this many epochs without improvement",
    )
    made.add_argument(
        "--length",
        type=int,
        default=None,
        help="maximum number of tokens per text (default: the model's maximum, at most 512)",
    )
    made.add_argument(
        "--long",
        default="head",
        help="how longer texts are read: cut to their head, tail or head-and-tail; or whole, in "
        "pieces: pieces-mean or pieces-max combines the scores of the pieces, vectors-mean or "
        "vectors-max their vectors, hierarchical adds layers over the vectors (default head)",
    )
    made.add_argument(
        "--pooling",
        default=None,
        help="how token vectors become one vector per text: cls, mean or max (default cls; mean "
        "for embedding tasks)",
    )
    made.add_argument(
        "--measure",
        default=None,
        metavar="NAME",
        help="validation metric that selects epoch and seed, such as macro_f1 or matthews "
        "(default: the usual one of the task)",
    )
    made.add_argument(
        "--prompt",
        default=None,
        metavar="TEXT",
        help='input template of text-to-text tasks, such as "summarize: {source}"',
    )
    made.add_argument(
        "--curve",
        default=None,
        metavar="N,N,all",
        help="do not save a model; measure each method with these numbers of labels",
    )
    _out(made)

    made = verb("predict", "apply a fine-tuned model to the rows of a file", _predict)
    made.add_argument("model", type=Path, help="a folder written by finetune, or a model folder")
    made.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=STDIN,
        help="a table, or a .txt file with one text per line (default, and -: standard input, "
        "lines of text or JSON)",
    )
    made.add_argument(
        "--also",
        nargs="+",
        type=Path,
        default=[],
        metavar="MODEL",
        help="more models that were fine-tuned from the same model with --method probe; all of "
        "them answer, and each text is encoded only once",
    )
    _columns(made)
    _read(made)
    made.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FILE",
        help="a .jsonl, .csv or .tsv file to write (default: the terminal)",
    )
    made.add_argument(
        "--top", type=int, default=None, help="list this many best answers for each row"
    )

    made = verb("probe", "probe what each layer of a frozen model encodes", _probe)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="PATH",
        help="labelled texts or words, or pairs with a similarity (default: built-in sentences "
        'with two meanings of "bank")',
    )
    made.add_argument(
        "--word",
        default=None,
        help="compare the meanings of this word; --data is then a csv with the columns text "
        "and label (the meaning)",
    )
    _task(made)
    _columns(made)
    _read(made)
    made.add_argument(
        "--items", type=int, default=None, help="maximum number of words or texts (default 10000)"
    )
    _out(made)

    made = verb("attention", "show what the attention heads of a model look at", _attention)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    made.add_argument(
        "--sentence",
        default=None,
        metavar="TEXT",
        help="a text whose attention weights are drawn",
    )
    made.add_argument(
        "--tree",
        type=Path,
        default=None,
        metavar="FILE",
        help="a treebank in CoNLL-U format; heads are compared with its dependencies",
    )
    _out(made)

    made = verb("fill-mask", "show the most likely tokens for each mask in a text", _fill_mask)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument("text", help="a text with the model's mask token in it, such as [MASK]")
    made.add_argument("--top", type=int, default=5, help="number of tokens to show (default 5)")

    made = verb("generate", "generate text with a decoder or an encoder-decoder", _generate)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument(
        "prompt",
        nargs="?",
        default="",
        help="the text to continue, or the input of an encoder-decoder",
    )
    made.add_argument("--tokens", type=int, default=100, help="maximum number (default 100)")
    made.add_argument("--temperature", type=float, default=0.8, help="0 is greedy (default 0.8)")
    made.add_argument("--top-k", type=int, default=0, help="sample from the k likeliest (0: all)")
    made.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        help="sample from the likeliest tokens that make up this probability (default 1: all)",
    )
    made.add_argument("--seed", type=int, default=0, help="random seed (default 0)")

    made = verb("show", "print a recipe as TOML, or describe a run or a model folder", _show)
    made.add_argument(
        "thing", help="a built-in recipe, a .toml file, a run folder or a model folder"
    )
    _settings(made)

    made = verb("list", "list families, objectives, adapters and recipes", _list)
    made.add_argument(
        "room", nargs="?", help="only one of these: families, objectives, adapters or recipes"
    )
    return top


def _text(made: Parser) -> None:
    made.add_argument(
        "--text",
        nargs="+",
        default=[],
        metavar="PATH",
        help="files or folders: txt, md, jsonl, csv, tsv, parquet, also .gz and .zst",
    )


def _task(made: Parser) -> None:
    made.add_argument("--task", default=None, help="task type (default: inferred from the data)")


def _columns(made: Parser) -> None:
    made.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help="which column has which role, as text=review or label=stars; may be repeated",
    )


def _read(made: Parser) -> None:
    made.add_argument(
        "--read",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how files are read: on_bad=skip, encoding=latin-1, separator=';', column=body; for "
        "labelled files also header=text,label and fold_labels=true; may be repeated",
    )


def _pairs(made: Parser) -> None:
    made.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="DIR",
        help="minimal pairs such as BLiMP's: a folder with a .jsonl file for each paradigm",
    )


def _settings(made: Parser) -> None:
    made.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change one setting of the recipe, as training.batch=32; may be repeated",
    )


def _out(made: Parser) -> None:
    made.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="DIR",
        help="where to write (default: the next free folder under runs/)",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        read = parser()
        _refuse_unknown_verb(read, given)
        chosen = read.parse_args(given)
        if chosen.verb is None:
            read.print_help()
            return 0
        chosen.do(chosen)
    except MaskwrightError as error:
        if debug:
            raise
        print(error.render() + _typed(error, given), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that SIGPIPE ends
    except Exception:
        traceback.print_exc()
        print("error E-BUG: this is a fault of Maskwright, not yours", file=sys.stderr)
        return 70
    return 0


def _typed(error: MaskwrightError, given: Sequence[str]) -> str:
    """How a setting of reading that the message names is typed; empty where it names none."""
    from maskwright.corpus.reading import Reading

    said = f"{error.wanted} {error.do}"
    way = TYPED.get(given[0] if given else "")
    names = [name for name in Reading.__dataclass_fields__ if re.search(rf"\b{name}\b", said)]
    if way is None or not names or "--" in said or error.kind != "E-DATA":
        return ""
    return f"\n  typed:  {', '.join(f'{way}{name}=…' for name in names)}"


def _texts(paths: Sequence[str]) -> None:
    """Refuse texts that are not there, before anything heavy is loaded."""
    for path in paths:
        if not path:
            raise UsageError("empty path", where="--text", found="''",
                             wanted="a file or a folder")  # fmt: skip
        existing(Path(path), "text")


def _refuse_unknown_verb(read: Parser, given: list[str]) -> None:
    verbs = next(a for a in read._actions if isinstance(a, argparse._SubParsersAction)).choices
    first = next((g for g in given if not g.startswith("-")), None)
    if first is not None and first not in verbs:
        raise UsageError(
            "no such verb", found=repr(first), wanted=near(first, verbs), do="maskwright --help"
        )


def next_run(name: str) -> Path:
    """`runs/name-1`, or the first number that is free."""
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path


def existing(path: Path, what: str) -> Path:
    """`path`, if it is there.

    Raises:
        UsageError: it is not; the message names what lies beside it under a near name.
    """
    if path.exists():
        return path
    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UsageError(
        f"no such {what}", where=path, wanted=near(path.name, beside) if beside else None
    )


# -------------------------------------------------------------------------------------- the verbs
def _quickstart(a: argparse.Namespace) -> None:
    from maskwright.quickstart.first_run import quickstart

    quickstart(a.out or next_run("quickstart"), minutes=a.minutes)


def _tokenizer(a: argparse.Namespace) -> None:
    from maskwright.pretrain.tokenizer_run import train_and_report
    from maskwright.tasks.how_read import how_read

    _texts(a.text)
    train_and_report(
        a.text,
        a.out or next_run("tokenizer"),
        kind=a.kind,
        vocabulary=a.vocabulary,
        lowercase=a.lowercase,
        reading=how_read(a.read).reading,
    )


def _pretrain(a: argparse.Namespace) -> None:
    from maskwright.recipes.recipe import find, override, with_text

    recipe = find(a.recipe)
    recipe = override(with_text(recipe, a.text) if a.text else recipe, a.settings)
    _texts(a.text)
    from maskwright.pretrain import run

    out = a.out or next_run(recipe.name)
    checkpoint = run.pretrain(recipe, out)
    print(f"model: {checkpoint}")


def _adapt(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    if not a.text:
        raise UsageError("no text to train on", where="--text",
                         do=f"maskwright adapt {a.model} --text FILE")  # fmt: skip
    _texts(a.text)
    from maskwright.pretrain.further import adapt

    out = a.out or next_run("adapted")
    made = adapt(a.model, a.text, out, minutes=a.minutes, settings=a.settings)
    print(f"model: {made}")


def _resume(a: argparse.Namespace) -> None:
    existing(a.run, "run")
    from maskwright.pretrain import run
    from maskwright.recipes.recipe import override, read

    settings = None
    if a.settings and (a.run / run.RECIPE).is_file():
        settings = override(read(a.run / run.RECIPE), a.settings)
    print(f"model: {run.resume(a.run, settings=settings)}")


def _compare(a: argparse.Namespace) -> None:
    from maskwright.recipes.recipe import find, override, with_text

    begun = [find(name) for name in a.recipes]
    recipes = [override(with_text(r, a.text) if a.text else r, a.settings) for r in begun]
    _texts(a.text)
    if a.data is not None:
        existing(a.data, "data")
    from maskwright.pretrain.compare import compare

    out = a.out or next_run("comparison")
    compare(recipes, out, budget=a.budget, seeds=a.seeds, data=a.data)


def _evaluate(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    _texts(a.text)
    from maskwright.tasks.how_read import how_read

    if a.data is None or a.text:
        from maskwright.pretrain.use import evaluate_folder

        reading = how_read(a.read).reading if a.read else None
        print(evaluate_folder(a.model, a.text, reading=reading))
    if a.data is not None and not a.text and _is_tuned(a.model):
        from maskwright.finetune.evaluate import evaluate_file

        part = None if a.part == "all" else a.part
        columns, read = _named_columns(a), how_read(a.read)
        evaluate_file(a.model, existing(a.data, "data"), part=part, columns=columns, read=read)
    elif a.data is not None:
        from maskwright.pretrain.grammar import evaluate_pairs
        from maskwright.recipes.recipe import is_run

        out = a.out or (a.model if is_run(a.model) else next_run("evaluation"))
        evaluate_pairs(a.model, existing(a.data, "data"), out, how=a.how, part=a.part)


def _finetune(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    existing(a.data, "data")
    columns = _named_columns(a)
    from maskwright.finetune.command import finetune_file
    from maskwright.tasks.how_read import how_read

    finetune_file(
        a.model,
        a.data,
        a.out or next_run("finetune"),
        method=a.method,
        task=a.task,
        columns=columns,
        seeds=a.seeds,
        epochs=a.epochs,
        batch=a.batch,
        rate=a.rate,
        length=a.length,
        long=a.long,
        pooling=a.pooling,
        measure=a.measure,
        layer_decay=a.layer_decay,
        head_rate=a.head_rate,
        patience=a.patience,
        prompt=a.prompt,
        curve=_counts(a.curve),
        read=how_read(a.read),
    )


def _is_tuned(model: Path) -> bool:
    """Whether `finetune` wrote the folder, or the model in it."""
    return any((folder / "task.json").is_file() for folder in (model, model.parent))


def _named_columns(a: argparse.Namespace) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for given in a.column:
        role, equals, name = given.partition("=")
        if not (role and equals and name):
            raise UsageError("not a column", where="--column", found=repr(given),
                             wanted="ROLE=NAME, as text=review")  # fmt: skip
        columns.setdefault(role, []).append(name)
    return columns


def _counts(given: str | None) -> list[int]:
    """Numbers with commas between, 0 for "all"."""
    words = [word.strip() for word in given.split(",")] if given else []
    if not all(word == "all" or (word.isdigit() and int(word)) for word in words):
        raise UsageError("not numbers of labels", where="--curve", found=repr(given),
                         wanted="numbers with commas between, such as 50,200,all")  # fmt: skip
    return [0 if word == "all" else int(word) for word in words]


def _predict(a: argparse.Namespace) -> None:
    for model in (a.model, *a.also):
        existing(model, "model")
    if a.file != STDIN:
        existing(a.file, "file")
    elif sys.stdin.isatty():
        raise UsageError("no rows to answer", wanted="a file, or lines from a pipe",
                         do=f"maskwright predict {a.model} FILE")  # fmt: skip
    columns = _named_columns(a)
    from maskwright.finetune.predict_file import piped, predict_file, write_predictions
    from maskwright.tasks.how_read import how_read

    told: dict[str, Any] = {
        "also": a.also, "columns": columns, "read": how_read(a.read), "top": a.top,
        "say": lambda text: print(text, file=sys.stderr),
    }  # fmt: skip
    with piped(sys.stdin.buffer) if a.file == STDIN else contextlib.nullcontext(a.file) as file:
        if a.out is None:
            predict_file(a.model, file, sys.stdout, **told)
            return
        print(f"{write_predictions(a.model, file, a.out, **told):,} predictions: {a.out}")


def _probe(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    if a.data is not None:
        existing(a.data, "data")
    columns = _named_columns(a)
    from maskwright.tasks.how_read import how_read
    from maskwright.understand.command import probe

    probe(a.model, a.out or next_run("probe"), data=a.data, word=a.word, task=a.task,
          columns=columns, items=a.items, read=how_read(a.read))  # fmt: skip


def _attention(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    for path in [Path(text) for text in a.text] + ([] if a.tree is None else [a.tree]):
        existing(path, "text")
    from maskwright.understand.command import attention

    attention(a.model, a.out or next_run("attention"), text=[Path(text) for text in a.text],
              sentence=a.sentence, tree=a.tree)  # fmt: skip


def _fill_mask(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    from maskwright.pretrain.use import fill_mask

    print(fill_mask(a.model, a.text, top=a.top))


def _generate(a: argparse.Namespace) -> None:
    existing(a.model, "model")
    from maskwright.pretrain.use import generate_text

    print(
        generate_text(
            a.model,
            a.prompt,
            tokens=a.tokens,
            temperature=a.temperature,
            top_k=a.top_k,
            top_p=a.top_p,
            seed=a.seed,
        )
    )


def _show(a: argparse.Namespace) -> None:
    from maskwright.pretrain.show import show

    print(show(a.thing, a.settings))


def _list(a: argparse.Namespace) -> None:
    from maskwright import catalogue

    if a.room is not None and a.room not in ROOMS:
        raise UsageError("there is no list of that", found=repr(a.room), wanted=near(a.room, ROOMS))
    for room in (a.room,) if a.room else ROOMS:
        print(f"{room}: {', '.join(catalogue.names(room))}")


if __name__ == "__main__":
    sys.exit(main())
