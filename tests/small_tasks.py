"""Models of each task type in a second: the body of a run of two steps, and a head that is drawn.

Nothing is learned; answers are as good as drawn, but they are answers of every shape.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.api import finetune_file
from maskwright.base.storage.files import write_file
from maskwright.learn.tasks.base.add_head import add_head, reading_texts
from maskwright.learn.tasks.base.encode import frame_of
from maskwright.learn.tasks.base.sentence_transformers_folder import folder_files
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.fine_tuned import MODEL, TASK, TaskRecord, finish
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.model.opening.open import open_weights
from tinyrun import WORDS

LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("meow", "woof", "other"),
    "pair-classification": ("contradiction", "neutral", "entailment"),
    "multi-label": ("meow", "woof", "moo"),
    "tagging": ("O", "B-LOC", "I-LOC"),
}
STRONG = 10.0  # how many times as large as drawn matrices are, so that answers differ


def made(
    base: Path,
    out: Path,
    task: str,
    long: Any = "head",
    options: dict[str, Any] | None = None,
    length: int | None = None,
) -> Path:
    """A finished result of `task` on the model in `base`, of which no head was trained."""
    task_type = task_for(task, LABELS.get(task, ()), options or {})
    loaded = open_weights(base)
    config, family = add_head(loaded, task_type)
    torch.manual_seed(0)
    model = transfer(loaded.network, reading_texts(config, task_type, long)).model
    with torch.no_grad():
        for weight in [] if task_type.writes else model.parameters():
            weight *= STRONG if weight.ndim == 2 else 1.0
    length = length or model.config.longest or 64
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    record = TaskRecord(
        kind=task,
        labels=task_type.labels,
        long=long,
        length=length,
        settled=dict(task_type.options),
        columns={role: (role,) for role in task_type.roles},
    )
    about = About(family=family, labels=task_type.labels, problem_type=problem)
    files = folder_files(task_type, frame_of(config, loaded.tokenizer, length, long), config.width)
    pretrained.save(
        model,
        loaded.tokenizer,
        out / MODEL,
        about,
        more={TASK: record.render().encode()}
        | {name: text.encode() for name, text in files.items()},
    )
    write_file(out / TASK, record.render().encode())
    finish(out, [])
    return out


@pytest.fixture(scope="session")
def small_task(
    model: Path, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Gives the folder of a task, which is made when it is first asked for."""
    folder, known = tmp_path_factory.mktemp("tasks"), {}

    def give(task: str, long: str = "head", **options: Any) -> Path:
        name = "-".join([task, long, *map(str, options.values())]).replace(" ", "_")[:60]
        if name not in known:
            writes = "prompt" in options or task == "sequence-to-sequence"
            base = models["t5"] if writes else model
            known[name] = made(base, folder / name, task, long, options)
        return known[name]

    return give


def table(path: Path, kind: str, count: int = 200) -> Path:
    """Texts with a cat or a dog in them, and what their label says of that."""
    draw = np.random.default_rng(0)
    plain = [word for word in WORDS if word not in ("cat", "dog")]
    rows = []
    for _ in range(count):
        about = draw.integers(0, 2, 2)
        texts = []
        for animal in about:
            words = draw.choice(plain, draw.integers(2, 9)).tolist()
            words.insert(int(draw.integers(0, len(words))), ("cat", "dog")[animal])
            texts.append(" ".join(words))
        first, second = (("meow", "woof")[animal] for animal in about)
        rows.append(
            {
                "classification": [texts[0], first],
                "pair-classification": [*texts, ("other", "same")[int(about[0] == about[1])]],
                "multi-label": [" ".join(texts), "|".join(sorted({first, second}))],
                "regression": [texts[0], f"{about[0] + 0.1 * draw.random():.3f}"],
                "similarity": [*texts, f"{3.5 * (about[0] == about[1]) + draw.random():.3f}"],
            }[kind]
        )
    names = ["text", "label"] if len(rows[0]) == 2 else ["sentence1", "sentence2", "label"]
    if kind in ("regression", "similarity"):
        names[-1] = "score"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def finetuned(model: Path | str, data: Path | str, out: Path | str, **settings: Any) -> Path:
    """Fine-tune one seed on drawn parts, without a word if no `stream` is given."""
    settings = {"seeds": 1, "folds": 0, "stream": io.StringIO(), **settings}
    return Path(finetune_file(model, data, out, **settings))


def write_pooling(folder: Path) -> None:
    """Write what makes a model folder one of sentence-transformers: the mean of all states."""
    (folder / "1_Pooling").mkdir()
    modules = [
        {"idx": n, "name": f"{n}", "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def results_of(out: Path) -> dict[str, Any]:
    """The results of a fine-tuning, as its folder has them."""
    results: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return results


@pytest.fixture(scope="session")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that tells texts with a cat from those with a dog; `printed.txt` lies beside."""
    folder, stream = tmp_path_factory.mktemp("tuned"), io.StringIO()
    data = table(folder / "data.csv", "classification")
    settings = {"seeds": 2, "epochs": 8, "batch": 16, "rate": 1e-2}
    finetuned(model, data, folder / "out", **settings, stream=stream)
    (folder / "printed.txt").write_text(stream.getvalue(), encoding="utf-8")
    return folder / "out"
