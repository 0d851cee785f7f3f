"""Which learning rate is a good one to begin with, over several tasks.

    python -m benchmarks.rates --model FOLDER --out DIR --rates 1e-4 2e-4 4e-4 [--head-rate 10]

Reads $MASKWRIGHT_DATA, and of it the training and validation parts alone: as many rows as
`--labels`, and 500 more to ask at the end, are drawn from train; epochs are chosen on validation.
Started again with the same --out, it goes on; the table is of what is there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
from pathlib import Path

import numpy as np

from benchmarks.tasks import TASKS
from maskwright.api import finetune_file
from maskwright.base.randomness import key, permute
from maskwright.learn.finetune.result import RESULTS
from maskwright.learn.pretrain.text import resolve

USUAL = ("trec", "mrpc", "stsb", "cola", "banking77")
ASKED = 500


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().rstrip("\n").split("\n")


def parts_of(name: str, labels: int, scratch: Path) -> Path:
    """A folder with so many rows to learn from, and others to choose by and to ask."""
    made = scratch / f"{name}-{labels}"
    if made.is_dir():
        return made
    folder = resolve(f"$MASKWRIGHT_DATA/{TASKS[name][0]}")
    train, validation = (read(folder / f"{part}.jsonl.gz") for part in ("train", "validation"))
    drawn = permute(key("sample", 0), len(train), np.arange(min(len(train), labels + ASKED)))
    rows = [train[number] for number in drawn]
    if len(rows) <= labels:
        raise SystemExit(f"{name} has {len(train):,} rows: none would be left to ask")
    begun = made.with_name(f".{made.name}")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    cut = {"train": rows[:labels], "test": rows[labels:], "validation": validation[:ASKED]}
    for part, lines in cut.items():
        (begun / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in folder.glob("*labels.json"):
        (begun / path.name).write_bytes(path.read_bytes())
    begun.rename(made)
    return made


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--model", type=Path, required=True)
    ask.add_argument("--out", type=Path, required=True)
    ask.add_argument("--seeds", type=int, default=2)
    ask.add_argument("--labels", type=int, default=500, help="to learn from")
    ask.add_argument("--method", default="full")
    ask.add_argument("--rates", type=float, nargs="+", required=True)
    ask.add_argument("--head-rate", type=float, default=1.0, help="how much faster a head learns")
    ask.add_argument("--tasks", nargs="+", choices=TASKS, default=USUAL)
    a = ask.parse_args()
    rows: dict[str, list[str]] = {}
    for name in a.tasks:
        options = {k: v for k, v in TASKS[name][1].items() if k != "rate"}
        for rate in a.rates:
            out = a.out / f"{name}-{a.labels}-{a.method}-{rate:g}-{a.head_rate:g}"
            if not (out / RESULTS).is_file():
                data = parts_of(name, a.labels, a.out / "parts")
                finetune_file(
                    a.model,
                    data,
                    out,
                    seeds=a.seeds,
                    method=a.method,
                    rate=rate,
                    head_rate=a.head_rate,
                    **options,
                )
            found = json.loads((out / RESULTS).read_text())
            values = [one[found["measure"]] or 0.0 for one in found["seeds"]]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            rows.setdefault(f"{name}, {found['measure']}", []).append(
                f"{statistics.mean(values):.3f}{spread}"
            )
    head = ["task, figure", *(f"{rate:g}" for rate in a.rates)]
    for cells in (head, ["---"] * len(head), *([n, *each] for n, each in rows.items())):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
