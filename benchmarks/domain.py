"""Training further on text of one's own kind: what is won there, and what is lost elsewhere.

    python -m benchmarks.domain --out DIR --seeds 3 [--tokens 5e6] [--further 1e6]

Reads $MASKWRIGHT_DATA. bert-mini learns babytext without its news source (`ag_news_train`); then it
is trained further (`maskwright adapt`) on that source alone, and beside it, for as many tokens, on
what it knows already. Each seed draws weights, order and masks anew. Asked are the held-out losses
of both texts, and AG News with few labels, which the labels' own draw and head vary. Started again
with the same --out, it goes on.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.budget import Budget
from maskwright.learn.finetune.learner import Learner
from maskwright.learn.finetune.method import FULL, Method
from maskwright.learn.finetune.tune import Settings
from maskwright.learn.pretrain import continued_pretraining as further
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find, with_text
from maskwright.learn.recipes.base.recipe import Checkpoints, Evaluation, Recipe
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.learn.train.settings import AdamW
from maskwright.text.tables import splits
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import prepare

NEWS = "ag_news_train"
MODELS = ("before", "on news", "on the old text")
TEXTS = ("news", "general")
COUNTS, EPOCHS, LEAST, ASKED, OTHER = (50, 200), 3, 100, 2_000, 1_000


def write_texts(data: Path, out: Path) -> None:
    """babytext in two, by part: news and the rest."""
    parts = {"train": sorted(data.glob("train-0*.jsonl.gz")), "valid": [data / "valid.jsonl.gz"]}
    for part, paths in parts.items():
        names = {True: out / f"news-{part}.jsonl", False: out / f"general-{part}.jsonl"}
        if all(path.is_file() for path in names.values()):
            continue
        made = {which: path.with_suffix(".part") for which, path in names.items()}
        files = {which: path.open("w", encoding="utf-8") for which, path in made.items()}
        for path in paths:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    files[json.loads(line)["source"] == NEWS].write(line)
        for which, file in files.items():
            file.close()
            made[which].replace(names[which])


def trained(recipe: Recipe, texts: list[Path], tokens: float, seed: int, out: Path) -> Path:
    """The run in `out`, which is made if it is not there."""
    if not (out / "done").is_file():
        training = replace(recipe.training, seed=seed, budget=Budget(tokens=int(tokens)))
        recipe = replace(
            recipe,
            training=training,
            evaluation=Evaluation(every=0),
            checkpoints=Checkpoints(every=0, keep=1),
        )
        said = io.StringIO()
        if (out / "recipe.toml").is_file():
            run.resume(out, stream=said)
        else:
            run.pretrain(with_text(recipe, [str(path) for path in texts]), out, stream=said)
        (out / "done").touch()
    return out


def loss(model: Path, text: Path) -> float:
    """Of masked tokens, in nats."""
    return evaluate_text(model, [str(text)]).figures.loss


def accuracies(model: Path, rows: Dataset, count: int, seeds: int) -> list[float]:
    """On the first `ASKED` rows of the test part, with `count` labels, drawn by each seed."""
    assert rows.labels is not None
    kind, method, found = task_for(rows.task.name, rows.labels.names), Method(FULL), []
    for seed in range(seeds):
        few = splits.draw_examples(rows, count, seed)
        learner = Learner.of(model, kind, method, 128)
        rate = method.rate(learner.config.width)
        settings = Settings(
            epochs=EPOCHS, least_steps=LEAST, seed=seed, optimizer=AdamW(learning_rate=rate)
        )
        encoded = {part: kind.encode(each, learner.frame) for part, each in few.parts.items()}
        encoded["validation"] = kind.encode(
            few.parts["validation"][: max(50, count)], learner.frame
        )
        encoded["test"] = kind.encode(few.parts["test"][:ASKED], learner.frame)
        told = learner.learn(encoded, settings, "test", lambda line: None)
        found.append(kind.metrics(encoded["test"].rows, told.answers).values["accuracy"])
    return found


def measured(model: Path, out: Path, rows: Dataset, draws: int) -> dict[str, float]:
    """All figures of a model, from its folder once they were taken."""
    path = model / "measured.json"
    if not path.is_file():
        found = {f"loss on {text}": loss(model, out / f"{text}-valid.jsonl") for text in TEXTS}
        for count in COUNTS:
            found[f"{count} labels"] = statistics.mean(accuracies(model, rows, count, draws))
        path.write_text(json.dumps(found), encoding="utf-8")
    figures: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def models(out: Path, seed: int, tokens: float, more: float) -> Iterator[tuple[str, Path]]:
    """The three models of a seed."""
    general, news = out / "general-train.jsonl", out / "news-train.jsonl"
    before = trained(find("bert-mini"), [general], tokens, seed, out / f"before-{seed}")
    yield "before", before
    for name, text in (("on news", news), ("on the old text", general)):
        folder = out / f"{name.replace(' ', '-')}-{seed}"
        # Another seed, or the old text would be read again in the order and with the masks known.
        yield name, trained(further.recipe_of(before), [text], more, OTHER + seed, folder)


def shown(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--draws", type=int, default=3, help="of labels, for each model")
    read.add_argument("--tokens", type=float, default=5e6)
    read.add_argument("--further", type=float, default=1e6)
    a = read.parse_args()
    data = Path(os.environ["MASKWRIGHT_DATA"])
    a.out.mkdir(parents=True, exist_ok=True)
    write_texts(data / "text" / "babytext", a.out)
    rows = prepare(data / "labelled" / "ag_news")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MODELS}
    for seed in range(a.seeds):
        for name, model in models(a.out, seed, a.tokens, a.further):
            found[name].append(measured(model, a.out, rows, a.draws))
            told = {column: round(value, 4) for column, value in found[name][-1].items()}
            print(f"seed {seed}, {name}: {told}", flush=True)
    columns = list(found[MODELS[0]][0])
    print(f"| {a.seeds} seeds | {' | '.join(columns)} |")
    print("| --- " * (1 + len(columns)) + "|")
    for name in MODELS:
        cells = (shown([each[column] for each in found[name]]) for column in columns)
        print(f"| {name} | {' | '.join(cells)} |")
    for column in columns:
        pairs = zip(found["on news"], found["on the old text"], strict=True)
        gaps = [news[column] - old[column] for news, old in pairs]
        print(f"on news less on the old text, {column}: {shown(gaps)}")


if __name__ == "__main__":
    main()
