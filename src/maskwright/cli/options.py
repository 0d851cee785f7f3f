"""What verbs share: options, also one for each field of a dataclass, and checks of arguments."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.base import catalogue, hub
from maskwright.base.calls import RECIPE_SETTINGS
from maskwright.base.config import NONE, hints_of, lines_of, read_table
from maskwright.base.errors import ConfigError, Finding, UsageError, near, near_path
from maskwright.base.storage.files import next_run_folder as next_run_folder
from maskwright.base.terminal import harmless_lines, shell_word
from maskwright.cli.parser import is_model_folder, task_names
from maskwright.model.device.choices import Precision, engine_names

# What makes pretraining need less memory.
MICROBATCHES = "a divisor of the batch as --set training.microbatches=N"
SHORTER_ROWS = f"shorter rows (--set rows.length=N), {MICROBATCHES}, or a smaller model"


def add_model(
    parser: argparse.ArgumentParser, help_text: str = "the folder of a model or a run"
) -> None:
    help_text = f"{help_text}, or a name on the hub"
    parser.add_argument("model", type=Path, exists="model", help=help_text)


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        exists="text",
        help="files or folders: txt, md, jsonl, csv, tsv (also .gz and .zst), parquet",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help="which column has which role, as text=review or label=stars; may be repeated, and "
        "text=title text=body reads one behind the other",
    )


def add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        usual=task_names,
        help="task type (maskwright list tasks; default: inferred from the data)",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        default="torch",
        metavar="NAME",
        usual=engine_names,
        help="what reads texts: torch, our own (default), or another library; one that ends in "
        "-int8 gives slightly other answers",
    )


def add_device(parser: argparse.ArgumentParser, *, precision: bool = False) -> None:
    """Add options for what computes, which `main` applies; `precision`: it has an effect, too."""
    parser.add_argument(
        "--device",
        dest="default_device",
        default="auto",
        metavar="DEVICE",
        help="cpu, cuda, one of several as cuda:1, or auto: a GPU if there is one (default auto)",
    )
    if precision:
        parser.add_argument(
            "--precision",
            choices=typing.get_args(Precision),
            default="auto",
            help="auto is bfloat16 where the machine has matrix units for it (default auto)",
        )


def add_base(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FOLDER",
        help="the model that an adapter or a head saved alone belongs to, where it does not lie "
        "where they say",
    )


def add_read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--read",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how files are read: on_bad=skip, encoding=latin-1, separator=';'; of text also "
        "column=body; of labelled files also header=text,label, fold_labels=true, no_label=-1, "
        "repair_tags=true; may be repeated",
    )


def add_settings(
    parser: argparse.ArgumentParser,
    help_text: str = "change one setting of the recipe, as training.batch=32; may be repeated",
) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help=help_text,
    )


class AsSetting(argparse.Action):
    """An option that stands for `--set PATH=VALUE`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        namespace.settings = [*namespace.settings, f"{self.const}={values}"]


def add_short_settings(parser: argparse.ArgumentParser, *, without: Sequence[str] = ()) -> None:
    """Add options for the usual settings of a recipe, in place of `--set`."""
    for name, keyword in RECIPE_SETTINGS.items():
        option = f"--{name}"
        if option not in without:
            parser.add_argument(
                option,
                action=AsSetting,
                const=keyword.path,
                dest=f"short {keyword.path}",
                default=argparse.SUPPRESS,
                metavar="VALUE",
                help=f"{keyword.description}: --set {keyword.path}=VALUE",
            )


def add_out(
    parser: argparse.ArgumentParser,
    help_text: str = "where to write",
    default_text: str = "the next free folder under runs/",
) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"{help_text} (default: {default_text})",
    )


def add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log",
        metavar="PROGRAM",
        help="write the figures for another program, too: tensorboard, to DIR/tensorboard",
    )


def note(finding: Finding) -> None:
    """Print a finding to standard error; standard output is for answers."""
    print(harmless_lines(finding.line()), file=sys.stderr)


def note_busy(threads: int | None) -> None:
    """Choose the number of threads unless it is `threads`; print it if it is an unusual one."""
    from maskwright.model.device import machine

    if finding := machine.use_threads(threads):
        note(finding)


@contextlib.contextmanager
def resumable(again: str) -> Iterator[None]:
    """Context of work that continues when its command is repeated; prints that where it is
    interrupted. `again` names the command."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print(harmless_lines(f"stopped; {again} goes on"), file=sys.stderr)
        raise


def print_model(checkpoint: Path, run: Path) -> None:
    """Print where a trained model is and which commands use it."""
    from maskwright.base.report.page import next_commands

    print(harmless_lines(f"model: {checkpoint}"))
    print(harmless_lines("\n".join(["next:", *(f"  {command}" for command in next_commands(run))])))


def print_columns(
    rows: Sequence[Sequence[str]], widths_of: Sequence[Sequence[str]] | None = None
) -> None:
    """Print rows of a table with aligned columns, as wide as those of `widths_of`."""
    widths = [max(map(len, column)) for column in zip(*(widths_of or rows), strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(harmless_lines("  ".join(cells).rstrip()))


def parse_columns(a: argparse.Namespace) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for assignment in a.column:
        role, equals, name = assignment.partition("=")
        if not (role and equals and name):
            raise UsageError(
                "not a column",
                where="--column",
                found=repr(assignment),
                wanted="ROLE=NAME, as text=review",
            )
        columns.setdefault(role, []).append(name)
    return columns


def require_paths(parser: argparse.ArgumentParser, a: argparse.Namespace) -> None:
    """Refuse paths that do not exist, before anything heavy is loaded, of all arguments that
    declare this (`exists`, a kind of `require_existing`)."""
    for action in parser._actions:
        kind = getattr(action, "exists", "")
        paths = getattr(a, action.dest, None) if kind else None
        for path in paths if isinstance(paths, list) else [paths]:
            require_existing(None if path is None else Path(path), kind, a.command)


def require_existing(path: Path | None, kind: str, command: str = "") -> None:
    """Refuse a path that does not exist, a file in place of a model folder, and the reverse.

    Args:
        command: an example that works, shown with the error.

    Raises:
        UsageError: with similar names.
    """
    model = kind == "model"
    file = model and path is not None and path.is_file()
    if path is None or (path.exists() and not file):
        if kind in ("data", "file") and path and is_model_folder(path):
            message, remedy = "the folder of a model or a run is no data", "name the data"
            raise UsageError(message, where=path, wanted="rows or texts", do=remedy)
        return
    advice = hub.advice(path) if model and not file and command.find(" MODEL") >= 0 else None
    name = {"model": "MODEL", "run": "RUN", "folder": "FOLDER"}.get(kind, "FILE")
    if not model and (quoted := shell_word(path)) != str(path):  # a model may be a misplaced text
        command = command.replace(quoted, name)
    words = command.replace(";", " ;").split(" ")  # of examples, which are separated so
    for number, word in enumerate(words):
        # A word behind the name of a new folder, or behind `echo`, need not exist.
        if not file and Path(word) == path and words[number - 1] not in ("--out", "echo"):
            words[number] = name
    do = " ".join(words).replace(" ;", ";")
    if advice:
        do = f"{advice}; or the same command with --download"
    if model and str(path) in catalogue.names("recipes"):
        do = f"train this recipe first: maskwright pretrain {path} --text FILE --out runs/{path}"
    expected = "the folder of a model or a run" if file else near_path(path, folders=model)
    raise UsageError(f"no such {kind}", where=path, wanted=expected, do=do or None)


def add_fields(
    parser: argparse.ArgumentParser,
    config: type,
    *,
    without: Collection[str] = (),
    values: Mapping[str, Callable[[], Collection[str]]] | None = None,
) -> None:
    """Add an option for each field of `config`, a number, a text or a flag, with its line of the
    docstring as help. The default is None, which tells options that were not given; `values` has
    functions that return usual values of fields."""
    help_lines = lines_of(config)
    for field in dataclasses.fields(config):
        if field.name in without:
            continue
        option, hint = f"--{field.name.replace('_', '-')}", hints_of(config)[field.name]
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            (hint,) = (arm for arm in typing.get_args(hint) if arm is not NONE)
        text = help_lines.get(field.name, "").rstrip(".")
        usual = field.default
        if usual is not dataclasses.MISSING and not (
            usual is None or usual is False or usual == ""
        ):
            text += f" (default {usual:g})" if isinstance(usual, float) else f" (default {usual})"
        if hint is bool:
            parser.add_argument(option, action="store_true", default=None, help=text)
            continue
        number = {int: "N", float: "X"}.get(hint)
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        parser.add_argument(
            option,
            type=hint if number else str,
            metavar=number or field.name.upper(),
            usual=(values or {}).get(field.name, choices),
            help=text.replace("%", "%%"),
        )


def lower_settings(
    parser: argparse.ArgumentParser,
    config: Path | None,
    prefix: str,
    variables: Mapping[str, str],
) -> dict[str, list[str] | None]:
    """Return the values that the environment gives, and those of a TOML file for the others.

    Args:
        config: the file, with a key for each option: a value, a list of values, a flag as true or
            false, or for options as NAME=VALUE a table; None: no file.
        prefix: of the names of environment variables, which end with the option in capitals; lists
            have commas between their values.
        variables: other names of variables, by option.

    Returns:
        Values by name, such as {"--port": ["80"]}; [] for a flag that is set, None for one that is
        not.

    Raises:
        UsageError, ConfigError: no such option, or a value that it does not take.
    """
    actions = {a.dest: a for a in parser._actions if a.dest not in ("help", "config")}
    values: dict[str, tuple[Any, str]] = {}
    for key, value in ({} if config is None else read_table(config)).items():
        if (name := key.replace("-", "_")) not in actions:
            raise ConfigError(
                "unknown setting", where=f"{config}: {key}", wanted=near(key, actions)
            )
        values[name] = value, f"{config}: {key}"
    for name in actions:
        variable = variables.get(name, f"{prefix}{name.upper()}")
        if variable in os.environ:
            values[name] = os.environ[variable], variable
    return {
        next(iter(actions[name].option_strings), name): _texts_of(actions[name], *value)
        for name, value in values.items()
    }


def _texts_of(action: argparse.Action, value: Any, where: str) -> list[str] | None:
    """Return the words for the value of an option, as `lower_settings`."""
    is_list = isinstance(action, argparse._AppendAction) or action.nargs == "*"
    flags = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if action.nargs == 0:
        expected, flag = "true or false", flags.get(str(value).lower())
        if flag is not None:
            return [] if flag else None
    elif is_list:
        expected = "a list of texts"
        if isinstance(value, str):
            value = [text.strip() for text in value.split(",") if text.strip()]
        if isinstance(value, dict) and action.nargs is None:
            value = [f"{key}={text}" for key, text in value.items()]
        if isinstance(value, list) and all(isinstance(text, str) for text in value):
            return value or None
    else:
        expected = "a text or a number"
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                (action.type if callable(action.type) else str)(str(value))
                return [str(value)]
            except ValueError:
                expected = getattr(action.type, "__name__", expected)
    raise ConfigError("wrong type of value", where=where, found=repr(value), wanted=expected)


def parse_numbers(text: str | None, option: str, zero: str | None = None) -> tuple[int, ...]:
    """Parse whole numbers above 0 with commas between, where the word `zero` stands for 0; none for
    None.

    Raises:
        UsageError: the text is something else.
    """
    words = [word.strip() for word in text.split(",")] if text is not None else []
    if not all(word == zero or (word.isdecimal() and int(word)) for word in words):
        raise UsageError(
            "not whole numbers above 0",
            where=option,
            found=repr(text),
            wanted=f"numbers with commas between, such as 200,50{f',{zero}' if zero else ''}",
        )
    return tuple(0 if word == zero else int(word) for word in words)


def given_options(
    arguments: argparse.Namespace, config: type, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of the fields of `config` whose options were given, by name."""
    names = (field.name for field in dataclasses.fields(config) if field.name not in without)
    values = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
