"""Row A3: the twins of Tiny Shakespeare by our recipes, and beside the textbook's loop.

    python -m benchmarks.shakespeare quality --seeds 3     perplexity, top-1, top-5, spread
    python -m benchmarks.shakespeare time --rounds 3       wall time, beside the textbook's

Reads $MASKWRIGHT_DATA/text/tinyshakespeare.txt. Times are of training alone, both sides in one
process, the same steps; the textbook's model is scored by the same questions for a fair look at
quality.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import textbook
from maskwright.pretrain import journal, run
from maskwright.pretrain.prepare import resolve
from maskwright.recipes import shakespeare_bert, shakespeare_gpt
from maskwright.recipes.recipe import Recipe

TWINS = {"shakespeare-gpt": shakespeare_gpt.recipe, "shakespeare-bert": shakespeare_bert.recipe}


def ours(recipe: Recipe, folder: Path) -> tuple[dict[str, Any], float]:
    """The recipe's last evaluation, and the seconds its training took."""
    run.pretrain(recipe, folder, stream=io.StringIO())
    last = [r for r in journal.read(folder) if r["kind"] == "evaluation"][-1]
    timing = (folder / "timings.jsonl").read_text().splitlines()[-1]
    return last, float(json.loads(timing)["seconds"])


def quality(seeds: int) -> None:
    for name, make in TWINS.items():
        found = []
        for seed in range(seeds):
            recipe = make()
            recipe = replace(recipe, training=replace(recipe.training, seed=seed))
            with tempfile.TemporaryDirectory() as scratch:
                found.append(ours(recipe, Path(scratch) / "run")[0])
        parameters = {"shakespeare-gpt": 186_368, "shakespeare-bert": 186_430}[name]
        print(f"{name}, {parameters:,} parameters, {seeds} seeds")
        for key in ("loss", "perplexity", "bits_per_byte", "top1", "top5"):
            values = [f[key] for f in found if f[key] is not None]
            if values:
                spread = statistics.stdev(values) if len(values) > 1 else math.nan
                print(
                    f"  {key:14} {statistics.mean(values):.4f} ± {spread:.4f}   "
                    + " ".join(f"{v:.4f}" for v in values)
                )


def wall_time(rounds: int) -> None:
    text = textbook.Text.of(resolve("$MASKWRIGHT_DATA/text/tinyshakespeare.txt").read_text("utf-8"))
    for name, make in TWINS.items():
        recipe = make()
        recipe = replace(
            recipe,
            evaluation=replace(recipe.evaluation, every=0, rows=64),
            checkpoints=replace(recipe.checkpoints, every=0),
        )
        steps = recipe.training.budget.steps
        assert steps is not None
        ratios, pairs = [], []
        for seed in range(rounds):
            begun = time.perf_counter()
            textbook.train(text, causal=name.endswith("gpt"), steps=steps, seed=seed)
            theirs = time.perf_counter() - begun
            with tempfile.TemporaryDirectory() as scratch:
                mine = ours(recipe, Path(scratch) / "run")[1]
            ratios.append(mine / theirs)
            pairs.append(f"{mine:.1f} / {theirs:.1f} s")
        print(
            f"{name}, {steps} steps: ours takes {statistics.median(ratios):.3f} of the "
            f"textbook's time "
            f"({', '.join(pairs)}); {torch.get_num_threads()} threads"
        )


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("what", choices=("quality", "time"))
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--rounds", type=int, default=3)
    a = read.parse_args()
    if a.what == "quality":
        quality(a.seeds)
    else:
        wall_time(a.rounds)


if __name__ == "__main__":
    sys.exit(main())
