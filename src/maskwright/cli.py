"""The command `maskwright`: one verb per thing that can be done, in the order of the work.

Each verb is a file of `verbs/`. Nothing heavy is imported before a verb needs it, so help and
mistakes answer at once. Every verb is one import away in Python (`maskwright.api`): it only reads
arguments, calls, and prints. A refusal is printed in five parts without a traceback (`--debug`
shows it) and its class is the exit code.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from maskwright import __version__
from maskwright.errors import MaskwrightError, ResourceError, UsageError, near, shorten

VERBS = (
    "quickstart", "tokenizer", "pretrain", "adapt", "resume", "compare", "evaluate", "finetune",
    "predict", "probe", "attention", "fill-mask", "generate", "show", "list",
)  # fmt: skip
# How torch says on a processor that it gets no memory.
NO_MEMORY = "can't allocate memory"
# How each verb that reads files is told how to.
LABELLED = ("finetune", "predict", "probe")
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

    for name in VERBS:
        verb = _verb(name)
        made = verbs.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY)
        made.set_defaults(do=verb.do)
        made.add_argument("--debug", action="store_true", help="show the traceback of an error")
        verb.arguments(made)
    return top


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
    except Exception as error:
        told = None if debug else _no_fault_of_ours(error)
        if told is not None:
            print(told.render(), file=sys.stderr)
            return told.exit_code
        traceback.print_exc()
        print("error E-BUG: this is a fault of Maskwright, not yours", file=sys.stderr)
        return 70
    return 0


def _no_fault_of_ours(error: Exception) -> MaskwrightError | None:
    """What is told of an error that may come from anywhere and says nothing of this program."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        # A text stands where a path is read.
        return UsageError("no such file or folder", where=shorten(str(error.filename)),
                          found="a name longer than names may be", wanted="a path")  # fmt: skip
    # By its name: torch is not imported for the sake of its error.
    of_device = type(error).__name__ == "OutOfMemoryError"
    if of_device or isinstance(error, MemoryError) or NO_MEMORY in str(error):
        rest = ", or CUDA_VISIBLE_DEVICES= for the processor's" if of_device else ""
        return ResourceError("out of memory", where="the GPU" if of_device else "this machine",
                             found=shorten(str(error).partition("\n")[0]) or "no more of it",
                             do="less at once (finetune has --accumulate and --length), a "
                             "smaller model" + rest)  # fmt: skip
    return None


def _typed(error: MaskwrightError, given: Sequence[str]) -> str:
    """How a setting of reading that the message names is typed; empty where it names none."""
    from maskwright.corpus.reading import Reading

    said = f"{error.wanted} {error.do}"
    way = TYPED.get(given[0] if given else "")
    names = [name for name in Reading.__dataclass_fields__ if re.search(rf"\b{name}\b", said)]
    if given and given[0] in LABELLED and "column" in names:
        names.remove("column")  # of labelled files that is the role of one: --column ROLE=NAME
    if way is None or not names or "--" in said or error.kind != "E-DATA":
        return ""
    return f"\n  typed:  {', '.join(f'{way}{name}=…' for name in names)}"


def _verb(name: str) -> Any:
    """The module of a verb: its SUMMARY, `arguments` and `do`."""
    return importlib.import_module(f"maskwright.verbs.{name.replace('-', '_')}")


def _refuse_unknown_verb(read: Parser, given: list[str]) -> None:
    verbs = next(a for a in read._actions if isinstance(a, argparse._SubParsersAction)).choices
    first = next((g for g in given if not g.startswith("-")), None)
    if first is not None and first not in verbs:
        raise UsageError(
            "no such verb", found=repr(first), wanted=near(first, verbs), do="maskwright --help"
        )


if __name__ == "__main__":
    sys.exit(main())
