"""SIGTERM, SIGINT and SIGHUP stop a run: it finishes its step, saves a checkpoint, and exits.

The handler only raises a flag. A second signal ends the process at once; the last checkpoint is
complete in any case, because only finished folders get their names.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from maskwright.learn.train.loop import StopFlag

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SignalFlag(StopFlag):
    """A stop flag that remembers which signal raised it."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code after a stop: 128 + the signal's number; SIGTERM's if the signal reached
        another process of the run."""
        return 128 + (self.signal or signal.SIGTERM)


@contextmanager
def listening() -> Iterator[SignalFlag]:
    """Context in which signals raise the flag; afterwards the former handlers are restored.

    Only the main thread can handle signals; in other threads the flag is never raised.
    """
    flag = SignalFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.raised:
            os._exit(128 + number)
        flag.raised = True
        flag.signal = number

    before = {s: signal.signal(s, handle) for s in SIGNALS}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
