"""Several programs on one machine, compared by taking turns step by step.

Each side is a process of its own, because allocator settings stay with a process. The parent tells
one after the other to do one step, so that a noisy minute of a shared machine falls on all of them.
A ratio is the median over the rounds of the two steps' ratio; memory is the process's peak.

    parent: Side.step() --"go"--> worker: Turn.begin() … one step … Turn.end() --JSON--> parent
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maskwright.base.errors import ResourceError

WARM_UP = 2
# What glibc is told before a process starts, as `machine.keep_memory` tells it from inside.
TUNED = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=2147483647:"
    "glibc.malloc.top_pad=268435456",
    "THP_MEM_ALLOC_ENABLE": "1",
}


class Turn:
    """A worker's end: it waits for a line, does one step, answers with a line. `tokens` is filled
    by whoever makes the batches, one number per step."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.steps = 0

    def begin(self) -> None:
        if not sys.stdin.readline():
            raise SystemExit(0)
        self.started = time.perf_counter()

    def end(self, loss: float) -> None:
        import torch

        from maskwright.model.device.machine import peak_memory

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - self.started
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_memory()
        tokens = self.tokens[self.steps]
        answer = {"seconds": seconds, "tokens": tokens, "loss": loss, "peak_bytes": memory}
        print(json.dumps(answer), flush=True)
        self.steps += 1
        self.begin()


class Process:
    """The parent's end of `python -m module --side name --key=value …`.

    Attributes:
        turns: the answers of the side, step by step.
        started: seconds from the start of the process to its first line, once `opened` returned.
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
                *(sys.executable, "-m", module, "--side", name),
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def opened(self) -> dict[str, Any]:
        """Wait until the side is open; returns its first message.

        Raises:
            ResourceError: the process ended.
        """
        message = self._line()
        self.started = time.perf_counter() - self._begin
        return message

    def step(self, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the side; returns its answer.

        Raises:
            ResourceError: the process ended.
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
        """The next line that is a JSON object; libraries may print others."""
        assert self._process.stdout
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
        raise self._ended()

    def _ended(self) -> ResourceError:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return ResourceError(
            "a side of the measurement ended",
            where=self.name,
            found=lines[-1] if lines else f"exit code {self._process.returncode}",
        )


class Side(Process):
    """The parent's end of one worker: `python -m module --side name --key=value …`."""

    def __init__(self, name: str, module: str, options: dict[str, Any]) -> None:
        super().__init__(name, module, options, TUNED if name == "tuned" else {})

    def rates(self) -> list[float]:
        """Tokens per second of each step that counts."""
        return [t["tokens"] / t["seconds"] for t in self.turns[WARM_UP:]]

    def figures(self) -> dict[str, float]:
        return {
            "tokens_per_second": statistics.median(self.rates()),
            "seconds": statistics.median(t["seconds"] for t in self.turns[WARM_UP:]),
            "best_tokens_per_second": max(self.rates()),
            "peak_bytes": self.turns[-1]["peak_bytes"],
            "first_loss": self.turns[0]["loss"],
            "last_loss": self.turns[-1]["loss"],
        }


def alternate(sides: Sequence[Side], steps: int) -> dict[str, Any]:
    """All sides in turn, step by step. Ratios are of tokens per second, the first side's over the
    others', medians over the steps after the warm-up."""
    try:
        for number in range(steps):
            for side in sides:
                side.step()
            said = "  ".join(f"{s.name} {s.turns[-1]['seconds'] * 1e3:,.0f} ms" for s in sides)
            print(f"  step {number + 1}: {said}", file=sys.stderr)
    finally:
        for side in sides:
            side.close()
    first = sides[0].rates()
    paired = {s.name: [o / t for o, t in zip(first, s.rates(), strict=True)] for s in sides[1:]}
    return {
        "steps": len(first),
        "sides": {s.name: s.figures() for s in sides},
        "ratios": {name: statistics.median(r) for name, r in paired.items()},
        "quartiles": {name: np.percentile(r, [25, 75]).tolist() for name, r in paired.items()},
    }


def table(head: str, result: dict[str, Any]) -> str:
    """The result as a small Markdown table."""
    first = next(iter(result["sides"]))
    lines = [
        head,
        "",
        f"| side | tokens/s | best | step | peak memory | loss, first and last | {first} is |",
        "|---|---|---|---|---|---|---|",
    ]
    for side, m in result["sides"].items():
        ratio = ""
        if side in result["ratios"]:
            low, high = result["quartiles"][side]
            ratio = f"{result['ratios'][side]:.2f}x ({low:.2f} to {high:.2f})"
        lines.append(
            f"| {side} | {m['tokens_per_second']:,.0f} | {m['best_tokens_per_second']:,.0f} | "
            f"{m['seconds'] * 1e3:,.0f} ms | {m['peak_bytes'] / 2**20:,.0f} MiB | "
            f"{m['first_loss']:.3f} {m['last_loss']:.3f} | {ratio} |"
        )
    return "\n".join(lines)
