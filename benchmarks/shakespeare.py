"""Two small models of Tiny Shakespeare by our recipes, and beside the textbook's loop.

    python -m benchmarks.shakespeare quality --seeds 3     perplexity, top-1, top-5, spread
    python -m benchmarks.shakespeare time --turns 60       wall time, beside the textbook's

Reads $MASKWRIGHT_DATA/text/tinyshakespeare.txt. Times are of training alone. The two loops take
turns of ten steps, so that a noisy minute falls on both; the ratio is the median over the turns.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import textbook
from benchmarks.turns import WARM_UP, Side, Turn, alternate
from maskwright.base.budget import Budget
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.pretrain.text import resolve
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train import loop

STEPS, FOREVER = 10, 1_000_000
SIDES = ("ours", "textbook")
PARAMETERS = {"shakespeare-gpt": 186_368, "shakespeare-bert": 186_430}


def ours(recipe: Recipe, folder: Path) -> tuple[dict[str, Any], float]:
    """The recipe's last evaluation, and the seconds its training took."""
    run.pretrain(recipe, folder, stream=io.StringIO())
    last = [r for r in checkpoints.read_journal(folder) if r["kind"] == "evaluation"][-1]
    timing = (folder / "timings.jsonl").read_text().splitlines()[-1]
    return last, float(json.loads(timing)["seconds"])


def quality(seeds: int) -> None:
    for name, parameters in PARAMETERS.items():
        found = []
        for seed in range(seeds):
            recipe = find(name)
            recipe = replace(recipe, training=replace(recipe.training, seed=seed))
            with tempfile.TemporaryDirectory() as scratch:
                found.append(ours(recipe, Path(scratch) / "run")[0])
        print(f"{name}, {parameters:,} parameters, {seeds} seeds")
        for key in ("loss", "perplexity", "bits_per_byte", "top1", "top5"):
            values = [f[key] for f in found if f[key] is not None]
            if values:
                spread = statistics.stdev(values) if len(values) > 1 else math.nan
                print(
                    f"  {key:14} {statistics.mean(values):.4f} ± {spread:.4f}   "
                    + " ".join(f"{v:.4f}" for v in values)
                )


def wall_time(turns: int) -> None:
    for name in PARAMETERS:
        sides = [Side(side, "benchmarks.shakespeare", {"twin": name}) for side in SIDES]
        result = alternate(sides, turns + WARM_UP)
        ours, theirs = (result["sides"][side]["seconds"] / STEPS * 1e3 for side in SIDES)
        ratio = 1 / result["ratios"]["textbook"]
        high, low = (1 / quartile for quartile in result["quartiles"]["textbook"])
        print(
            f"{name}: ours takes {ratio:.3f} of the textbook's time ({low:.3f} to {high:.3f}); "
            f"{ours:.1f} and {theirs:.1f} ms a step, {turns} turns of {STEPS} steps; "
            f"{torch.get_num_threads()} threads"
        )


def worker(side: str, twin: str) -> None:
    """Trains without end, `STEPS` steps to a turn."""
    turn, done = Turn(), 0

    def after() -> None:
        nonlocal done
        done += 1
        if done % STEPS == 0:
            turn.tokens.append(STEPS)
            turn.end(0.0)

    text = resolve("$MASKWRIGHT_DATA/text/tinyshakespeare.txt").read_text("utf-8")
    if side == "textbook":
        learned = textbook.Text.of(text)
        turn.begin()
        textbook.train(learned, causal=twin.endswith("gpt"), steps=FOREVER, seed=0, after=after)
        return
    recipe = find(twin)
    recipe = replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=FOREVER)),
        evaluation=replace(recipe.evaluation, every=0),
        checkpoints=replace(recipe.checkpoints, every=0),
    )
    step = loop.step

    def stepped(*arguments: Any) -> loop.Record:
        if not done:
            turn.begin()  # what comes before the first step is not compared
        record = step(*arguments)
        after()  # what hooks do afterwards is in the next turn
        return record

    loop.step = stepped
    with tempfile.TemporaryDirectory() as scratch:
        run.pretrain(recipe, Path(scratch) / "run", stream=io.StringIO())


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("what", choices=("quality", "time"), nargs="?", default="time")
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--turns", type=int, default=60)
    read.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    read.add_argument("--twin", choices=PARAMETERS, help=argparse.SUPPRESS)
    a = read.parse_args()
    if a.side:
        worker(a.side, a.twin)
    elif a.what == "quality":
        quality(a.seeds)
    else:
        wall_time(a.turns)


if __name__ == "__main__":
    sys.exit(main())
