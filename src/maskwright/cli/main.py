"""The command `maskwright`.

The verbs are an open set: each is a file of `verbs/`, which only reads arguments, calls a function
of `maskwright.api`, and prints. Its `arguments(parser)` adds its options and `do(arguments)` runs
it. It declares `SUMMARY` (its line of the help), `GROUP` and `ORDER` (its position there), and
where they apply:

    EXAMPLES         arguments that work, in which names in capitals stand for the user's
    USES             examples for its help, two or more
    OPTION_GROUP     the title of options that belong to this verb alone, else "options"
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
import os
import platform
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any, NoReturn

from maskwright.base import catalogue, memory, threads
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
from maskwright.base.terminal import harmless_lines
from maskwright.cli.options import require_paths
from maskwright.cli.parser import Help, Parser, usual_values
from maskwright.model.device.choices import by_default, require_device

EPILOG = """\
First time here? Run: maskwright quickstart
Options and examples of a verb: maskwright help VERB

exit codes:
  0        done
  64       the command line, or a setting
  65       text, rows, a tokenizer or a model: damaged, or not fitting each other
  69       memory, or no such device
  70       a fault of Maskwright
  73, 74   writing or reading failed
  75       stopped; `maskwright resume` continues
  128 + N  ended by signal N (130: Ctrl-C)"""
# The order of the groups in the help.
GROUPS = ("text", "pretraining", "labelled rows", "analysis", "models")
MOST_THREADS = 1024


class TerminationSignal(KeyboardInterrupt):
    """A signal other than Ctrl-C asks the command to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Version(argparse.Action):
    """Print what a bug report needs, and end: versions, processor, extras. It imports torch."""

    def __call__(self, parser: argparse.ArgumentParser, *unused: Any) -> NoReturn:
        from maskwright import __version__

        try:
            from maskwright.model.device.machine import summary
        except ImportError as error:
            torch_line = f"torch cannot be imported: {error}"
        else:
            torch_line = summary()
        extras = catalogue.installed_extras()
        print(
            f"maskwright {__version__}",
            f"python {platform.python_version()}, {platform.system()} {platform.machine()}",
            torch_line,
            f"{os.cpu_count()} cores",
            "extras: " + (", ".join(name for name in extras if extras[name]) or "none"),
            "extras that are not installed: "
            + (", ".join(name for name in extras if not extras[name]) or "none"),
            sep="\n",
        )
        parser.exit()


def parser(only: str | None = None) -> Parser:
    """The whole command line; with `only`, the verb of that name alone."""
    top = Parser(
        prog="maskwright",
        description="Text of your own to a language Transformer of your own.",
        formatter_class=Help,
        epilog=EPILOG,
    )
    top.add_argument(
        "--version", action=Version, nargs=0, help="show versions, the processor and the extras"
    )
    subparsers = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)
    headings = set[str]()
    names = [only] if only else catalogue.names("verbs")
    verbs = {name: catalogue.load("verbs", name) for name in names}
    for name, verb in sorted(verbs.items(), key=lambda item: _position(item[1])):
        verb_parser = subparsers.add_parser(
            name, help=verb.SUMMARY, description=verb.SUMMARY, formatter_class=Help
        )
        if verb.GROUP not in headings:
            subparsers._choices_actions[-1].heading = verb.GROUP  # type: ignore[attr-defined]
        headings.add(verb.GROUP)
        verb_parser.set_defaults(do=verb.do)
        verb_parser.examples = getattr(verb, "EXAMPLES", ())
        verb_parser.group = getattr(verb, "OPTION_GROUP", verb_parser.group)
        uses = getattr(verb, "USES", verb_parser.examples)
        verb_parser.epilog = "\n".join(
            ["examples:", *(f"  maskwright {name} {words}" for words in uses)]
        )
        verb_parser.add_argument(
            "--debug", action="store_true", help="show the traceback of an error"
        )
        verb_parser.add_argument(
            "--threads",
            type=int,
            metavar="N",
            help="number of processor threads (default: one for each core, or the fastest "
            "in a test next to busy programs)",
        )
        verb.arguments(verb_parser)
        if any(getattr(action, "hub", False) for action in verb_parser._actions):
            verb_parser.add_argument(
                "--download",
                action="store_true",
                help="download a model that is named as on the Hugging Face hub; without this its "
                "name is looked up in the cache of the hub on this machine",
            )
    return top


def _position(verb: ModuleType) -> tuple[int, int]:
    """The position of a verb in the help; groups of other packages come last."""
    groups = (*GROUPS, verb.GROUP)
    return groups.index(verb.GROUP), verb.ORDER


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
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
    _use_hub(choices[name], options)
    require_paths(choices[name], options)
    if options.threads is not None:
        _use_threads(options, recorded=getattr(verb, "RECORDS_THREADS", False))
    if not getattr(verb, "LIGHT", False):
        threads.prepare()
        memory.require_room_for_libraries()
    with contextlib.ExitStack() as while_it_runs:
        if (device := getattr(options, "default_device", None)) is not None:
            require_device(device, "--device")
            if device not in ("auto", "cpu"):  # found out before any work
                from maskwright.model.device.machine import choose

                choose("float32", device)
            precision = getattr(options, "precision", "auto")
            while_it_runs.enter_context(by_default(device, precision))
        while_it_runs.enter_context(lock.removing_if_empty(getattr(options, "out", None)))
        verb.do(options)


def _use_hub(parser: Parser, options: argparse.Namespace) -> None:
    """Replace names of models on the Hugging Face hub by their folders in the cache, which with
    `--download` are downloaded first. A model of a `--server` has the name that it has there."""
    from maskwright.base import hub

    def folder_of(model: Any, action: argparse.Action) -> Any:
        if model in usual_values(action):
            return model
        if options.download and hub.is_name(model):
            return type(model)(hub.download(str(model)))
        return type(model)(hub.local_folder(model))

    for action in parser._actions:
        models = getattr(options, action.dest, None)
        if not getattr(action, "hub", False) or models is None or getattr(options, "server", None):
            continue
        is_list = isinstance(models, list)
        folders = [folder_of(m, action) for m in models] if is_list else folder_of(models, action)
        setattr(options, action.dest, folders)


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
    names = [  # of names that are words of the language only as `column=…`
        name
        for name in ReadingOptions.__dataclass_fields__
        if re.search(rf"\b{name}\b" if "_" in name else rf"\b{name}=", advice)
    ]
    if getattr(verb, "LABELLED", False) and "column" in names:
        names.remove("column")  # of labelled files that is the role of one: --column ROLE=NAME
    has_option = re.search(r"--(read|set|column)\b", advice)
    if option is None or not names or has_option or error.kind != "E-DATA":
        return ""
    return f"\n  typed:  {', '.join(f'{option}{name}=…' for name in names)}"


if __name__ == "__main__":
    sys.exit(main())
