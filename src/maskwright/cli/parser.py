"""Arguments of the command line: argparse with option groups, errors in five parts, near names, and
options before, between and behind the other arguments."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from maskwright.base import calls
from maskwright.base.errors import UsageError, near, shorten
from maskwright.base.terminal import harmless, shell_word

# Usual other names of options, understood by every verb that has the option.
ALIASES = {
    f"--{name}": tuple(f"--{alias.replace('_', '-')}" for alias in aliases)
    for name, aliases in calls.ALIASES.items()
} | {"--out": ("-o",)}


def is_model_folder(path: str | Path) -> bool:
    """Whether a path is the folder of a run, a result or a model."""
    names = ("run.json", "task.json", "config.json")
    return any(os.path.isfile(os.path.join(path, name)) for name in names)


# Whether an argument can replace a name in capitals in the examples of a verb.
FITS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("MODEL", "RUN"), os.path.isdir),
    **dict.fromkeys(("TEXT", "FOLDER"), lambda path: not os.path.exists(path)),
    "FILE": lambda path: os.path.exists(path) and not is_model_folder(path),
    '"TEXT"': lambda text: " " in text and not os.path.exists(text),
    "OTHER": lambda path: not os.path.isfile(path),
}
# Options of other programs that are paths here, and those that have another name here.
PATHS = "corpus data dataset file input model prompt recipe run sentence test text train"
MEANT = {"--format": "--to", "--gpu": "--device", "--label": "--column", "--labels": "--column"}
WANTED = {int: "a whole number", float: "a number"}
# Options that have a group of their own in the help of every verb; the others are in that of the
# verb, which stands before "output".
GENERAL = "general"
OPTION_GROUPS = {
    "arguments": "",
    "data": "--text --data --column --read --task --sentence --image --tree --word --items "
    "--other-data --by --part --labels --hypothesis",
    "model": "--model --base --also --adapter --name --method --pooling --download --against "
    "--beside",
    "output": "--out --dry-run --top --scores --threshold --uncertain --quiet --no-browser",
    "device": "--device --precision --engine --threads",
    GENERAL: "--help --debug",
}
MOST_LISTED = 30  # names of an open set in a help text
NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Help(argparse.HelpFormatter):
    """Fixes three defaults: argparse ignores the indentation of verbs when it measures columns,
    repeats the value after each name of an option, and wraps lists of lines. Known values of an
    open set are listed."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, is_slow = action.help or "", getattr(action, "usual", ()) in SLOW
        names = () if is_slow else usual_values(action)
        if len(names) > MOST_LISTED or all(name in text for name in names):
            return text
        return f"{text}; one of: {', '.join(names)}".replace("%", "%%")

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2

    def _format_action(self, action: argparse.Action) -> str:
        heading = getattr(action, "heading", None)
        return (f"\n  {heading}\n" if heading else "") + super()._format_action(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if len(action.option_strings) < 2 or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def option_name(action: argparse.Action) -> str:
    """Return the name for messages: the first long name of an option, the placeholder of a
    positional argument."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return (long or action.option_strings or [action.dest])[0]


def task_names() -> list[str]:
    """Return the names of task types. They take half a second to load, so no help lists them."""
    from maskwright.text.tables.shapes import shapes

    return list(shapes())


SLOW = (task_names,)


def usual_values(action: argparse.Action) -> Collection[str]:
    """Return the values that an argument usually takes: members of an open set, or words."""
    values = getattr(action, "usual", ())
    return values() if callable(values) else values


class Parser(argparse.ArgumentParser):
    """argparse with option groups, errors in five parts and near names."""

    examples: tuple[str, ...] = ()
    """Arguments that work, in which names in capitals stand for the user's."""
    group = "options"
    """The title of options that are in no group of `OPTION_GROUPS`."""
    _positional_words: Sequence[str] = ()
    _option_values: Mapping[str, str] = {}
    """Positional arguments and values of options of the command line that is being parsed."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument to its group, with the aliases of its name, or with those in `also`;
        `usual` are values that it usually takes, or a function that returns them; `exists`: it
        names paths of this kind, which must exist (see `options.require_paths`); `hub`: it names a
        model, possibly on the hub, as does one of the kind "model"."""
        name = names[-1] if names else ""
        also, usual = options.pop("also", ALIASES.get(name, ())), options.pop("usual", ())
        kind = options.pop("exists", "")
        is_model = options.pop("hub", kind == "model")
        titles = (t for t, members in OPTION_GROUPS.items() if name in members.split())
        group = self._titled(next(titles, self.group) if name[:1] == "-" else "arguments")
        action = group.add_argument(*names, *also, **options)
        action.usual, action.hub, action.exists = usual, is_model, kind  # type: ignore[attr-defined]
        return action

    def _titled(self, title: str) -> argparse._ArgumentGroup:
        groups = (group for group in self._action_groups if group.title == title)
        return next(groups, None) or self.add_argument_group(title)

    def format_help(self) -> str:
        titles = list(OPTION_GROUPS)
        titles[titles.index("output") : 0] = [self.group]
        self._action_groups.sort(key=lambda group: [*titles, group.title].index(group.title))
        needed = [
            f"{option_name(a)} {a.metavar or a.dest.upper()}"
            for a in self._actions
            if a.option_strings and a.required
        ]
        names = {"?": "[{}]", "+": "{0} [{0} ...]", "*": "[{} ...]"}
        positionals = [
            names.get(str(a.nargs), "{}").format(a.metavar or a.dest)
            for a in self._actions
            if not a.option_strings
        ]
        self.usage = " ".join([self.prog, *needed, *positionals, "[options]"])
        return super().format_help()

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """Convert the text of an argument. The empty path of an unset variable would be `.`."""
        if not text and (action.type is Path or bool(getattr(action, "exists", ""))):
            message, where = "empty path", option_name(action)
            raise UsageError(message, where=where, found="''", wanted="a file or a folder")
        for choice in action.choices or ():  # `-` and `_` are equivalent
            if type(choice) is str and choice.replace("_", "-") == text.replace("_", "-"):
                return choice
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type not in WANTED:
                raise
            raise UsageError(
                "wrong type of value",
                where=option_name(action),
                found=repr(shorten(text)),
                wanted=WANTED[action.type],
                do="write such a value, or leave the option out",
            ) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices."""
        if action.choices is not None and value not in action.choices:
            raise UsageError(
                "not one of the choices",
                where=option_name(action),
                found=repr(shorten(str(value))),
                wanted=near(str(value), map(str, action.choices)),
            )

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            harmless(message.replace(": -- ", ": ")), do=self.command(self._positional_words)
        )

    def command(self, arguments: Sequence[str]) -> str:
        """Return the examples that take most of `arguments`, with these filled in."""
        filled = []
        for words in map(str.split, self.examples):
            unused = list(arguments)
            for number, name in enumerate(words):
                option = "--model" if name == "MODEL" else words[number - 1]
                fitting = (a for a in unused if name.isupper() and FITS.get(name, str)(a))
                if option in self._option_values:
                    words[number] = self._option_values[option]
                elif (argument := next(fitting, None)) is not None:
                    unused.remove(argument)
                    words[number] = shell_word(argument)
            filled.append((len(unused), " ".join([self.prog, *words])))
        fewest = min(filled, default=(0,))[0]
        commands = [command for num_unused, command in filled if num_unused == fewest]
        return "; or ".join(commands) or f"{self.prog} --help"

    def read(
        self, words: Sequence[str], defaults: Mapping[str, list[str] | None] | None = None
    ) -> argparse.Namespace:
        """Parse the arguments of a verb, in any order.

        Args:
            defaults: values of arguments that `words` do not give, as of `options.lower_settings`.

        Raises:
            UsageError: an unknown or repeated option, a missing or superfluous argument.
        """
        self._positional_words, self._option_values = (), {}
        options, positionals = self._split_arguments(list(words))
        names = {option.partition("=")[0] for option in options}
        for name, values in (defaults or {}).items():
            if not name.startswith("-"):
                positionals = positionals or values or []
            elif name not in names and values is not None:
                options += [f"{name}={value}" for value in values] or [name]
        self._positional_words = positionals
        namespace = self.parse_args(
            [*options, *(["--", *self._positional_words] if self._positional_words else [])]
        )
        namespace.command = self.command(self._positional_words)
        return namespace

    def _split_arguments(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Return (options as `--option=value`, positional arguments)."""
        options_read: list[tuple[argparse.Action, list[str]]] = []
        options, positionals = list[str](), list[str]()
        while words:
            word = words.pop(0)
            if word == "--":
                positionals += words
                break
            try:
                action = self._find_option(word)
            except UsageError as error:
                if word.removeprefix("--") not in PATHS.split():
                    raise
                beside = itertools.takewhile(lambda argument: argument[:1] != "-", words)
                error.wanted = None
                raise error.advising(self.command([*positionals, *beside])) from None
            if action is None:
                positionals.append(word)
                continue
            sign, value = word.partition("=")[1:]
            if action.nargs == 0:
                options.append(option_name(action))
                continue
            values = [value] if sign else []
            while words and not sign and not self._begins_option(words[0]):
                values.append(words.pop(0))
                if action.nargs is None:
                    break
            if not values:
                raise UsageError(
                    "the option needs a value",
                    where=option_name(action),
                    do=f"{self.prog} --help",
                )
            options_read.append((action, values))
            self._option_values = {**self._option_values, option_name(action): shlex.join(values)}
        self._return_positional(options_read, positionals)
        self._refuse_repeated(options_read)
        for action, values in options_read:
            options += [f"{option_name(action)}={value}" for value in values]
        return options, positionals

    def _find_option(self, word: str) -> argparse.Action | None:
        """Return the option that a word names, or None for a positional argument."""
        if not word.startswith("-") or word == "-":
            return None
        options: dict[str, argparse.Action] = self._option_string_actions
        name = word.partition("=")[0]
        if name[:2] == "--":
            name = name.replace("_", "-")
        if name in options:
            return options[name]
        if " " in word or NUMBER.fullmatch(word):
            return None
        matches = {
            id(options[k]): options[k] for k in options if k.startswith(name) and name[:2] == "--"
        }
        if len(matches) == 1:
            return next(iter(matches.values()))
        raise UsageError(
            "no such option",
            found=repr(shorten(word)),
            wanted=near(MEANT.get(name, name), [k for k in options if k.startswith("--")]),
            do=f"{self.prog} --help; before a text or a name that begins with a dash put --",
        )

    def _begins_option(self, word: str) -> bool:
        """Return whether a word ends the values of the option before it."""
        if word == "--":
            return True
        try:
            return self._find_option(word) is not None
        except UsageError:
            if not word.startswith("--"):
                return False  # a value such as -x
            raise

    def _return_positional(self, options_read: Any, positionals: list[str]) -> None:
        """Move the last value of an option to the positional arguments if these lack one and the
        command line can be read in no other way."""
        declared = [a for a in self._actions if not a.option_strings]
        required = [a for a in declared if a.required]
        lists = [
            values for action, values in options_read if action.nargs == "+" and len(values) > 1
        ]
        if positionals or not required or not lists:
            return
        (last_values, *other_lists) = lists
        one_way = len(declared) == 1 and required[0].nargs is None
        if not other_lists and (one_way or (len(last_values) == 2 and len(required) == 1)):
            positionals.append(last_values.pop())
            return
        names = " ".join(str(a.metavar or a.dest).upper() for a in declared)
        raise UsageError(
            "an option with several values takes all that follows it",
            where=self.prog,
            found=" ".join(last_values),
            wanted=f"{names} before the options, or after --",
        )

    def _refuse_repeated(self, options_read: Any) -> None:
        """Refuse two different values of an option that takes one."""
        assigned: dict[str, str] = {}
        for action, values in options_read:
            if isinstance(action, argparse._StoreAction) and action.nargs is None:
                name = option_name(action)
                if assigned.setdefault(name, values[0]) != values[0]:
                    raise UsageError(
                        "the option is given twice",
                        where=name,
                        found=f"{assigned[name]} and {values[0]}",
                        wanted="one of them",
                        do="give it once",
                    )
