"""Parsing of arguments: options and positional arguments of a verb in any order.

argparse gives an option with several values everything that follows, keeps only the last of a
repeated option, and does not find a positional argument after an option. `Parser` first puts the
arguments into the one order that argparse parses correctly.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from maskwright.errors import UsageError, near, shorten
from maskwright.terminal import harmless, shell_word

# Other names that the field has for an option, understood by every verb where it means that.
ALIASES = {
    "--batch": ("--batch-size",),
    "--epochs": ("--num-epochs",),
    "--length": ("--max-length",),
    "--measure": ("--metric",),
    "--out": ("-o",),
    "--rate": ("--lr", "--learning-rate"),
    "--steps": ("--max-steps",),
    "--tokens": ("--max-tokens", "--max-new-tokens"),
    "--top": ("--top-k",),
}
# What an argument must be to stand for a name in capitals in the examples of a verb.
FITS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("MODEL", "RUN"), os.path.isdir),
    **dict.fromkeys(("TEXT", "FOLDER"), lambda path: not os.path.exists(path)),
    "FILE": os.path.exists,
}
# Options of other programs: for what is an argument or the option of a path here, and for others.
PATHS = "corpus data dataset file input model prompt recipe run sentence test text train"
MEANT = {"--format": "--to", "--gpu": "--device", "--label": "--column", "--labels": "--column"}
WANTED = {int: "a whole number", float: "a number"}
NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Help(argparse.HelpFormatter):
    """argparse measures verbs without their own indentation, and then breaks the longer ones."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """All names of an option, and its value once."""
        if len(action.option_strings) < 2 or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def own_name(action: argparse.Action) -> str:
    """The name of an option in messages: its first long name; of a positional argument its
    placeholder."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return (long or action.option_strings or [action.dest])[0]


class Parser(argparse.ArgumentParser):
    """argparse with errors in five parts and near names."""

    examples: tuple[str, ...] = ()
    """Arguments that work, in which names in capitals stand for the user's."""
    _places: Sequence[str] = ()
    _typed: Mapping[str, str] = {}
    """Positional arguments and values of options that are being read."""

    def add_argument(self, *names: Any, **how: Any) -> argparse.Action:
        """The same, with the option's other names, unless `also` says which it has here."""
        also = how.pop("also", ALIASES.get(names[-1] if names else "", ()))
        return super().add_argument(*names, *also, **how)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """The value of `text`.

        Raises:
            UsageError: it says none.
        """
        for choice in action.choices or ():  # of words, `-` and `_` between their parts are one
            if type(choice) is str and choice.replace("_", "-") == text.replace("_", "-"):
                return choice
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type not in WANTED:
                raise
            raise UsageError(
                "wrong type of value",
                where=own_name(action),
                found=repr(shorten(text)),
                wanted=WANTED[action.type],
            ) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of the choices.

        Raises:
            UsageError: with the near ones.
        """
        if action.choices is not None and value not in action.choices:
            raise UsageError(
                "not one of the choices",
                where=own_name(action),
                found=repr(shorten(str(value))),
                wanted=near(str(value), map(str, action.choices)),
            )

    def error(self, message: str) -> NoReturn:
        raise UsageError(harmless(message.replace(": -- ", ": ")), do=self.command(self._places))

    def command(self, places: Sequence[str]) -> str:
        """The examples in which most of these arguments have a place, with them filled in."""
        filled = []
        for words in map(str.split, self.examples):
            left = list(places)
            for number, name in enumerate(words):
                before = "--model" if name == "MODEL" else words[number - 1]
                fitting = (p for p in left if name.isupper() and FITS.get(name, str)(p))
                if before in self._typed:
                    words[number] = self._typed[before]
                elif (place := next(fitting, None)) is not None:
                    left.remove(place)
                    words[number] = shell_word(place)
            filled.append((len(left), " ".join([self.prog, *words])))
        fewest = min(filled, default=(0,))[0]
        found = [command for left, command in filled if left == fewest]
        return "; or ".join(found) or f"{self.prog} --help"

    def read(self, given: Sequence[str]) -> argparse.Namespace:
        """The arguments of a verb, in any order.

        Raises:
            UsageError: an unknown or repeated option, a missing or superfluous argument.
        """
        self._places, self._typed = (), {}
        options, self._places = self._sorted(list(given))
        chosen = self.parse_args([*options, *(["--", *self._places] if self._places else [])])
        chosen.command = self.command(self._places)
        return chosen

    def _sorted(self, given: list[str]) -> tuple[list[str], list[str]]:
        """(options, each with its value as `--option=value`; positional arguments)."""
        found: list[tuple[argparse.Action, list[str]]] = []
        options, places = list[str](), list[str]()
        while given:
            word = given.pop(0)
            if word == "--":
                places += given
                break
            try:
                action = self._option(word)
            except UsageError as error:
                if word.removeprefix("--") not in PATHS.split():
                    raise
                beside = itertools.takewhile(lambda each: each[:1] != "-", given)
                error.wanted = None
                raise error.advising(self.command([*places, *beside])) from None
            if action is None:
                places.append(word)
                continue
            sign, value = word.partition("=")[1:]
            if action.nargs == 0:
                options.append(own_name(action))
                continue
            values = [value] if sign else []
            while given and not sign and not self._begins_option(given[0]):
                values.append(given.pop(0))
                if action.nargs is None:
                    break
            if not values:
                raise UsageError(
                    "the option needs a value",
                    where=own_name(action),
                    do=f"{self.prog} --help",
                )
            found.append((action, values))
            self._typed = {**self._typed, own_name(action): shlex.join(values)}
        self._give_back(found, places)
        self._refuse_repeated(found)
        for action, values in found:
            options += [f"{own_name(action)}={value}" for value in values]
        return options, places

    def _option(self, word: str) -> argparse.Action | None:
        """The option that a word names; None for a positional argument.

        Raises:
            UsageError: it looks like an option and is none.
        """
        if not word.startswith("-") or word == "-":
            return None
        known: dict[str, argparse.Action] = self._option_string_actions
        name = word.partition("=")[0]
        if name[:2] == "--":
            name = name.replace("_", "-")
        if name in known:
            return known[name]
        if " " in word or NUMBER.fullmatch(word):
            return None
        matches = {id(known[k]): known[k] for k in known if k.startswith(name) and name[:2] == "--"}
        if len(matches) == 1:
            return next(iter(matches.values()))
        raise UsageError(
            "no such option",
            found=repr(shorten(word)),
            wanted=near(MEANT.get(name, name), [k for k in known if k.startswith("--")]),
            do=f"{self.prog} --help; before a text or a name that begins with a dash put --",
        )

    def _begins_option(self, word: str) -> bool:
        """Whether a word after an option ends its values."""
        if word == "--":
            return True
        try:
            return self._option(word) is not None
        except UsageError:
            if not word.startswith("--"):
                return False  # a value such as -x
            raise

    def _give_back(self, found: Any, places: list[str]) -> None:
        """If an option with several values has taken the only positional argument that is needed,
        give it back: the line can be read in no other way.

        Raises:
            UsageError: there are other ways.
        """
        wanted = [a for a in self._actions if not a.option_strings]
        needed = [a for a in wanted if a.required]
        lists = [values for action, values in found if action.nargs == "+" and len(values) > 1]
        if places or not needed or not lists:
            return
        (first, *others) = lists
        one_way = len(wanted) == 1 and needed[0].nargs is None
        if not others and (one_way or (len(first) == 2 and len(needed) == 1)):
            places.append(first.pop())
            return
        names = " ".join(str(a.metavar or a.dest).upper() for a in wanted)
        raise UsageError(
            "an option with several values takes all that follows it",
            where=self.prog,
            found=" ".join(first),
            wanted=f"{names} before the options, or after --",
        )

    def _refuse_repeated(self, found: Any) -> None:
        """Refuse two different values for an option that keeps one."""
        assigned: dict[str, str] = {}
        for action, values in found:
            if isinstance(action, argparse._StoreAction) and action.nargs is None:
                name = own_name(action)
                if assigned.setdefault(name, values[0]) != values[0]:
                    raise UsageError(
                        "the option is given twice",
                        where=name,
                        found=f"{assigned[name]} and {values[0]}",
                        wanted="one of them",
                        do="give it once",
                    )
