"""Output of commands, line by line.

Control characters are escaped for the terminal. If the reader goes away (a closed pipe), lines are
dropped and the work continues.
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
    """Return a function that prints lines to `stream`; None: to standard output."""
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
    """Redirect standard output to the null device, so that flushing its buffer does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def quiet(text: str) -> None:
    """A `Say` that prints nothing."""
