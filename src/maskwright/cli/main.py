"""The command `maskwright`.

The verbs are an open set: each is a file of `verbs/`, which only reads arguments, calls a function
of `maskwright.api`, and prints. Its `arguments(parser)` adds its options and `do(arguments)` runs
it. It declares `SUMMARY` (its line of the help), `GROUP` and `ORDER` (its position there), and
where they apply:

    EXAMPLES         arguments that work, in which names in capitals stand for the user's
    LIGHT            True: it computes nothing
    RECORDS_THREADS  True: its recipe records the number of threads
    READING_OPTION   the option that takes settings of reading
    LABELLED         True: the files that it reads are labelled
    LESS_MEMORY      what makes it need less memory
    settings         a function that returns values of arguments that the command line does not
                     give, from the parser and the arguments that it gives

Nothing heavy is imported before a verb needs it, so help and mistakes are answered at once. A
refusal is printed in five parts without a traceback (`--debug` shows it), and its class is the exit
code; a signal is printed in one line, and the exit code is 128 + its number.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any, NoReturn

from maskwright import __version__
from maskwright.base import calls, catalogue, memory, threads
from maskwright.base.errors import (
    Finding,
    MaskwrightError,
    ResourceError,
    UsageError,
    near,
    shorten,
)
from maskwright.base.storage import files as storage
from maskwright.base.storage import lock
from maskwright.base.terminal import harmless, harmless_lines, shell_word

# Usual other names of options, understood by every verb that has the option.
ALIASES = {
    f"--{name}": tuple(f"--{alias.replace('_', '-')}" for alias in aliases)
    for name, aliases in calls.ALIASES.items()
} | {"--out": ("-o",)}
# Whether an argument can replace a name in capitals in the examples of a verb.
FITS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("MODEL", "RUN"), os.path.isdir),
    **dict.fromkeys(("TEXT", "FOLDER"), lambda path: not os.path.exists(path)),
    "FILE": os.path.exists,
}
# Options of other programs that are paths here, and those that have another name here.
PATHS = "corpus data dataset file input model prompt recipe run sentence test text train"
MEANT = {"--format": "--to", "--gpu": "--device", "--label": "--column", "--labels": "--column"}
WANTED = {int: "a whole number", float: "a number"}
NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class Help(argparse.HelpFormatter):
    """Fixes two defaults: argparse ignores the indentation of verbs when it measures columns, and
    repeats the value after each name of an option."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += 2

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


class Parser(argparse.ArgumentParser):
    """argparse with errors in five parts and near names."""

    examples: tuple[str, ...] = ()
    """Arguments that work, in which names in capitals stand for the user's."""
    _positional_words: Sequence[str] = ()
    _option_values: Mapping[str, str] = {}
    """Positional arguments and values of options of the command line that is being parsed."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument with the aliases of its name, or with those in `also`."""
        also = options.pop("also", ALIASES.get(names[-1] if names else "", ()))
        return super().add_argument(*names, *also, **options)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """Convert the text of an argument."""
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


# The order of the groups in the help.
GROUPS = ("text", "pretraining", "labelled rows", "analysis", "models")
MOST_THREADS = 1024


class TerminationSignal(KeyboardInterrupt):
    """A signal other than Ctrl-C asks the command to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def parser(only: str | None = None) -> Parser:
    """The whole command line; with `only`, the verb of that name alone."""
    top = Parser(
        prog="maskwright",
        description="Text of your own to a language Transformer of your own.",
        formatter_class=Help,
        epilog="First time here? Run: maskwright quickstart",
    )
    top.add_argument("--version", action="version", version=f"maskwright {__version__}")
    subparsers = top.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    names = [only] if only else catalogue.names("verbs")
    verbs = {name: catalogue.load("verbs", name) for name in names}
    for name, verb in sorted(verbs.items(), key=lambda item: _position(item[1])):
        verb_parser = subparsers.add_parser(
            name, help=verb.SUMMARY, description=verb.SUMMARY, formatter_class=Help
        )
        verb_parser.set_defaults(do=verb.do)
        verb_parser.examples = getattr(verb, "EXAMPLES", ())
        verb_parser.add_argument(
            "--debug", action="store_true", help="show the traceback of an error"
        )
        verb_parser.add_argument(
            "--threads",
            type=int,
            default=None,
            metavar="N",
            help="number of processor threads (default: one for each core, or the fastest "
            "in a test next to busy programs)",
        )
        verb.arguments(verb_parser)
    return top


def _position(verb: ModuleType) -> tuple[int, int]:
    """The position of a verb in the help; groups of other packages come last."""
    groups = (*GROUPS, verb.GROUP)
    return groups.index(verb.GROUP), verb.ORDER


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb: ModuleType | None = None
    received: list[int] = []
    try:
        with _signals_are_errors(received):
            if words and words[0] in catalogue.names("verbs"):
                verb = catalogue.load("verbs", words[0])
            _run(words, verb)
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, TerminationSignal) else signal.SIGINT
        return _stopped(number, arguments is None)
    except BrokenPipeError:
        # The reader went away; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that SIGPIPE ends
    except Exception as error:
        if received:  # torch makes errors of its own of what stops it
            return _stopped(received[0], arguments is None)
        refusal = error if isinstance(error, MaskwrightError) else _system_refusal(error, verb)
        if "--debug" in words or refusal is None:
            print(harmless_lines(traceback.format_exc()), end="", file=sys.stderr)
        if refusal is None:
            print("error E-BUG: this is a fault of Maskwright, not yours", file=sys.stderr)
            return 70
        print(refusal.render() + _reading_advice(refusal, verb), file=sys.stderr)
        return refusal.exit_code
    return 0


def _stopped(number: int, end_process: bool) -> int:
    """Print which signal ended the command, and return the exit code.

    An interrupted Daft aborts the process when the interpreter shuts down, so with `end_process`
    the process ends here if Daft was loaded.
    """
    name, code = signal.Signals(number).name, 128 + number
    print("interrupted" if number == signal.SIGINT else f"stopped by {name}", file=sys.stderr)
    if end_process and "daft" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(words: Sequence[str], verb: ModuleType | None) -> None:
    """Run the command that `words` make; `verb` is the module of the first, where it is a verb."""
    top = parser(words[0] if verb else None)
    if not words:
        top.print_help()
        return
    choices = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    name, *rest = words
    if verb is None:
        if name.startswith("-") and name not in ("-h", "--help", "--version"):
            raise UsageError(
                "the verb comes first",
                found=repr(shorten(name)),
                do=f"maskwright VERB {shorten(name)} …",
            )
        if not name.startswith("-"):
            raise UsageError(
                "no such verb", found=repr(name), wanted=near(name, choices), do="maskwright --help"
            )
        top.parse_args([name])  # prints and exits
        return
    options = choices[name].read(rest)
    if (settings := getattr(verb, "settings", None)) is not None:
        options = choices[name].read(rest, settings(choices[name], options))
    if options.threads is not None:
        _use_threads(options, recorded=getattr(verb, "RECORDS_THREADS", False))
    if not getattr(verb, "LIGHT", False):
        threads.prepare()
        memory.require_room_for_libraries()
    with lock.removing_if_empty(getattr(options, "out", None)):
        verb.do(options)


def _use_threads(options: argparse.Namespace, recorded: bool) -> None:
    """Compute with the number of threads of `--threads`; `recorded`: in the recipe too."""
    if not 1 <= (count := options.threads) <= MOST_THREADS:
        raise UsageError(
            "no such number of threads",
            where="--threads",
            found=count,
            wanted=f"1 to {MOST_THREADS}",
        )
    if count > (cores := os.cpu_count() or 1):
        message = f"{count} threads on {cores} cores slow each other down"
        print(Finding("more-threads-than-cores", message).line(), file=sys.stderr)
    threads.use(count)
    if (torch := sys.modules.get("torch")) is not None:  # it has read them already
        torch.set_num_threads(count)
    if recorded:
        options.settings = [*options.settings, f"training.threads={count}"]


@contextlib.contextmanager
def _signals_are_errors(received: list[int]) -> Iterator[None]:
    """A block in which SIGTERM and SIGHUP end the command as Ctrl-C does, so that no file is left
    incomplete; a second signal ends it at once. An ignored signal, as under nohup, stays ignored.

    Args:
        received: gets the numbers of the signals that come, Ctrl-C's too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if received and number != signal.SIGINT:
            os._exit(128 + number)
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else TerminationSignal(number)

    ends = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # Windows has no SIGHUP
    signals = [s for s in {*ends} if signal.getsignal(s) != signal.SIG_IGN]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signals.append(signal.SIGINT)
    before = {s: signal.signal(s, handle) for s in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _system_refusal(error: Exception, verb: ModuleType | None) -> MaskwrightError | None:
    """Return the refusal for an error of the system (memory, disk, paths), None for others."""
    if memory.is_shortage(error):
        of_device = memory.is_device_shortage(error)
        less = getattr(verb, "LESS_MEMORY", "")
        less = f"less at once: {less}" if less else "end other programs, or use a smaller model"
        rest = "; or CUDA_VISIBLE_DEVICES= for the processor's memory" if of_device else ""
        return ResourceError(
            "out of memory",
            where="the GPU" if of_device else "this machine",
            found=memory.describe_shortage(error),
            do=less + rest,
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        # A text stands where a path is read.
        return UsageError(
            "no such file or folder",
            where=shorten(str(error.filename)),
            found="a name longer than names may be",
            wanted="a path",
        )
    if isinstance(error, OSError) and error.errno in storage.REFUSED:
        return storage.refusal(error, "a file" if error.filename else "standard output")
    return None


def _reading_advice(error: MaskwrightError, verb: ModuleType | None) -> str:
    """Return a line with the options for the settings of reading that the message names, or ""."""
    from maskwright.text.corpus.reading import ReadingOptions

    advice = f"{error.wanted} {error.do}"
    option = getattr(verb, "READING_OPTION", None)
    names = [
        name for name in ReadingOptions.__dataclass_fields__ if re.search(rf"\b{name}\b", advice)
    ]
    if getattr(verb, "LABELLED", False) and "column" in names:
        names.remove("column")  # of labelled files that is the role of one: --column ROLE=NAME
    has_option = re.search(r"--(read|set|column)\b", advice)
    if option is None or not names or has_option or error.kind != "E-DATA":
        return ""
    return f"\n  typed:  {', '.join(f'{option}{name}=…' for name in names)}"


if __name__ == "__main__":
    sys.exit(main())
