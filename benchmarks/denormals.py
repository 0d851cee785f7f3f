"""What numbers below the normal range cost a run that has learned something.

    python -m benchmarks.denormals RUN --turns 6     steps of a run with and without them, in turn

A new run of the same recipe begins with the newest weights of RUN, so that attention is as peaked
as it has become; one process switches to and fro. The ratio is the median over the turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.base.budget import Budget
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import override, read
from maskwright.learn.train import loop
from maskwright.model.device import machine

WARM_UP = 2


def measure(folder: Path, turns: int) -> tuple[list[float], list[float]]:
    """Seconds of each step as it comes, and with denormals taken for zero."""
    kept: list[float] = []
    flushed: list[float] = []
    step, within = loop.step, machine.flushed

    def stepped(*arguments: Any) -> loop.Record:
        flush = len(kept) > len(flushed)
        with within() if flush else contextlib.nullcontext():
            begun = time.perf_counter()
            record = step(*arguments)
            (flushed if flush else kept).append(time.perf_counter() - begun)
        return record

    loop.step = stepped
    machine.flushed = contextlib.nullcontext  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as scratch:
        newest = max((folder / "checkpoints").glob("step-*"))
        recipe = override(
            read(folder / run.RECIPE),
            [f"model.folder={newest}", f"tokenizer.folder={folder / 'tokenizer'}"],
        )
        recipe = replace(
            recipe,
            training=replace(recipe.training, budget=Budget(steps=2 * (turns + WARM_UP))),
            evaluation=replace(recipe.evaluation, every=0),
            checkpoints=replace(recipe.checkpoints, every=0),
        )
        run.pretrain(recipe, Path(scratch) / "run", stream=io.StringIO())
    return kept[WARM_UP:], flushed[WARM_UP:]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("run", type=Path)
    ask.add_argument("--turns", type=int, default=6)
    a = ask.parse_args()
    kept, flushed = measure(a.run, a.turns)
    ratios = [k / f for k, f in zip(kept, flushed, strict=False)]
    print(
        f"{a.run}: {statistics.median(kept):.3f} s a step, {statistics.median(flushed):.3f} s with "
        f"denormals taken for zero: {statistics.median(ratios):.2f} times faster "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} turns)"
    )


if __name__ == "__main__":
    sys.exit(main())
