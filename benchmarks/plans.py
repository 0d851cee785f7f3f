"""Ten planned runs, trained: time, memory and held-out loss against what `plan` said.

    python -m benchmarks.plans [--minutes 0.5] [--runs 10] [--text FILES...]

For each run a process plans a recipe and another one trains it as it stands. Times are of the
processor in training steps, so that others on the same core count for neither side; on an idle
machine with one thread they are those of the clock. Give texts of your own by --text; without, the
embedded corpus is read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

# Recipe, share of the time, and the layers and width that are planned (None: as the time allows).
RUNS: tuple[tuple[str, float, int | None], ...] = (
    ("bert-mini", 1.0, None),
    ("bert-mini", 0.5, None),
    ("bert-mini", 1.0, 1),
    ("bert-mini", 1.0, 2),
    ("bert-mini", 1.0, 3),
    ("gpt2-mini", 1.0, None),
    ("gpt2-mini", 0.5, None),
    ("gpt2-mini", 1.0, 1),
    ("gpt2-mini", 1.0, 2),
    ("gpt2-mini", 1.0, 3),
)


def planned(name: str, minutes: float, shape: int | None, text: list[str], target: str) -> None:
    """Plan a run and print it; with a `shape`, of that size in place of the one that fits."""
    from maskwright.learn.pretrain import plan as planning
    from maskwright.learn.pretrain.cost import measure, sampled
    from maskwright.learn.recipes.base.find import find, with_text

    recipe = with_text(find(name), text)
    recipe = replace(recipe, training=replace(recipe.training, threads=1))
    if shape is None:
        run, *_ = planning.plan(recipe, time=f"{minutes:g}min", write_recipe=Path(target))
    else:
        shaped = planning._with_batch(planning._shaped(recipe, shape), 1e5 * minutes)
        with sampled(shaped) as sample:
            cost = measure(shaped, sample)
            shaped = planning._in_time(shaped, cost, 60 * minutes)
            run = planning._planned(shaped.name, shaped, cost, sample)
        from maskwright.base.config import to_toml

        Path(target).write_text(to_toml(run.recipe), encoding="utf-8")
    seconds = run.seconds * run.cost.processor_share
    print(
        json.dumps(
            [run.recipe.name, run.recipe.training.budget.steps, seconds, run.cost.memory, run.loss]
        )
    )


def trained(recipe: str, out: str) -> None:
    """Train a recipe and print seconds of the processor in steps, peak memory and loss."""
    from maskwright.learn.pretrain import run
    from maskwright.learn.recipes.base.find import read
    from maskwright.learn.train import loop

    seconds, step = [0.0], loop.step

    def timed(*arguments: object, **named: object) -> object:
        start = time.process_time()
        record = step(*arguments, **named)  # type: ignore[arg-type]
        seconds[0] += time.process_time() - start
        return record

    loop.step = timed  # type: ignore[assignment]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        run.pretrain(read(Path(recipe)), out, stream=nowhere)
    lines = {name: (Path(out) / name).read_text().splitlines() for name in FILES}
    peak = max(json.loads(line)["peak_memory"] for line in lines["timings.jsonl"])
    records = map(json.loads, lines["metrics.jsonl"])
    *_, loss = (record["loss"] for record in records if record["kind"] == "evaluation")
    print(json.dumps([seconds[0], peak, loss]))


FILES = ("timings.jsonl", "metrics.jsonl")


def _apart(call: str) -> list[object]:
    """Run a function of this module in a process of its own; return what it prints."""
    code = f"from benchmarks.plans import planned, trained; {call}"
    result = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return list(json.loads(result.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=len(RUNS), help="only the first ones")
    parser.add_argument("--text", nargs="*", default=[])
    a = parser.parse_args()
    hits = {"time": 0, "memory": 0, "loss": 0}
    print(
        "| run | steps | time: plan, run | | memory: plan, run | | loss: plan, run | |\n"
        + "|---" * 8
        + "|"
    )
    for name, share, shape in RUNS[: a.runs]:
        with tempfile.TemporaryDirectory() as folder:
            target, minutes = f"{folder}/recipe.toml", share * a.minutes
            plan = _apart(f"planned({name!r}, {minutes}, {shape}, {a.text!r}, {target!r})")
            run = _apart(f"trained({target!r}, {folder + '/run'!r})")
        title, steps, seconds, memory, loss = plan
        used, peak, held_out = run
        time_ratio, memory_ratio = seconds / used, memory / peak  # type: ignore[operator]
        inside = loss is not None and loss[0] <= held_out <= loss[2]  # type: ignore[index]
        hits["time"] += 0.8 <= time_ratio <= 1.2
        hits["memory"] += 0.85 <= memory_ratio <= 1.15
        hits["loss"] += inside
        expected = "–" if loss is None else "{1:.2f} ({0:.2f} to {2:.2f})".format(*loss)  # type: ignore[misc]
        print(
            f"| {title} | {steps} | {seconds:.1f} s, {used:.1f} s | {time_ratio:.2f} "
            f"| {memory / 1e6:.0f} MB, {peak / 1e6:.0f} MB | {memory_ratio:.2f} "  # type: ignore[operator]
            f"| {expected}, {held_out:.2f} | {'in' if inside else 'out'} |",
            flush=True,
        )
    count = min(a.runs, len(RUNS))
    print(", ".join(f"{name}: {hit} of {count}" for name, hit in hits.items()))


if __name__ == "__main__":
    main()
