"""What to do with texts longer than the model: the ways of `--long`, side by side.

    python -m benchmarks.long_documents --model FOLDER --out DIR --seeds 3 [--texts 1000] [--ways …]

Reads $MASKWRIGHT_DATA. A text is an article of AG News, some forty words, at a random place within
a passage of a novel (babytext's `gutenberg_novels`), 60 to 1,500 words together, each doubling
equally likely; its label is the article's, so the evidence lies anywhere. Training, validation and
test take their novels from different files. All is drawn from a seed and written to `DIR/data`.
Each way is `maskwright finetune --long WAY --length 256` with as many passes over the texts, a step
being eight texts or as many pieces as these have. Started again with the same --out, it goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.tasks.base.choices import LONG

SEED, SHORTEST, LONGEST = 20261122, 60, 1500
# Part -> the file of articles, the file of novels, how many texts for one to learn from.
PARTS = {
    "train": ("train", "train-00", 1.0),
    "validation": ("validation", "train-01", 0.2),
    "test": ("test", "valid", 0.5),
}
ALONE = "the article alone"
TEXTS, PIECES = 8, 64  # in a step


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(part: str, texts: int, data: Path, whole: Path, alone: Path) -> None:
    """The texts of one part, and the same articles without what surrounds them."""
    articles, novels, share = PARTS[part]
    count = round(texts * share)
    draw = np.random.default_rng([SEED, *part.encode()])
    rows = list(lines(data / "labelled" / "ag_news" / f"{articles}.jsonl.gz"))
    text = data / "text" / "babytext" / f"{novels}.jsonl.gz"
    words = [
        word
        for row in lines(text)
        if row["source"] == "gutenberg_novels"
        for word in row["text"].split()
    ]
    with whole.open("w", encoding="utf-8") as long, alone.open("w", encoding="utf-8") as short:
        for number in draw.permutation(len(rows))[:count]:
            row = rows[number]
            article = row["text"].split()
            length = round(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
            around = max(0, length - len(article))
            begin = int(draw.integers(0, len(words) - around))
            before = int(draw.integers(0, around + 1))
            passage = words[begin : begin + around]
            put = [*passage[:before], *article, *passage[before:]]
            for file, shown in ((long, put), (short, article)):
                line = {"text": " ".join(shown), "label": row["label_name"]}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", type=Path, required=True)
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--texts", type=int, default=1000)
    read.add_argument("--epochs", type=int, default=3)
    read.add_argument("--rate", type=float)
    read.add_argument("--ways", nargs="+", choices=(ALONE, *LONG), default=(ALONE, *LONG))
    a = read.parse_args()
    data = Path(os.environ["MASKWRIGHT_DATA"])
    whole, alone = a.out / "data", a.out / "alone"
    for folder in (whole, alone):
        folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        write(part, a.texts, data, whole / f"{part}.jsonl", alone / f"{part}.jsonl")
    print("| way | accuracy | seeds | seconds of training |\n| --- | --- | --- | --- |", flush=True)
    for way in a.ways:
        out = a.out / way.replace(" ", "-")
        if not (out / "results.json").is_file():
            shutil.rmtree(out, ignore_errors=True)  # what a kill left
            finetune_file(
                a.model,
                alone if way == ALONE else whole,
                out,
                method="full",
                seeds=a.seeds,
                epochs=a.epochs,
                length=256,
                rate=a.rate,
                least_steps=0,
                batch=PIECES if way.startswith("pieces") else TEXTS,
                long="head" if way == ALONE else way,
                stream=(a.out / "log.txt").open("a", encoding="utf-8"),
            )
        found = json.loads((out / "results.json").read_text())["seeds"]
        values = [one["accuracy"] for one in found]
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        seconds = statistics.median(one["seconds"] for one in found)
        each = " ".join(f"{value:.3f}" for value in values)
        print(
            f"| {way} | {statistics.mean(values):.3f}{spread} | {each} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
