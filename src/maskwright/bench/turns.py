"""A side is a process of its own, because threads, allocators and caches stay with a process. The
parent lets one after the other do a step, so that a noisy minute falls on all of them.

    parent: Process.step(…) --a JSON line--> the side: one step --a JSON line--> parent
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from maskwright.errors import ResourceError

PAUSE = 0.7
"""Seconds before each turn: idle threads of the side before spin, and would take its cores."""


class Process:
    """The parent's end of `python -m module --side name --key=value …`.

    Attributes:
        turns: what the side answered, step by step.
        started: seconds from the start of the process to its first line, if that was waited for.
    """

    def __init__(
        self,
        name: str,
        module: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.turns, self.started = name, list[dict[str, Any]](), 0.0
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._begin = time.perf_counter()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                module,
                *("--side", name),
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def opened(self) -> dict[str, Any]:
        """What the side says when it is open.

        Raises:
            ResourceError: it ended instead.
        """
        found = self._line()
        self.started = time.perf_counter() - self._begin
        return found

    def step(self, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One step of the side, and its answer.

        Raises:
            ResourceError: its process ended.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(dict(request or {})) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        self.turns.append(self._line())
        return self.turns[-1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._errors.close()

    def _line(self) -> dict[str, Any]:
        """The next line that is an object; libraries print others."""
        assert self._process.stdout
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise self._ended()

    def _ended(self) -> ResourceError:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return ResourceError(
            "a side of the measurement ended",
            where=self.name,
            found=lines[-1] if lines else f"exit code {self._process.returncode}",
            do="measure without it: leave --peers out",
        )
