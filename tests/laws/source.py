"""The package's own source and its verbs, as the laws read them."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import maskwright
from maskwright.cli import main as cli
from maskwright.cli.parser import Parser

SOURCE = Path(maskwright.__file__).parent


@functools.cache
def codes() -> dict[str, str]:
    """Path in the package -> Python code."""
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): file.read_text("utf-8") for file in files}


@functools.cache
def verbs() -> dict[str, Parser]:
    """The parser of each verb."""
    actions = cli.parser()._actions
    return dict(next(a for a in actions if isinstance(a, argparse._SubParsersAction)).choices)
