"""Several programs on one machine, compared by taking turns step by step.

Each side is a process of its own, because allocator settings stay with a process. The parent tells
one after the other to do one step, so that a noisy minute of a shared machine falls on all of them.
A ratio is the median over the rounds of the two steps' ratio; memory is the process's peak.

    parent: Side.step() --"go"--> worker: Turn.begin() … one step … Turn.end() --JSON--> parent
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from maskwright.ship.bench.bench import Process

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
