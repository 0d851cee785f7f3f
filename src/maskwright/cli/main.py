"""The command `maskwright`: one verb per thing that can be done, in the order of the work.

Each verb is a file of `verbs/`, which only reads arguments, calls a function of `maskwright.api`,
and prints. Nothing heavy is imported before a verb needs it, so help and mistakes are answered at
once. A refusal is printed in five parts without a traceback (`--debug` shows it), and its class is
the exit code; a signal is printed in one line, and the exit code is 128 + its number.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import itertools
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from maskwright import __version__
from maskwright.base import memory
from maskwright.base.errors import MaskwrightError, ResourceError, UsageError, near, shorten
from maskwright.base.findings import Finding
from maskwright.base.storage import files as storage
from maskwright.base.storage import lock
from maskwright.base.terminal import harmless, harmless_lines, shell_word

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

    def command(self, arguments: Sequence[str]) -> str:
        """The examples in which most of these arguments fit, with the arguments filled in."""
        filled = []
        for words in map(str.split, self.examples):
            unused = list(arguments)
            for number, name in enumerate(words):
                option = "--model" if name == "MODEL" else words[number - 1]
                fitting = (a for a in unused if name.isupper() and FITS.get(name, str)(a))
                if option in self._typed:
                    words[number] = self._typed[option]
                elif (argument := next(fitting, None)) is not None:
                    unused.remove(argument)
                    words[number] = shell_word(argument)
            filled.append((len(unused), " ".join([self.prog, *words])))
        fewest = min(filled, default=(0,))[0]
        commands = [command for num_unused, command in filled if num_unused == fewest]
        return "; or ".join(commands) or f"{self.prog} --help"

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


# Each with its examples, in which names in capitals stand for the user's.
VERBS: dict[str, tuple[str, ...]] = {
    "quickstart": (),
    "curate": ("FILE --out FOLDER",),
    "tokenizer": ("--text FILE",),
    "tokens": ("MODEL TEXT",),
    "pretrain": ("RECIPE --text FILE",),
    "adapt": ("MODEL --text FILE",),
    "resume": ("RUN",),
    "compare": ("RECIPE OTHER --budget minutes=10",),
    "evaluate": ("MODEL --data FILE", "MODEL --text FILE"),
    "finetune": ("MODEL --data FILE",),
    "predict": ("MODEL FILE",),
    "serve": ("MODEL",),
    "probe": ("MODEL --data FILE",),
    "attention": ("MODEL --sentence TEXT", "MODEL --text FILE"),
    "explore": ("MODEL",),
    "fill-mask": ("MODEL TEXT",),
    "generate": ("MODEL TEXT",),
    "bench": ("MODEL --data FILE",),
    "export": ("MODEL --to onnx --out FOLDER",),
    "show": ("RECIPE",),
    "list": ("recipes",),
}
MOST_THREADS = 1024
# What the libraries that compute ask for the number of their threads.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
LIGHT = ("list", "show")  # verbs that compute nothing
# The verbs whose recipe records the number.
RECORDED = ("pretrain", "adapt", "resume", "compare")
# The option by which each verb takes settings of reading.
LABELLED = ("finetune", "predict", "probe")
TYPED = {
    **dict.fromkeys(("pretrain", "adapt", "compare"), "--set corpus."),
    **dict.fromkeys(
        ("curate", "tokenizer", "tokens", "evaluate", "finetune", "predict", "probe"), "--read "
    ),
}
# What makes a verb need less memory.
TRAINS = "a divisor of the batch as --set training.microbatches=N, or a smaller model"
LESS = {
    **dict.fromkeys(
        ("pretrain", "adapt", "compare"), f"shorter rows (--set rows.length=N), {TRAINS}"
    ),
    "resume": TRAINS.partition(",")[0],
    "tokenizer": "less text, or a smaller --vocabulary",
    "finetune": "a step in more portions (--accumulate 4), a smaller --batch, a shorter --length, "
    "or a smaller model",
    "probe": "fewer --items, or a smaller model",
    "attention": "less text, or a smaller model",
    "generate": "fewer --tokens, a shorter prompt, or a smaller model",
    "fill-mask": "a shorter text, or a smaller model",
}


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C asks the command to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def parser(only: str | None = None) -> Parser:
    """The whole command line; with `only`, the options of that verb alone."""
    top = Parser(
        prog="maskwright",
        description="Text of your own to a language Transformer of your own.",
        formatter_class=Help,
        epilog="First time here? Run: maskwright quickstart",
    )
    top.add_argument("--version", action="version", version=f"maskwright {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)

    for name in VERBS:
        verb = _verb(name)
        verb_parser = verbs.add_parser(
            name, help=verb.SUMMARY, description=verb.SUMMARY, formatter_class=Help
        )
        verb_parser.set_defaults(do=verb.do)
        verb_parser.examples = VERBS[name]
        verb_parser.add_argument(
            "--debug", action="store_true", help="show the traceback of an error"
        )
        verb_parser.add_argument(
            "--threads",
            type=int,
            default=None,
            metavar="N",
            help="number of processor threads (default: one for each core)",
        )
        if only in (None, name):
            verb.arguments(verb_parser)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    came: list[int] = []
    try:
        with _signals_are_errors(came):
            _run(given)
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Terminated) else signal.SIGINT
        return _stopped(number, arguments is None)
    except BrokenPipeError:
        # The reader went away; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that SIGPIPE ends
    except Exception as error:
        if came:  # torch makes errors of its own of what stops it
            return _stopped(came[0], arguments is None)
        known = error if isinstance(error, MaskwrightError) else _no_fault_of_ours(error, given)
        if debug or known is None:
            print(harmless_lines(traceback.format_exc()), end="", file=sys.stderr)
        if known is None:
            print("error E-BUG: this is a fault of Maskwright, not yours", file=sys.stderr)
            return 70
        print(known.render() + _typed(known, given), file=sys.stderr)
        return known.exit_code
    return 0


def _stopped(number: int, ends: bool) -> int:
    """Say that a signal came; the exit code. Daft, interrupted, aborts the process when the
    interpreter is taken down, so where it was loaded the process `ends` here."""
    name, code = signal.Signals(number).name, 128 + number
    print("interrupted" if number == signal.SIGINT else f"stopped by {name}", file=sys.stderr)
    if ends and "daft" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(given: Sequence[str]) -> None:
    """Run the command."""
    top = parser(given[0] if given and given[0] in VERBS else None)
    if not given:
        top.print_help()
        return
    verbs = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    name, *rest = given
    if name not in verbs:
        if name.startswith("-") and name not in ("-h", "--help", "--version"):
            raise UsageError(
                "the verb comes first",
                found=repr(shorten(name)),
                do=f"maskwright VERB {shorten(name)} …",
            )
        if not name.startswith("-"):
            raise UsageError(
                "no such verb", found=repr(name), wanted=near(name, verbs), do="maskwright --help"
            )
        top.parse_args([name])  # which ends here
    chosen = verbs[name].read(rest)
    _use_threads(name, chosen)
    if name not in LIGHT:
        memory.require_room_for_libraries()
    with lock.none_empty(getattr(chosen, "out", None)):
        chosen.do(chosen)


def _use_threads(verb: str, chosen: argparse.Namespace) -> None:
    """Compute with the given number of threads, if any; a recipe records it."""
    threads = chosen.threads
    if threads is None:
        return
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(
            "no such number of threads",
            where="--threads",
            found=threads,
            wanted=f"1 to {MOST_THREADS}",
        )
    if threads > (cores := os.cpu_count() or 1):
        what = f"{threads} threads on {cores} cores slow each other down"
        print(Finding("more-threads-than-cores", what).line(), file=sys.stderr)
    os.environ |= dict.fromkeys(THREADS, str(threads))
    if (torch := sys.modules.get("torch")) is not None:  # it has read them already
        torch.set_num_threads(threads)
    if verb in RECORDED:
        chosen.settings = [*chosen.settings, f"training.threads={threads}"]


@contextlib.contextmanager
def _signals_are_errors(came: list[int]) -> Iterator[None]:
    """A block in which SIGTERM and SIGHUP end the command as Ctrl-C does, so that it leaves nothing
    half written; a second signal ends it at once. An ignored signal, as under nohup, stays ignored.

    Args:
        came: gets the numbers of the signals that came, Ctrl-C's too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if came and number != signal.SIGINT:
            os._exit(128 + number)
        came.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    signals = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signals.append(signal.SIGINT)
    before = {s: signal.signal(s, handle) for s in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _no_fault_of_ours(error: Exception, given: Sequence[str]) -> MaskwrightError | None:
    """The refusal for an error of the system (memory, disk, paths) that may occur anywhere; None
    for others."""
    verb = given[0] if given else ""
    if memory.is_shortage(error):
        of_device = memory.of_device(error)
        less = (
            f"less at once: {LESS[verb]}"
            if verb in LESS
            else "end other programs, or use a smaller model"
        )
        rest = "; or CUDA_VISIBLE_DEVICES= for the processor's memory" if of_device else ""
        return ResourceError(
            "out of memory",
            where="the GPU" if of_device else "this machine",
            found=memory.shortage(error),
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
    if isinstance(error, OSError) and error.errno in storage.TOLD:
        return storage.refusal(error, "a file" if error.filename else "standard output")
    return None


def _typed(error: MaskwrightError, given: Sequence[str]) -> str:
    """How to type the setting of reading that the message names; empty if it names none."""
    from maskwright.text.corpus.reading import ReadingOptions

    advice = f"{error.wanted} {error.do}"
    option = TYPED.get(given[0] if given else "")
    names = [
        name for name in ReadingOptions.__dataclass_fields__ if re.search(rf"\b{name}\b", advice)
    ]
    if given and given[0] in LABELLED and "column" in names:
        names.remove("column")  # of labelled files that is the role of one: --column ROLE=NAME
    typed = re.search(r"--(read|set|column)\b", advice)
    if option is None or not names or typed or error.kind != "E-DATA":
        return ""
    return f"\n  typed:  {', '.join(f'{option}{name}=…' for name in names)}"


def _verb(name: str) -> Any:
    """The module of a verb: its SUMMARY, `arguments` and `do`."""
    return importlib.import_module(f"maskwright.cli.verbs.{name.replace('-', '_')}")


if __name__ == "__main__":
    sys.exit(main())
