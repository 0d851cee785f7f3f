"""Completion of commands in a shell, by shtab."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.base.catalogue import require_packages
from maskwright.cli.parser import usual_values

SUMMARY = "print a script that completes verbs, options and files in a shell"
GROUP, ORDER = "models", 7
EXAMPLES = ("bash", "zsh")
USES = (
    "bash > ~/.maskwright-completion.bash",
    "zsh > ~/.zfunc/_maskwright",
)
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="bash or zsh")


def do(a: argparse.Namespace) -> None:
    shtab = require_packages("shell completion", "shtab")
    from maskwright.cli import main

    top = main.parser()
    verbs = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    for action in (action for verb in verbs.values() for action in verb._actions):
        if names := usual_values(action):
            action.choices = list(names)
        elif action.type is Path or action.dest in ("text", "file"):
            action.complete = shtab.FILE
    print(shtab.complete(top, shell=a.shell))
