"""From counts of words to modern Transformers: every family from the same text, on the same tasks.

    python -m benchmarks.ladder pretrain --out DIR [--tokens 3e6] [--models bert-mini …]
    python -m benchmarks.ladder finetune --out DIR [--tasks trec …] [--labels 200 all]
    python -m benchmarks.ladder report --out DIR [--picture FILE.svg]

Reads $MASKWRIGHT_DATA. Each recipe is pretrained on the same shard of babytext, for the same number
of its own tokens; `maskwright experiment` then fine-tunes all of them by the same methods, from the
same rows, in three seeds, and tests the differences. Rows for learning, selection and evaluation
are drawn once. What is finished is not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from benchmarks.few_labels import drawn, write_rows
from benchmarks.worldview_pictures import CSS
from maskwright.base.report.drawing.svg import picture, place, text
from maskwright.learn.finetune.experiment import BAG_OF_WORDS, experiment
from maskwright.learn.pretrain.run import pretrain, resume
from maskwright.learn.recipes.base.find import find, override
from maskwright.text.corpus.saved import is_run

MODELS = {
    "word2vec": "word2vec",
    "glove": "GloVe",
    "elmo-mini": "ELMo",
    "ulmfit-mini": "ULMFiT",
    "bert-mini": "BERT",
    "electra-mini": "ELECTRA",
    "modernbert-mini": "ModernBERT",
    "llama-mini": "Llama",
}
TASKS = {"trec": "accuracy", "sst2": "accuracy", "cola": "matthews"}
METHODS = ("embeddings", "full")
LABELS, ALL = ("200", "all"), 10**6
TEST, VALIDATION = 1000, 500
STATIC = {"word2vec", "glove"}  # trained by another optimizer, with steps of their own size
T_OF_SEEDS = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # Student's t, two-sided 95 %


def pretrain_models(out: Path, names: list[str], tokens: float) -> None:
    """Pretrain each recipe in `out`/runs, or continue its run."""
    text = f"{os.environ['MASKWRIGHT_DATA']}/text/babytext"
    for name in names:
        run = out / "runs" / name
        if is_run(run):
            resume(run)
            continue
        settings = [
            f"corpus.text=['{text}/train-00.jsonl.gz']",
            f"corpus.held_out_text=['{text}/valid.jsonl.gz']",
            f"training.budget.tokens={tokens:.0f}",
        ]
        if name not in STATIC:
            settings.append("training.batch=32")
        pretrain(override(find(name), settings), run)


def parts(task: str, labels: str, out: Path) -> Path:
    """Return the folder of the rows of a task, which is written if it is not there."""
    folder = out / "data" / f"{task}-{labels}"
    if not folder.is_dir():
        begun = folder.with_name(f".{folder.name}")
        begun.mkdir(parents=True, exist_ok=True)
        count = ALL if labels == "all" else int(labels)
        write_rows(begun / "train.jsonl", drawn(task, "train", count))
        write_rows(begun / "validation.jsonl", drawn(task, "validation", VALIDATION))
        write_rows(begun / "test.jsonl", drawn(task, "test", TEST))
        begun.rename(folder)
    return folder


def finetune(out: Path, names: list[str], tasks: list[str], labels: list[str], seeds: int) -> None:
    """Run one experiment for each task and number of labels, over all models that have a run."""
    runs = [str(out / "runs" / name) for name in names if is_run(out / "runs" / name)]
    for task in tasks:
        for count in labels:
            experiment(
                [BAG_OF_WORDS, *runs],
                parts(task, count, out),
                out / "experiments" / f"{task}-{count}",
                methods=METHODS,
                seeds=seeds,
                settings={"measure": TASKS[task], "task": "classification"},
            )


def figures(sheet: dict[str, Any], measure: str) -> dict[str, list[float]]:
    """Return the measure of each seed, by the name of the combination."""
    return {
        name: [seed[measure] or 0.0 for seed in saved["figures"]]
        for name, saved in sheet["combinations"].items()
    }


def spread(values: list[float]) -> float:
    """Half the 95 % interval of the mean over seeds."""
    if len(values) < 2:
        return 0.0
    return T_OF_SEEDS[len(values)] * statistics.stdev(values) / len(values) ** 0.5


def report(out: Path, drawing: Path | None) -> None:
    """Print one table of all experiments, and draw it."""
    sheets = {
        path.parent.name: json.loads(path.read_bytes())
        for path in sorted((out / "experiments").glob("*/sheet.json"))
    }
    columns = {n: figures(sheet, TASKS[n.split("-")[0]]) for n, sheet in sheets.items()}
    print(f"| | method | {' | '.join(columns)} |")
    print("|---" * (2 + len(columns)) + "|")
    rows = [("bag of words", "", BAG_OF_WORDS)]
    rows += [(label, m, f"{name} + {m}") for name, label in MODELS.items() for m in METHODS]
    for label, method, name in rows:
        cells = [column.get(name) for column in columns.values()]
        shown = [f"{statistics.mean(v):.3f} ± {spread(v):.3f}" if v else "–" for v in cells]
        if any(cells):
            print(f"| {label} | {method} | {' | '.join(shown)} |")
    for name, sheet in sheets.items():
        print(f"\n{name}: {sheet['verdict']}")
    if drawing is not None:
        drawing.write_text(draw(columns, rows) + "\n", encoding="utf-8")


def draw(columns: dict[str, dict[str, list[float]]], rows: list[tuple[str, str, str]]) -> str:
    """Return one panel for each experiment: a mark for each model, with its interval over seeds."""
    names, wide, row_height, panel = 150, 190, 26, 230
    elements = [f"<style>{CSS}</style>"]
    shown = [row for row in rows if any(row[2] in column for column in columns.values())]
    for number, (label, method, _) in enumerate(shown):
        words = f"{label}, {method}" if method else label
        elements.append(text(names - 8, 48 + row_height * number, words, anchor="end", css="ink"))
    for place_of, (title, column) in enumerate(columns.items()):
        left = names + panel * place_of
        bounds = [v for values in column.values() for v in values]
        low, high = min(bounds) - 0.03, max(bounds) + 0.03
        elements.append(text(left, 16, title.replace("-", ", ") + " labels", css="ink title"))
        for number, (_, method, name) in enumerate(shown):
            if not (values := column.get(name)):
                continue
            y, middle, half = 44 + row_height * number, statistics.mean(values), spread(values)
            ends = [
                left + wide * (min(max(v, low), high) - low) / (high - low)
                for v in (middle - half, middle, middle + half)
            ]
            css = {"": "six", "embeddings": "two", "full": "one"}[method]
            elements.append(
                f'<line class="grid" x1="{left}" x2="{left + wide}" y1="{y}" y2="{y}"/>'
            )
            elements.append(
                f'<path class="line {css}" d="M{place(ends[0])} {y}H{place(ends[2])}"/>'
                f'<circle class="dot {css}" cx="{place(ends[1])}" cy="{y}" r="4"/>'
            )
            elements.append(text(left + wide + 4, y + 4, f"{middle:.2f}", size=10))
    height = 60 + row_height * len(shown)
    label = "The score of every model on every task, with its interval over seeds"
    return str(picture(names + panel * len(columns), height, label, elements, sized=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("pretrain", "finetune", "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--labels", nargs="+", default=[*LABELS], help="numbers, or all")
    parser.add_argument("--tokens", type=float, default=3e6, help="of each pretraining")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="an SVG file that the report draws")
    a = parser.parse_args()
    if a.step == "pretrain":
        pretrain_models(a.out, a.models, a.tokens)
    elif a.step == "finetune":
        finetune(a.out, a.models, a.tasks, a.labels, a.seeds)
    else:
        report(a.out, a.picture)


if __name__ == "__main__":
    main()
