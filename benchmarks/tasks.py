"""One model on many labelled tasks, beside the same architecture from scratch and beside what needs
no pretraining.

    python -m benchmarks.tasks --model FOLDER --out DIR --seeds 3 [--labels 2000] [--tasks trec …]

Reads $MASKWRIGHT_DATA. Each task is `maskwright finetune --curve N`, with all labels or no more
than `--labels`: epochs are chosen on the validation part, the test part is asked once for each
seed. A set whose test part has no labels is
asked on what it calls validation, and its own validation is cut from train. Started again with the
same --out, it goes on; the table is of what is there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from pathlib import Path
from typing import Any

from maskwright.api import finetune_file
from maskwright.base.errors import MaskwrightError
from maskwright.learn.pretrain.text import resolve

# Folder, and what finetune has to be told.
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "sst2": ("labelled/sst2", {}),
    "trec": ("labelled/trec", {}),
    "clinc150": ("labelled/clinc150", {"epochs": 10}),
    "banking77": ("labelled/banking77", {"epochs": 10}),
    "cola": ("labelled/cola", {"measure": "matthews"}),
    "rte": ("labelled/rte", {}),
    "mrpc": ("labelled/mrpc", {}),
    "stsb": ("labelled/stsb", {}),
    "ag_news": ("labelled/ag_news", {"length": 128}),
    "ud_pos": ("labelled/ud_ewt_pos", {}),
    "wnut17": ("labelled/wnut17_ner", {"epochs": 5}),
    "squad": ("squad", {}),
    "multi30k": ("translation/multi30k_en_de", {"epochs": 10, "rate": 5e-4}),
    "scitldr": (
        "summarization/scitldr_a",
        {
            "epochs": 10,
            "rate": 5e-4,
            "columns": {
                "source": ["document"],
                "target": ["summary"],
                "references": ["all_summaries"],
            },
        },
    ),
}
WRITTEN = ("multi30k", "scitldr")
PRETRAINED = "full"


def parts_of(folder: Path, scratch: Path) -> Path:
    """The folder; without a labelled test part, one in which validation is the test."""
    if list(folder.glob("test[.-]*")):
        return folder
    made = scratch / folder.name
    made.mkdir(parents=True, exist_ok=True)
    for old, new in (("train", "train"), ("validation", "test"), ("dev", "test")):
        for path in folder.glob(f"{old}[.-]*"):
            link = made / path.name.replace(old, new, 1)
            if not link.exists():
                link.symlink_to(path.resolve())
    return made


def rows_of(folder: Path) -> int:
    """How many examples there are to learn from: a row a line, or the questions of SQuAD."""
    path = next(folder.glob("train*"))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        if path.name.endswith(".json.gz"):
            articles = json.load(file)["data"]
            return sum(len(p["qas"]) for article in articles for p in article["paragraphs"])
        return sum(1 for _ in file)


def line(name: str, found: dict[str, Any]) -> list[str]:
    """Pretrained, from scratch, and the others, mean ± deviation over the seeds."""
    cells = {}
    for way, by_count in found["figures"].items():
        ((labels, by_seed),) = by_count.items()
        values = list(by_seed.values())
        spread = f" ± {statistics.stdev(values):.3f}" if len(set(values)) > 1 else ""
        cells[way] = f"{statistics.mean(values):.3f}{spread}"
    ours, scratch = cells.pop(PRETRAINED), cells.pop("from scratch")
    others = "; ".join(f"{w.removesuffix(' (no pretraining)')} {v}" for w, v in cells.items())
    return [name, f"{int(labels):,}", found["measure"], f"**{ours}**", scratch, others]


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", type=Path, required=True)
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--labels", type=int, help="to learn from, at most; all if not said")
    usual = [name for name in TASKS if name not in WRITTEN]
    read.add_argument("--tasks", nargs="+", choices=TASKS, default=usual)
    a = read.parse_args()
    for name in a.tasks:
        where, options = TASKS[name]
        data = parts_of(resolve(f"$MASKWRIGHT_DATA/{where}"), a.out / "parts")
        count = 0 if a.labels is None or a.labels >= rows_of(data) else a.labels
        try:
            finetune_file(a.model, data, a.out / name, seeds=a.seeds, curve=[count], **options)
        except MaskwrightError as error:
            print(error.render())
    head = ["task, test part", "labels", "figure", "pretrained", "same from scratch", "no model"]
    rows = [
        line(name, json.loads((a.out / name / "curve.json").read_text()))
        for name in TASKS
        if (a.out / name / "curve.json").is_file()
    ]
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
