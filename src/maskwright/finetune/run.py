"""From a model folder and labelled texts to a fine-tuned model, over several seeds.

    out/
      model/         the best seed by validation, a Hugging Face folder with the names of the labels
      adapter/       what was trained, where a method trains little, as `peft` reads it if it can;
                     folded into the model above where it can be, else read beside it
      task.json      what is read of a file, and how, to predict with it
      results.json   every seed's figures, the chosen one's with intervals, the baselines

Each seed draws another head and another order. Epoch and seed are chosen on validation data; the
test part is asked once, at the end. Everything is said beside what needs no pretraining: the
commonest label, and words counted by TF-IDF with a logistic regression.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright import catalogue, commit
from maskwright.adapters import folder as folder_of_adapters
from maskwright.adapters import freeze
from maskwright.adapters.adapter import Adapter
from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import About
from maskwright.checkpoint.transfer import transfer
from maskwright.errors import IncompatibleError, UsageError, near
from maskwright.finetune.encode import encode
from maskwright.finetune.examples import Examples, Reading
from maskwright.finetune.tune import Settings, Tuned, scores, tune
from maskwright.nn.config import Head, TransformerConfig
from maskwright.nn.transformer import Transformer
from maskwright.objectives.supervised import Options, Problem, Supervised
from maskwright.pretrain import build, checkpoints
from maskwright.pretrain.run import said
from maskwright.randomness import key, torch_seed
from maskwright.report import document, tables
from maskwright.report.tables import Table
from maskwright.tasks import baseline, metrics
from maskwright.tasks import examples as labelled
from maskwright.tasks.parts import TEST, TRAIN, VALIDATION
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.optimizer import AdamW

TASK, RESULTS, MODEL, ADAPTER = "task.json", "results.json", "model", "adapter"
PROBLEMS: dict[str, Problem] = {
    "classification": "single",
    "pair-classification": "single",
    "multi-label": "multi",
    "regression": "regression",
    "similarity": "regression",
}
TEXTS = {"single": ("text",), "pair": ("first", "second")}
PROBLEM_TYPES: dict[Problem, str] = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}
FULL, PROBE = "full", "probe"
# The published rate is for a width of 768; narrower models want more, in proportion. Few parameters
# want more, too.
RATE, WIDTH, RATE_OF_FEW = 5e-5, 768, 1e-3


@dataclass(frozen=True)
class Seed:
    """What one seed came to."""

    seed: int
    tuned: Tuned
    adapter: Adapter | None
    validation: float


def finetune(
    folder: Path,
    data: labelled.Examples,
    out: Path,
    *,
    method: str = FULL,
    settings: Settings | None = None,
    seeds: int = 3,
    length: int | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Fine-tune the model in `folder` (also a run) on the training part of `data`.

    Args:
        method: "full", "probe" (the head alone), or the name of an adapter.
        settings: None: the published ones, with a rate that fits method and width.
        length: the most ids of an example; None: what the model has positions for, at most 512.

    Returns:
        The model folder.

    Raises:
        UsageError: a task or method that is not here, or a model in `out` already.
        IncompatibleError: a model without tokenizer.
    """
    kind, say = data.task.kind, said(stream)
    if kind not in PROBLEMS:
        raise UsageError("this task is not learned by this command", found=kind,
                         wanted=", ".join(PROBLEMS))  # fmt: skip
    methods = [FULL, PROBE, *catalogue.names("adapters")]
    if method not in methods:
        raise UsageError("no such method", where="--method", found=repr(method),
                         wanted=near(method, methods))  # fmt: skip
    if (out / MODEL).exists():
        raise UsageError("a fine-tuned model is there already", where=out / MODEL,
                         do="choose another --out")  # fmt: skip
    commit.probe_writable(out)
    path = checkpoints.model_folder(folder)
    loaded = pretrained.load(path, dtype=torch.float32)
    if loaded.tokenizer is None:
        raise IncompatibleError("the model has no tokenizer", where=path)
    tokenizer, problem = loaded.tokenizer, PROBLEMS[kind]
    names = () if data.labels is None else data.labels.names
    config, family = headed(path, loaded, max(1, len(names)))
    taken = (
        0 if method in (FULL, PROBE) else catalogue.load("adapters", method).SETTINGS().positions
    )
    length = min(length or 512, longest(config) - taken)
    settings = settings or Settings(optimizer=AdamW(learning_rate=usual_rate(config, method)))
    options = Options(problem=problem)
    reading = replace(reading_of(config, tokenizer, loaded.extra), alone=taken > 0)
    parts, cut = {}, {}
    for part, rows in data.parts.items():
        target = targets(rows, problem, len(names))
        given = encode([texts_of(row) for row in rows], target, tokenizer, length,
                       segments=has_segments(config))  # fmt: skip
        parts[part], cut[part] = given
    if any(cut.values()):
        say(f"cut to {length} tokens: " + ", ".join(f"{n} of {p}" for p, n in cut.items() if n))
    measure = metrics.USUAL[kind][0]
    found = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(torch_seed(key("init", seed)))
        made = transfer(loaded.model, config, generator)
        adapter, share = _attached(made.model, method, generator)
        if not seed:
            say(f"model: {path}: {made.render()}")
            say(f"method: {method}; {share}")
        tuned = _tuned(made.model, options, tokenizer, parts, reading, replace(settings, seed=seed),
                       measure, kind, say)  # fmt: skip
        found.append(Seed(seed, tuned, adapter, max(tuned.figures)))
    best = max(found, key=lambda one: (one.validation, -one.seed))
    asked = TEST if TEST in parts else VALIDATION
    told = [predicted(one.tuned.model, options, tokenizer, parts[asked], reading) for one in found]
    truth = truth_of(parts[asked], problem)
    shown = _table(kind, asked, truth, found, told, best, data)
    say("\n" + tables.for_terminal(shown))
    labels = tuple(names)
    about = About(family=family, labels=labels, problem_type=PROBLEM_TYPES[problem])
    if best.adapter is not None:
        folder_of_adapters.save(best.adapter, out / ADAPTER, base=str(path))
    attached = _left_beside(best.adapter)
    pretrained.save(best.tuned.model, tokenizer, out / MODEL, about)
    columns = [data.task.columns[role] for role in TEXTS[data.task.columns.shape]]
    task = {"kind": kind, "columns": columns, "length": length, "labels": list(labels),
            "attached": attached}  # fmt: skip
    document.write(out / TASK, json.dumps(task, indent=2) + "\n")
    plain = {
        "task": kind, "method": method, "measure": measure, "asked": asked,
        "chosen": best.seed, "cut": cut,
        "seeds": [
            {"seed": one.seed, "epoch": one.tuned.epoch,
             "validation": [v if math.isfinite(v) else None for v in one.tuned.figures],
             "loss": one.tuned.losses, "seconds": one.tuned.seconds,
             asked: _finite(metrics.METRICS[measure](truth, answers))}
            for one, answers in zip(found, told, strict=True)
        ],
        "table": shown,
    }  # fmt: skip
    document.write(out / RESULTS, json.dumps(plain, indent=2) + "\n")
    say(f"model: {out / MODEL}\nnext: maskwright predict {out} FILE")
    return out / MODEL


def usual_rate(config: TransformerConfig, method: str) -> float:
    """The learning rate where none is asked for."""
    return RATE * max(1.0, WIDTH / config.width) if method == FULL else RATE_OF_FEW


def _attached(
    model: Transformer, method: str, generator: torch.Generator
) -> tuple[Adapter | None, str]:
    """What the method adds to `model`, and how much of it trains; the rest stands still."""
    tops = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
    if method == FULL:
        return None, freeze.share(model)
    if method == PROBE:
        freeze.train_only(model, freeze.heads_only(model, tops))
        return None, freeze.share(model)
    adapter = catalogue.load("adapters", method).SETTINGS().attach(model, generator, heads=tops)
    return adapter, adapter.share()


def _left_beside(adapter: Adapter | None) -> bool:
    """Make the model an ordinary one; whether its adapter has to be attached again to use it."""
    if adapter is None:
        return False
    if adapter.settings.merges:
        adapter.merge()
        return False
    adapter.detach()
    return True


def _tuned(
    model: Transformer,
    options: Options,
    tokenizer: Tokenizer,
    parts: dict[str, Examples],
    reading: Reading,
    settings: Settings,
    measure: str,
    kind: str,
    say: Callable[[str], None],
) -> Tuned:
    objective = Supervised(model, options, build.vocabulary(tokenizer))
    truth = truth_of(parts[VALIDATION], options.problem)
    number = 0

    def figure(asked: Supervised) -> float:
        nonlocal number
        number += 1
        answers = decided(scores(asked, parts[VALIDATION], reading), options.problem)
        value = float(metrics.METRICS[measure](truth, answers))
        shown = f"{value:.4f}" if math.isfinite(value) else "not defined"
        say(f"seed {settings.seed} · epoch {number} of {settings.epochs} · "
            f"validation {measure} {shown}")  # fmt: skip
        return value

    return tune(objective, parts[TRAIN], reading, settings, figure=figure)


def _table(
    kind: str,
    asked: str,
    truth: NDArray[Any],
    found: Sequence[Seed],
    told: Sequence[NDArray[Any]],
    best: Seed,
    data: labelled.Examples,
) -> Table:
    """The figures of the chosen seed and of the baselines, with intervals; the spread of seeds."""
    rows = []
    for name, answers in [
        (f"fine-tuned, seed {best.seed}", told[best.seed]),
        *[(each.name, each.predicted) for each in _baselines(kind, data)],
    ]:
        figures = metrics.estimates(kind, truth, answers)
        rows.append([name, *map(_interval, figures.values())])
    each = [[float(metrics.METRICS[m](truth, a)) for a in told] for m in metrics.USUAL[kind]]
    spread = [f"{mean(v):.4f} ± {stdev(v):.4f}" if len(v) > 1 else f"{v[0]:.4f}" for v in each]
    if len(found) > 1:
        rows.insert(1, [f"all {len(found)} seeds", *spread])
    return {
        "title": f"{kind} on the {asked} part, {len(truth):,} examples",
        "own_first": True,
        "head": ["", *metrics.USUAL[kind]],
        "rows": rows,
        "note": "95 % intervals by resampling the examples; ± is the standard deviation over "
        f"seeds. Epoch and seed were chosen on {VALIDATION} data."
        + (" There is no test part: these figures flatter." if asked == VALIDATION else ""),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _interval(estimate: metrics.Estimate) -> str:
    """A figure and its interval; a dash where it is not defined, as of answers all alike."""
    if not math.isfinite(estimate.value):
        return "–"
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"


def _baselines(kind: str, data: labelled.Examples) -> list[baseline.Baseline]:
    return baseline.baselines(data) if kind in baseline.KINDS else []


# ------------------------------------------------------------------------------ model and texts
def headed(
    path: Path, loaded: pretrained.Pretrained, labels: int
) -> tuple[TransformerConfig, str | None]:
    """The config of the loaded model with a head for whole texts in place of its own, and the
    family that has a name for it."""
    form = pretrained.described(path)
    member = form.family
    if member is not None:
        for name, kit in member.architectures.items():
            if [kind for _, kind in kit.heads] == ["sequence"] and not kit.vocabulary:
                if kit.labels is not None:
                    continue
                config = pretrained.described(path, name).config
                heads = tuple(replace(head, labels=labels) for head in config.heads)
                return replace(config, heads=heads), member.name
    head = Head(name="classifier", kind="sequence", labels=labels)
    return replace(loaded.config, vocabulary_head=None, heads=(head,)), None


def reading_of(
    config: TransformerConfig, tokenizer: Tokenizer, extra: dict[str, Any] | None = None
) -> Reading:
    """How the model reads texts; `extra` are keys of its config.json."""
    start = None
    if len(config.stacks) == 2:
        start = (extra or {}).get("decoder_start_token_id")
        start = tokenizer.pad if start is None else start
    return Reading(pad=tokenizer.pad or 0, last=config.decoder is not None, decoder_start=start)


def has_segments(config: TransformerConfig) -> bool:
    """Whether the model tells first and second text apart."""
    return config.encoder is not None and config.encoder.embeddings.segments > 1


def longest(config: TransformerConfig) -> int:
    """The most positions of a text; a model that counts distances has no bound but sense."""
    tables = [getattr(s.embeddings.positions, "length", None) for s in config.stacks.values()]
    return min((t for t in tables if t is not None), default=512)


def texts_of(row: labelled.Example) -> tuple[str, ...]:
    """What a model reads of an example."""
    if isinstance(row, labelled.Pair):
        return (row.first, row.second)
    assert isinstance(row, labelled.Single)
    return (row.text,)


def targets(
    rows: Sequence[Any], problem: Problem, classes: int
) -> NDArray[np.int64] | NDArray[np.float32]:
    """Labels as `Supervised` wants them."""
    if problem == "single":
        return np.array([row.label for row in rows], dtype=np.int64)
    if problem == "regression":
        return np.array([[row.label] for row in rows], dtype=np.float32)
    found = np.zeros((len(rows), classes), dtype=np.float32)
    for number, row in enumerate(rows):
        found[number, list(row.label)] = 1.0
    return found


def truth_of(examples: Examples, problem: Problem) -> NDArray[Any]:
    """Labels as the metrics want them."""
    if problem == "multi":
        return examples.labels.astype(np.int64)
    return examples.labels[:, 0] if problem == "regression" else examples.labels


def decided(told: NDArray[np.float32], problem: Problem) -> NDArray[Any]:
    """Answers from scores: a class, zeros and ones, or a number."""
    if problem == "single":
        return told.argmax(1)
    return (told > 0).astype(np.int64) if problem == "multi" else told[:, 0]


def predicted(
    model: Transformer,
    options: Options,
    tokenizer: Tokenizer,
    examples: Examples,
    reading: Reading,
) -> NDArray[Any]:
    """The answers of a finished model."""
    objective = Supervised(model, options, build.vocabulary(tokenizer)).eval()
    return decided(scores(objective, examples, reading), options.problem)
