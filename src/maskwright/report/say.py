"""How commands tell their user something: a line at a time, on a stream or nowhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

Say = Callable[[str], None]


def printer(stream: TextIO | None) -> Say:
    """What writes a line to `stream`; None: to standard output."""

    def say(text: str) -> None:
        print(text, file=stream or sys.stdout, flush=True)

    return say


def quiet(text: str) -> None:
    """Say nothing."""
