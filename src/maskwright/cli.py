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
    **dict.fromkeys(("tokenizer", "evaluate", "finetune", "predict"), "--read "),
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
        made.add_argument("--debug", action="store_true", help="show the traceback of a refusal")
        return made

    made = verb(
        "quickstart", "train a first model on text that is already here, and report", _quickstart
    )
    made.add_argument("--minutes", type=float, default=4.0, help="how long it may take (default 4)")
    _out(made)

    made = verb("tokenizer", "train a tokenizer on your text and report on it", _tokenizer)
    _text(made)
    made.add_argument(
        "--kind",
        default="wordpiece",
        help="character, bpe, byte-bpe, wordpiece or unigram (default wordpiece)",
    )
    made.add_argument("--vocabulary", type=int, default=8192, help="tokens to learn (default 8192)")
    made.add_argument("--lowercase", action="store_true", help="fold capitals")
    _read(made)
    _out(made)

    made = verb("pretrain", "pretrain a model from a recipe", _pretrain)
    made.add_argument("recipe", help="a built-in recipe, a .toml file, or the folder of a run")
    _text(made)
    _settings(made)
    _out(made)

    made = verb("adapt", "train a model further on text of another kind", _adapt)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    made.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    _settings(made)
    _out(made)

    made = verb("resume", "go on with a run from its last checkpoint", _resume)
    made.add_argument("run", type=Path, help="the folder of the run")
    _settings(made)

    made = verb("compare", "train recipes under an equal budget and tell them apart", _compare)
    made.add_argument("recipes", nargs="+", metavar="recipe", help="two or more, as for pretrain")
    made.add_argument(
        "--budget", required=True, help="of each run: tokens=5e6, minutes=10 or flops=1e15"
    )
    made.add_argument("--seeds", type=int, default=3, help="runs of each recipe (default 3)")
    _text(made)
    _pairs(made)
    _settings(made)
    _out(made)

    made = verb("evaluate", "how well a model predicts held-out text", _evaluate)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    _pairs(made)
    made.add_argument("--how", default=None, help="how sentences are scored (default: as trained)")
    made.add_argument(
        "--part", default="all", help="which pairs: all, choosing (a tenth) or reporting (the rest)"
    )
    _read(made)
    _out(made)

    made = verb("finetune", "teach a model a task by labelled texts", _finetune)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="PATH",
        help="a csv, tsv, jsonl or parquet file, or a folder with train, validation and test",
    )
    made.add_argument(
        "--method",
        default="full",
        help="full, probe (the head alone), last-N (layers), gradual, or an adapter, such as lora "
        "(default full)",
    )
    made.add_argument("--task", default=None, help="what it is, if not what it seems to be")
    _columns(made)
    _read(made)
    made.add_argument("--seeds", type=int, default=3, help="how many are tried (default 3)")
    made.add_argument("--epochs", type=int, default=3, help="passes over the data (default 3)")
    made.add_argument("--batch", type=int, default=32, help="texts per step (default 32)")
    made.add_argument(
        "--rate", type=float, default=None, help="learning rate (default: by the model's width)"
    )
    made.add_argument(
        "--layer-decay", type=float, default=1.0, help="how much slower each lower layer learns"
    )
    made.add_argument(
        "--patience", type=int, default=None, help="epochs without a better figure that end a seed"
    )
    made.add_argument("--length", type=int, default=None, help="most tokens of a text")
    made.add_argument(
        "--long",
        default="head",
        help="what becomes of longer texts: head, tail or head-and-tail stays, or all is read, by "
        "pieces-mean or pieces-max (of the scores of its pieces), vectors-mean or vectors-max (of "
        "their vectors) or hierarchical (layers over the vectors) (default head)",
    )
    made.add_argument(
        "--pooling",
        default=None,
        help="what is read of a text: cls, mean or max (default cls; mean for vectors)",
    )
    made.add_argument(
        "--measure",
        default=None,
        metavar="NAME",
        help="the figure that chooses epoch and seed, such as macro_f1 or matthews "
        "(default: the task's usual one)",
    )
    made.add_argument(
        "--prompt",
        default=None,
        metavar="TEXT",
        help='what a model that writes reads, as "summarize: {source}"',
    )
    made.add_argument(
        "--curve",
        default=None,
        metavar="N,N,all",
        help="make no model, but measure the methods with so many labels each",
    )
    _out(made)

    made = verb("predict", "what a fine-tuned model says to the rows of a file", _predict)
    made.add_argument("model", type=Path, help="what finetune wrote, or a model folder")
    made.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=STDIN,
        help="a table, or a .txt with a text in each line (default, and -: standard input, lines "
        "of text or JSON)",
    )
    made.add_argument(
        "--also",
        nargs="+",
        type=Path,
        default=[],
        metavar="MODEL",
        help="further heads above the same model (of --method probe): each text is read once",
    )
    _columns(made)
    _read(made)
    made.add_argument(
        "--out", type=Path, default=None, help="a .jsonl, .csv or .tsv file (default: the screen)"
    )
    made.add_argument(
        "--top", type=int, default=None, help="the best so many answers for each row, as a list"
    )

    made = verb("probe", "what each layer of a model knows, without training it", _probe)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument(
        "--data",
        type=Path,
        default=None,
        metavar="PATH",
        help="labelled texts or words, or pairs with a number (default: sentences about two banks)",
    )
    made.add_argument(
        "--word",
        default=None,
        help="a word whose meanings are told apart; --data is then a csv of text and label",
    )
    made.add_argument("--task", default=None, help="what the data is, if not what it seems to be")
    _columns(made)
    made.add_argument(
        "--items", type=int, default=None, help="words or texts at most (default 10000)"
    )
    _out(made)

    made = verb("attention", "what the heads of a model look at", _attention)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    _text(made)
    made.add_argument("--sentence", default=None, metavar="TEXT", help="a text that is drawn whole")
    made.add_argument(
        "--tree", type=Path, default=None, metavar="FILE", help="a tree bank in CoNLL-U"
    )
    _out(made)

    made = verb("fill-mask", "the likeliest words for each mask in a text", _fill_mask)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument("text", help="a text with the model's mask token in it, such as [MASK]")
    made.add_argument("--top", type=int, default=5, help="how many words to show (default 5)")

    made = verb("generate", "let a decoder go on with a text, or write one for it", _generate)
    made.add_argument("model", type=Path, help="the folder of a model or a run")
    made.add_argument("prompt", nargs="?", default="", help="how the text begins")
    made.add_argument("--tokens", type=int, default=100, help="how many tokens (default 100)")
    made.add_argument("--temperature", type=float, default=0.8, help="0 is greedy (default 0.8)")
    made.add_argument("--top-k", type=int, default=0, help="draw from the k likeliest (0: all)")
    made.add_argument(
        "--top-p", type=float, default=1.0, help="draw from this share of probability"
    )
    made.add_argument("--seed", type=int, default=0)

    made = verb("show", "a recipe, a run or a model folder in words", _show)
    made.add_argument(
        "thing", help="a built-in recipe, a .toml file, a run folder or a model folder"
    )
    _settings(made)

    made = verb("list", "what there is: families, objectives, recipes", _list)
    made.add_argument("room", nargs="?", help="families, objectives, adapters or recipes")
    return top


def _text(made: Parser) -> None:
    made.add_argument(
        "--text",
        nargs="+",
        default=[],
        metavar="PATH",
        help="files or folders: txt, jsonl, csv, tsv, parquet, also .gz and .zst",
    )


def _columns(made: Parser) -> None:
    made.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help="which column is what, as text=review or label=stars; may be repeated",
    )


def _read(made: Parser) -> None:
    made.add_argument(
        "--read",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how files are read: on_bad=skip, encoding=latin-1, separator=';', column=body; of "
        "labelled ones also header=text,label and fold_labels=true; may be repeated",
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
            raise UsageError("a path of nothing", where="--text", found="''",
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
    if a.data is None or a.text:
        from maskwright.pretrain.use import evaluate_folder
        from maskwright.tasks.how_read import how_read

        reading = how_read(a.read).reading if a.read else None
        print(evaluate_folder(a.model, a.text, reading=reading))
    if a.data is not None:
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
        patience=a.patience,
        prompt=a.prompt,
        curve=_counts(a.curve),
        read=how_read(a.read),
    )


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
    from maskwright.understand.command import probe

    probe(a.model, a.out or next_run("probe"), data=a.data, word=a.word, task=a.task,
          columns=columns, items=a.items)  # fmt: skip


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
