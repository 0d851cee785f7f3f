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
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from maskwright import __version__, memory
from maskwright.cli.command_line import Help, Parser
from maskwright.errors import MaskwrightError, ResourceError, UsageError, near, shorten
from maskwright.findings import Finding
from maskwright.storage import files as storage
from maskwright.storage import leftovers
from maskwright.terminal import harmless_lines

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
    with leftovers.none_empty(getattr(chosen, "out", None)):
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
    from maskwright.corpus.reading import Reading

    advice = f"{error.wanted} {error.do}"
    option = TYPED.get(given[0] if given else "")
    names = [name for name in Reading.__dataclass_fields__ if re.search(rf"\b{name}\b", advice)]
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
