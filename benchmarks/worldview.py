"""The figures and pictures of docs/worldview.md: the twins of Tiny Shakespeare, and what changes
when one thing about them is changed.

    python -m benchmarks.worldview --out DIR --seeds 3      all; a run that is there is not redone
    python -m benchmarks.worldview --out DIR --draw         the pictures again, from figures.json
    python -m benchmarks.worldview --out DIR --small        20 steps of everything: does it work?

Reads $MASKWRIGHT_DATA/text/tinyshakespeare.txt. DIR/NAME-SEED are run folders (`RUNS`);
figures.json and the pictures are written to --pictures, docs/pictures/worldview if none is named.
What is asked is the same for every run: the rows and their masks are drawn by fixed keys.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import worldview_pictures
from maskwright import api
from maskwright.base.budget import Budget
from maskwright.base.randomness import key
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.text import resolve
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.batch import Batch
from maskwright.model.inference import held_out_loss
from maskwright.model.objectives.base import corruption
from maskwright.model.objectives.masked import Options
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.store.rows import Rows, RowSource
from maskwright.text.store.store import TokenStore

TEXT = "$MASKWRIGHT_DATA/text/tinyshakespeare.txt"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures" / "worldview"
LONGEST_SPAN = 3
# Run -> recipe, and the options of its objective that differ from the recipe's.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("shakespeare-gpt", {}),
    "bert": ("shakespeare-bert", {}),
    "all-mask": ("shakespeare-bert", {"mask_rate": 1.0, "random_rate": 0.0}),
    "all-random": ("shakespeare-bert", {"mask_rate": 0.0, "random_rate": 1.0}),
    "spans": (
        "shakespeare-bert",
        {
            "independent": False,
            "unit": "span",
            "span_words": False,
            "span_lengths": "uniform",
            "span_longest": LONGEST_SPAN,
        },
    ),
}
MASKED = tuple(name for name in RUNS if name != "gpt")
# Question -> options. The chosen characters are the same in the first four.
EACH = Options(independent=True)
ALL_MASK = {"mask_rate": 1.0, "random_rate": 0.0}
QUESTIONS: dict[str, Options] = {
    "80/10/10": EACH,
    "all [MASK]": replace(EACH, **ALL_MASK),
    "all random": replace(EACH, mask_rate=0.0, random_rate=1.0),
    "all kept": replace(EACH, mask_rate=0.0, random_rate=0.0),
    # As many characters as the spans below have, each by itself.
    "six apart": Options(rate=6 / 48, **ALL_MASK),
}
PLACES = ("spans of three", "their first", "their middle", "their last")
PROMPT = "MENENIUS:\nI think the "
TEMPERATURES = (0.5, 1.0, 1.5, 2.0)
TASK_FROM = 100_000  # characters that neither twin has seen, in training or in a question
TASK_PARTS = {"train": 1_500, "validation": 300, "test": 1_000}
LABELS = (50, 200, 1_000)


class SpansOfThree(Masked):
    """Runs of exactly three characters, two in a row of 48; of all their characters, or of those
    at one place in the run (0, 1, 2), are targets made. Runs that touch or meet the end of a row
    are no targets."""

    place: int | None = None

    def choose(
        self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        keys = np.asarray(key("mask", seed, epochs, rows.ids))
        starts, three = np.ones_like(rows.starts_word), np.asarray([0.0, 0.0, 1.0])
        return corruption.choose_spans(~rows.special, starts, 6 / 48, keys, lengths=three)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        batch = super().corrupt(rows, epochs, seed, progress)
        assert batch.index is not None and batch.targets is not None
        chosen, _ = self.choose(rows, epochs, seed, progress)
        places = places_in_runs(chosen).reshape(-1)[batch.index.numpy()]
        wanted = torch.from_numpy(places >= 0 if self.place is None else places == self.place)
        return replace(batch, index=batch.index[wanted], targets=batch.targets[wanted])


def places_in_runs(chosen: np.ndarray) -> np.ndarray:
    """(B, T): 0, 1, 2 in a run of exactly three chosen positions between two others; else -1."""
    places = np.full(chosen.shape, -1)
    for row, line in enumerate(chosen):
        pattern = "".join("x" if here else "." for here in line)
        for found in re.finditer(r"(?<=\.)xxx(?=\.)", pattern):
            places[row, found.start() : found.end()] = (0, 1, 2)
    return places


# ------------------------------------------------------------------------------------------- runs
def recipe_of(name: str, seed: int, small: bool) -> Recipe:
    recipe_name, options = RUNS[name]
    recipe = api.find(recipe_name)
    objective = replace(recipe.objective, options=recipe.objective.options | options)
    training = replace(recipe.training, seed=seed, threads=1)
    recipe = replace(recipe, objective=objective, training=training)
    if small:
        recipe = replace(
            recipe,
            training=replace(training, budget=Budget(steps=20), batch=8),
            evaluation=replace(recipe.evaluation, every=10, rows=64),
            checkpoints=replace(recipe.checkpoints, every=10),
        )
    return recipe


def trained(name: str, seed: int, out: Path, small: bool) -> Path:
    """The folder of the run, which is begun, gone on with, or there already."""
    folder, recipe = out / f"{name}-{seed}", recipe_of(name, seed, small)
    steps = recipe.training.budget.steps
    if not (folder / "checkpoints" / f"step-{steps:08d}").is_dir():
        print(f"training {folder.name}, {steps} steps", flush=True)
        if (folder / "checkpoints").is_dir():
            api.resume(folder, stream=io.StringIO())
        else:
            api.pretrain(recipe, folder, stream=io.StringIO())
    return folder


# -------------------------------------------------------------------------------------- questions
def figures_of(objective: Any, rows: RowSource, small: bool) -> dict[str, float]:
    found = held_out_loss.evaluate(objective, rows, rows=64 if small else 8_000, batch_rows=256)
    return {
        "loss": found.loss,
        "perplexity": found.perplexity,
        "top1": found.top1,
        "top5": found.top5,
        "targets": found.targets,
    }


def asked(model: Model, rows: RowSource, small: bool) -> dict[str, Any]:
    """Every question of a masked model."""
    vocabulary = special_tokens.vocabulary(model.tokenizer)
    found: dict[str, Any] = {}
    for name, options in QUESTIONS.items():
        found[name] = figures_of(Masked(model.network, options, vocabulary), rows, small)
    for place, name in enumerate(PLACES):
        spans = SpansOfThree(model.network, Options(**ALL_MASK), vocabulary)
        spans.place = None if place == 0 else place - 1
        found[name] = figures_of(spans, rows, small)
    return found


def questions(out: Path, seed: int, small: bool) -> dict[str, Any]:
    """What every run of a seed answers on the 20,000 characters after the twins' first 80,000."""
    recipe = recipe_of("bert", seed, small)
    store = TokenStore.open(out / f"bert-{seed}" / "data" / "held-out")
    rows = held_out_rows(recipe, store)
    found = {name: asked(open_model(out / f"{name}-{seed}"), rows, small) for name in MASKED}
    first = open_model(out / f"bert-{seed}")
    untrained = build.model(recipe, first.config).eval()
    found["random encoder"] = asked(replace(first, network=untrained), rows, small)
    causal = recipe_of("gpt", seed, small)
    gpt = open_model(out / f"gpt-{seed}")
    objective = build.objective(causal, gpt.network, gpt.tokenizer)
    found["gpt"] = {
        "next": figures_of(objective, held_out_rows(causal, store), small),
        "own held-out": last_evaluation(out / f"gpt-{seed}"),
    }
    return found


def last_evaluation(folder: Path) -> dict[str, float]:
    last = [each for each in checkpoints.read_journal(folder) if each["kind"] == "evaluation"][-1]
    return {name: last[name] for name in ("loss", "perplexity", "top1", "top5", "targets")}


def curve_of(folder: Path) -> dict[str, Any]:
    """Losses and evaluations of a run by step, and the baselines."""
    records = checkpoints.read_journal(folder)
    evaluations = [each for each in records if each["kind"] == "evaluation"]
    references = json.loads((folder / "run.json").read_text()).get("references", {})
    return {
        "loss": [[r["step"], round(r["loss"], 4)] for r in records if r["kind"] == "train"][::5],
        "held_out": [[r["step"], r["loss"], r["top1"]] for r in evaluations],
        "references": references,
    }


# ------------------------------------------------------------------------------------ temperatures
@torch.no_grad()
def temperatures(folder: Path, small: bool) -> dict[str, Any]:
    """What the causal twin draws the next character from at several temperatures, and writes."""
    model = open_model(folder)
    tokens = torch.tensor([model.tokenizer.encode(PROMPT)])
    network = model.network.eval()
    logits = network.logits(network.decode(tokens)[0, -1]).double()
    logits[special_tokens.vocabulary(model.tokenizer).mask] = -math.inf
    found: dict[str, Any] = {}
    for temperature in TEMPERATURES:
        chances = torch.softmax(logits / temperature, -1)
        entropy = float(-(chances * torch.log2(chances.clamp_min(1e-300))).sum())
        most = torch.topk(chances, 8)
        found[str(temperature)] = {
            "entropy_bits": entropy,
            "likeliest": [
                [model.tokenizer.decode([int(i)]), float(p)]
                for p, i in zip(most.values, most.indices, strict=True)
            ],
            "written": api.generate_text(
                folder, PROMPT, tokens=10 if small else 90, temperature=temperature, seed=0
            ),
        }
    return found


# -------------------------------------------------------------------------------------------- task
def sentences(text: str, alphabet: set[str]) -> list[tuple[str, str]]:
    """(a sentence without its end, question or statement) of the speeches, of 12 to 46 characters
    of the alphabet; as many of both, each text once."""
    found: dict[str, tuple[str, str]] = {}
    for block in text.split("\n\n"):
        heading, _, speech = block.partition(":\n")
        if not speech or len(heading) > 30:
            continue
        for words, end in re.findall(r"([^.?!]+)([.?!])", " ".join(speech.split())):
            words = words.strip(" '-")
            if end != "!" and 12 <= len(words) <= 46 and set(words) <= alphabet:
                label = "question" if end == "?" else "statement"
                found.setdefault(words.lower(), (words, label))
    draw = np.random.default_rng(0)
    asks, states = ([s for s in found.values() if s[1] == w] for w in ("question", "statement"))
    states = [states[i] for i in draw.permutation(len(states))[: len(asks)]]
    both = [*asks[: len(states)], *states]
    return [both[i] for i in draw.permutation(len(both))]


def write_task(out: Path, small: bool) -> dict[str, int]:
    text = resolve(TEXT).read_text("utf-8")
    rows = sentences(text[TASK_FROM:], set(text[:80_000]))
    sizes = {part: (60 if small else size) for part, size in TASK_PARTS.items()}
    out.mkdir(parents=True, exist_ok=True)
    for part, size in sizes.items():
        with (out / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(rows[:size])
        rows = rows[size:]
    return sizes


def task(name: str, seed: int, out: Path, small: bool) -> dict[str, Any]:
    """Accuracy by way and number of labels: probe, full, from scratch, words; one draw of labels
    for each seed of pretraining."""
    write_task(out / "task", small)
    curve = out / f"task-{name}-{seed}"
    if not (curve / "curve.json").is_file():
        print(f"fine-tuning {curve.name}", flush=True)
        api.finetune_file(
            out / f"{name}-{seed}",
            out / "task",
            curve,
            method="probe,full",
            pooling="mean",
            seeds=1,
            seed=seed,
            threads=1,
            curve=(20,) if small else (*LABELS, 0),
            **({"epochs": 1} if small else {}),
            stream=io.StringIO(),
        )
    read: dict[str, Any] = json.loads((curve / "curve.json").read_text())
    return read


# ------------------------------------------------------------------------------------------- whole
def measure(out: Path, seeds: Sequence[int], small: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": list(seeds), "questions": [], "task": []}
    for seed in seeds:
        for name in RUNS:
            trained(name, seed, out, small)
        found["questions"].append(questions(out, seed, small))
        found["task"].append({name: task(name, seed, out, small)["figures"] for name in MASKED})
    first = seeds[0]
    found["curves"] = {name: curve_of(out / f"{name}-{first}") for name in ("gpt", "bert")}
    found["temperatures"] = temperatures(out / f"gpt-{first}", small)
    found["prompt"] = PROMPT
    return found


def written(found: dict[str, Any]) -> str:
    """As JSON with a line for each list of numbers, and six digits."""
    rounded = json.loads(json.dumps(found), parse_float=lambda value: float(f"{float(value):.6g}"))
    text = json.dumps(rounded, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n"


def told(values: Sequence[float]) -> str:
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {statistics.stdev(values):.3f}"


def say(found: dict[str, Any]) -> None:
    """The tables of docs/worldview.md."""
    by_seed, by_task = found["questions"], found["task"]
    print(f"seeds: {found['seeds']}")
    for name in (*MASKED, "random encoder"):
        for question in (*QUESTIONS, *PLACES):
            each = [seed[name][question] for seed in by_seed]
            tops = [told([e[k] for e in each]) for k in ("top1", "top5", "loss")]
            print(f"{name:16}{question:18}{'  '.join(tops)}  {each[0]['targets']:,} targets")
    for name in MASKED:
        for way, counts in by_task[0][name].items():
            for count in counts:
                each = [v for seed in by_task for v in seed[name][way][count].values()]
                print(f"task, {name:16}{way:24}{count:>6} labels  {told(each)}")
    for question in ("next", "own held-out"):
        each = [seed["gpt"][question] for seed in by_seed]
        print(f"gpt {question}: " + ", ".join(f"{k} {told([e[k] for e in each])}" for k in each[0]))


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--out", type=Path, required=True)
    read.add_argument("--seeds", type=int, default=1)
    read.add_argument("--pictures", type=Path, default=PICTURES)
    read.add_argument("--draw", action="store_true")
    read.add_argument("--small", action="store_true")
    a = read.parse_args()
    file = a.pictures / "figures.json"
    a.out.mkdir(parents=True, exist_ok=True)
    if not a.draw:
        torch.set_num_threads(1)
        found = measure(a.out, range(a.seeds), a.small)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(found), encoding="utf-8")
    found = json.loads(file.read_text("utf-8"))
    say(found)
    worldview_pictures.write(found, a.pictures)


if __name__ == "__main__":
    sys.exit(main())
