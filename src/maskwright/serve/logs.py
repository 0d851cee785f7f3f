"""Lines of JSON about requests: never a text, a token, a path of this machine, or what a client
wrote into a header."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from typing import Any, TextIO


class Log:
    """Lines of JSON on a stream; None: nowhere. A line that cannot be written, to a full disk or a
    reader that has gone, is lost and counted: requests are answered all the same.

    Attributes:
        lost: how many lines could not be written.
    """

    def __init__(self, stream: TextIO | None = sys.stderr) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self.lost = 0

    def line(self, event: str, **facts: Any) -> None:
        """One line. Control characters are escaped, as JSON does."""
        if self._stream is None:
            return
        made = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, default=str)
        with self._lock:
            try:
                self._stream.write(made + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: the stream is closed
                self.lost += 1

    def failure(self, request: str, error: BaseException) -> None:
        """What failed, and where in the code: without its message, which may quote a text."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = [
            f"{frame.filename.rpartition('maskwright/')[2]}:{frame.lineno}" for frame in frames
        ]
        self.line("failure", request=request, error=type(error).__name__, where=where)
