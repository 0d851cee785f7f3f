"""What to do with texts longer than the model: the ways of `--long`, and models with windows, side
by side.

    python -m benchmarks.long_documents --model FOLDER --out DIR [--task books] [--ways …]

Reads $MASKWRIGHT_DATA. Two tasks, drawn from a seed and written to `DIR/TASK`:

articles   An article of AG News, some forty words, at a random place within a passage of a novel
           (babytext's `gutenberg_novels`), 60 to 1,500 words together, each doubling equally
           likely; the label is the article's, so the evidence lies anywhere. Training, validation
           and test take their novels from different files.
books      Which of eight novels a stretch of some 1,500 words is from (2,000 tokens and more): the
           segments of babytext, in turn to train, validation and test. Names of persons tell, and a
           stretch does not begin with them.

Ways besides those of `--long`: `longformer` and `bigbird` (where the family is there) are made of
the model by `export --to long`, learn their positions by `adapt` on babytext, and read the text at
once; `hierarchical-new` is `hierarchical` for the model's files alone, without what `masked-pieces`
has trained. `--method embeddings` reads each text once and fits a logistic regression on the
vectors, for the ways that it has; as nothing is drawn in it, a seed is then another draw of the
texts. A step of training is eight texts or as many pieces as these have. A seed of a way is a cell
that is kept in DIR: stopped and started again, the script goes on. Seconds are the processor's for
a seed, with reading the data, measuring and the baseline of counted words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.api import finetune_file
from maskwright.base import catalogue
from maskwright.base.metrics.seeds import over_seeds
from maskwright.learn.tasks.base.choices import LONG
from maskwright.model.opening.folders import model_folder

SEED, SHORTEST, LONGEST = 20261122, 60, 1500
# Part -> the file of articles, the file of novels, how many texts for one to learn from.
PARTS = {
    "train": ("train", "train-00", 1.0),
    "validation": ("validation", "train-01", 0.2),
    "test": ("test", "valid", 0.5),
}
ALONE, NEW = "alone", "hierarchical-new"
CONVERTED = {"longformer": "--window", "bigbird": "--block"}
TEXTS, PIECES = 8, 64  # in a step
BOOKS = 8


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def novels(data: Path, file: str) -> list[dict[str, Any]]:
    rows = lines(data / "text" / "babytext" / f"{file}.jsonl.gz")
    return [row for row in rows if row["source"] == "gutenberg_novels"]


def write(path: Path, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (json.dumps({"text": t, "label": label}, ensure_ascii=False) for t, label in rows)
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def write_articles(texts: int, data: Path, out: Path, number: int) -> None:
    """The texts of the draw `number` by part, and the same articles without what surrounds them."""
    for part, (articles, file, share) in PARTS.items():
        count = round(texts * share)
        draw = np.random.default_rng([SEED, *part.encode(), *[number] * bool(number)])
        rows = list(lines(data / "labelled" / "ag_news" / f"{articles}.jsonl.gz"))
        words = [word for row in novels(data, file) for word in row["text"].split()]
        whole, alone = [], []
        for row in (rows[index] for index in draw.permutation(len(rows))[:count]):
            article = row["text"].split()
            length = round(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
            around = max(0, length - len(article))
            begin = int(draw.integers(0, len(words) - around))
            before = int(draw.integers(0, around + 1))
            passage = words[begin : begin + around]
            text = [*passage[:before], *article, *passage[before:]]
            whole.append((" ".join(text), row["label_name"]))
            alone.append((" ".join(article), row["label_name"]))
        write(out / f"articles-{number}" / f"{part}.jsonl", whole)
        write(out / f"{ALONE}-{number}" / f"{part}.jsonl", alone)


def write_books(texts: int, data: Path, out: Path, number: int) -> None:
    """`texts` to learn from, a fifth as many for validation and half as many for the test."""
    segments: dict[str, list[str]] = {}
    for row in novels(data, "train-00") + novels(data, "train-01"):
        segments.setdefault(row["group"], []).append(row["text"])
    chosen = sorted(segments, key=lambda book: (-len(segments[book]), book))[:BOOKS]
    rows: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
    for book in chosen:
        order = np.random.default_rng([SEED, number, *book.encode()]).permutation(
            len(segments[book])
        )
        begin = 0
        for part, (*_, share) in PARTS.items():
            end = begin + round(texts * share / BOOKS)
            rows[part] += [(segments[book][n], book) for n in order[begin:end]]
            begin = end
    for part, of_part in rows.items():
        order = np.random.default_rng([SEED, number, *part.encode()]).permutation(len(of_part))
        write(out / f"books-{number}" / f"{part}.jsonl", [of_part[n] for n in order])


def command(*arguments: object) -> None:
    call = [sys.executable, "-m", "maskwright.cli.main", *map(str, arguments)]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)


def prepared(way: str, a: argparse.Namespace, data: Path) -> tuple[Path, dict[str, Any]]:
    """The model of a way, and what is set for it."""
    settings: dict[str, Any] = {"length": 256, "long": "head" if way == ALONE else way}
    if way == NEW:
        bare = a.out / "bare"
        if not bare.is_dir():
            ignored = shutil.ignore_patterns("training")
            shutil.copytree(model_folder(a.model), bare, ignore=ignored)
            (bare / "MANIFEST.json").unlink(missing_ok=True)
        return bare, {**settings, "long": "hierarchical"}
    if way not in CONVERTED:
        return a.model, settings
    converted, further = a.out / way, a.out / f"{way}-further"
    if not converted.is_dir():
        size = (CONVERTED[way], a.window, "--length", a.length)
        command("export", a.model, "--to", "long", *size, "--out", converted)
    if not (further / "report.html").is_file():
        shutil.rmtree(further, ignore_errors=True)
        rows = max(1, 8192 // a.length)
        text = data / "text" / "babytext" / "train-02.jsonl.gz"
        steps = (f"training.budget.steps={a.adapt}", f"rows.length={a.length}")
        values = [f"--set={v}" for v in (*steps, f"training.batch={rows}", "evaluation.rows=16")]
        command("adapt", converted, "--text", text, "--out", further, *values)
    return further, {"length": a.length, "long": "head"}


def main() -> None:
    families = {name.replace("_", "").replace("-", "") for name in catalogue.names("families")}
    converted = tuple(way for way in CONVERTED if way in families)
    every_way = (ALONE, *LONG[:-1], NEW, *converted)
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", type=Path, required=True)
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--task", choices=("articles", "books"), default="articles")
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--texts", type=int, default=1000)
    read.add_argument("--epochs", type=int, default=3)
    read.add_argument("--rate", type=float)
    read.add_argument("--method", choices=("full", "embeddings"), default="full")
    read.add_argument("--pooling", choices=("cls", "mean", "max"))
    read.add_argument("--window", type=int, default=128, help="tokens of a window or block")
    read.add_argument("--length", type=int, default=2048, help="tokens that these models read")
    read.add_argument("--adapt", type=int, default=50, help="steps in which they learn positions")
    read.add_argument("--ways", nargs="+", choices=every_way, default=every_way)
    a = read.parse_args()
    data = Path(os.environ["MASKWRIGHT_DATA"])
    print("| way | accuracy | 95 % | seeds | seconds |\n|---|---|---|---|---|", flush=True)
    fits = a.method == "embeddings"
    for way in a.ways:
        if (a.task == "books" and way == ALONE) or (fits and way.startswith(("pieces", "hier"))):
            continue
        values, seconds = [], []
        training = {"epochs": a.epochs, "rate": a.rate, "least_steps": 0}
        training["batch"] = PIECES if way.startswith("pieces") else TEXTS
        for seed in range(a.seeds):
            cell = a.out / f"{a.task}-{a.method}-{way}-{seed}"
            figure = cell / "cell.json"
            if not figure.is_file():
                shutil.rmtree(cell, ignore_errors=True)  # what a kill left
                model, settings = prepared(way, a, data)
                draw = seed if fits else 0
                write_texts = write_books if a.task == "books" else write_articles
                write_texts(a.texts, data, a.out, draw)
                begin = time.process_time()
                finetune_file(
                    model,
                    a.out / f"{ALONE if way == ALONE else a.task}-{draw}",
                    cell,
                    method=a.method,
                    pooling=a.pooling,
                    **({} if fits else training | {"seed": seed, "seeds": 1}),
                    stream=(a.out / "log.txt").open("a", encoding="utf-8"),
                    **settings,
                )
                spent = time.process_time() - begin
                (result,) = json.loads((cell / "results.json").read_text())["seeds"]
                figure.write_text(json.dumps({"accuracy": result["accuracy"], "seconds": spent}))
                shutil.rmtree(cell / "model", ignore_errors=True)
            kept = json.loads(figure.read_text())
            values.append(kept["accuracy"])
            seconds.append(kept["seconds"])
        each = " ".join(f"{value:.3f}" for value in values)
        spread = over_seeds(values)
        ends = (max(0.0, spread.low), min(1.0, spread.high))
        interval = "{:.3f} to {:.3f}".format(*ends) if len(values) > 1 else "–"
        mean, time_of_one = statistics.mean(values), statistics.median(seconds)
        print(f"| {way} | {mean:.3f} | {interval} | {each} | {time_of_one:.0f} |", flush=True)


if __name__ == "__main__":
    main()
