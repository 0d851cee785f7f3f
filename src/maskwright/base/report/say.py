"""How commands tell their user something: a line at a time, on a stream or nowhere.

Names and values in it are made harmless for a terminal. When nobody reads any more (a closed pipe),
the lines are lost and the work goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TextIO

from maskwright.base.terminal import harmless_lines

Say = Callable[[str], None]


def printer(stream: TextIO | None) -> Say:
    """What writes a line to `stream`; None: to standard output."""
    closed = False

    def say(text: str) -> None:
        nonlocal closed
        if closed:
            return
        try:
            print(harmless_lines(text), file=stream or sys.stdout, flush=True)
        except BrokenPipeError:
            closed = True
            if stream is None:
                discard_output()

    return say


def discard_output() -> None:
    """Send standard output nowhere: its reader went away, and what is buffered would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def quiet(text: str) -> None:
    """Say nothing."""
