"""Verdicts on twenty results of known quality.

    MASKWRIGHT_DATA=… python -m benchmarks.verdicts MODEL --out DIR [--only WORD]

Ten results are good: the labels follow from the texts, there are hundreds of rows, and MODEL, a
folder of sentence-transformers, knows the language. Ten are useless: the labels are shuffled, there
are twenty rows or fewer, or numbers stand in the place of the texts. `results.json` gives the state
of each, which is made once. No useless result may be called good, and nine good ones must be. All
together take ten minutes of one core.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from maskwright import api

Row = dict[str, Any]
MOST_CLASSES = 12  # of many more, those that come first by name
# name: (task, rows, further rows for a test part, method)
GOOD = {
    "banking, embeddings": ("banking77", 900, 0, "embeddings"),
    "banking, 300 rows, embeddings": ("banking77", 300, 0, "embeddings"),
    "intents, embeddings": ("clinc150", 900, 0, "embeddings"),
    "two intents, embeddings": ("two intents", 600, 0, "embeddings"),
    "sentiment, embeddings": ("sst2", 800, 0, "embeddings"),
    "tags, embeddings": ("ud_ewt_pos", 200, 0, "embeddings"),
    "questions, full": ("trec", 600, 400, "full"),
    "questions, words": ("trec", 500, 0, "bag-of-words"),
    "sentiment, words": ("sst2", 500, 0, "bag-of-words"),
    "languages, words": ("udhr_langid", 300, 0, "bag-of-words"),
}
USELESS = {
    "shuffled questions, embeddings": ("trec", 500, 0, "embeddings"),
    "shuffled banking, embeddings": ("banking77", 900, 0, "embeddings"),
    "shuffled similarities, embeddings": ("stsb", 400, 0, "embeddings"),
    "shuffled two intents, embeddings": ("two intents", 300, 0, "embeddings"),
    "shuffled sentiment, full": ("sst2", 300, 300, "full"),
    "shuffled sentiment, words": ("sst2", 500, 0, "bag-of-words"),
    "12 questions, embeddings": ("trec", 12, 0, "embeddings"),
    "20 sentiments, words": ("sst2", 20, 0, "bag-of-words"),
    "numbers for news, words": ("ag_news", 500, 0, "bag-of-words"),
    "numbers for paraphrases, embeddings": ("mrpc", 400, 0, "embeddings"),
}
TEXTS = ("tokens", "text", "sentence1", "sentence2")


def rows_of(task: str, count: int) -> list[Row]:
    """Return rows of the training part of a task: its texts, and "label", "labels" or "tags"."""
    name = "clinc150" if task == "two intents" else task
    path = Path(os.environ["MASKWRIGHT_DATA"]) / "labelled" / name / "train.jsonl.gz"
    rows: list[Row] = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    random.Random(0).shuffle(rows)
    label = next(name for name in ("tags", "label_name", "label") if name in rows[0])
    if label == "label_name":
        classes = sorted({row[label] for row in rows})[:MOST_CLASSES]
        rows = [row for row in rows if row[label] in classes]
    if task == "two intents":
        pairs = [random.Random(number).sample(rows, 2) for number in range(count)]
        return [
            {
                "text": " and ".join(row["text"] for row in pair),
                "labels": sorted({row[label] for row in pair}),
            }
            for pair in pairs
        ]
    shown = "tags" if label == "tags" else "label"
    texts = [name for name in TEXTS if name in rows[0]]
    return [{name: row[name] for name in texts} | {shown: row[label]} for row in rows[:count]]


def spoil(rows: list[Row], name: str) -> list[Row]:
    """Return the rows of a useless result: shuffled labels, or numbers for texts, by its name."""
    label, draw = list(rows[0])[-1], random.Random(1)
    if name.startswith("shuffled"):
        others = draw.sample(rows, len(rows))
        return [{**row, label: other[label]} for row, other in zip(rows, others, strict=True)]
    if name.startswith("numbers"):
        return [{t: str(draw.randrange(10**6)) for t in row} | {label: row[label]} for row in rows]
    return rows


def verdict_of(model: Path, folder: Path, name: str, *, good: bool) -> dict[str, Any]:
    """Make the result in `folder`, unless it is there, and return its verdict."""
    task, count, num_test, method = (GOOD if good else USELESS)[name]
    if not (folder / "result/results.json").is_file():
        rows = rows_of(task, count + num_test)
        rows = rows if good else spoil(rows, name)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for part, part_rows in (("train", rows[:count]), ("test", rows[count:])):
            if part_rows:
                lines = "".join(json.dumps(row) + "\n" for row in part_rows)
                (folder / f"data/{part}.jsonl").write_text(lines)
        data = folder / "data" if num_test else folder / "data/train.jsonl"
        seeds = {"seeds": 1} if method == "full" else {}
        out = folder / "result"
        api.finetune_file(model, data, out, method=method, stream=io.StringIO(), **seeds)
    verdict: dict[str, Any] = json.loads((folder / "result/results.json").read_text())["verdict"]
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    for kind, names in (("good", GOOD), ("useless", USELESS)):
        states = []
        for name in (name for name in names if a.only in name):
            begin, folder = time.process_time(), a.out / name.replace(",", "").replace(" ", "-")
            verdict = verdict_of(a.model, folder, name, good=kind == "good")
            states.append(verdict["state"])
            seconds = time.process_time() - begin
            print(f"{name:40}{seconds:6.1f} s  {verdict['sentence']}", flush=True)
        print(f"{states.count('good')} of {len(states)} {kind} results are called good")


if __name__ == "__main__":
    main()
