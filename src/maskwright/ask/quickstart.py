"""`maskwright quickstart`: train a small model that fills masks, and report its quality.

Needs no arguments, network or GPU: the text is the documentation of this Python installation. The
number of steps is chosen by the machine's speed; the resolved recipe is saved as usual.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TextIO

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maskwright.base.budget import Budget
from maskwright.base.errors import Finding, UsageError
from maskwright.base.randomness import key, permute, torch_seed
from maskwright.base.report import document
from maskwright.base.report.document import Table, duration, for_terminal
from maskwright.base.report.page import write_report
from maskwright.base.terminal import Say, printer, shell_word
from maskwright.learn import quickstart_task
from maskwright.learn.finetune.tune import Settings, tune
from maskwright.learn.pretrain import build, run
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.pretrain.rows import Microbatches, held_out_rows, training_rows, weights_of
from maskwright.learn.recipes.base.find import find, read
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import Parameters, start_optimizer
from maskwright.learn.train.settings import AdamW
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.device import machine
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.fill_mask import fill
from maskwright.model.inference.prepared import prepare as prepare_network
from maskwright.model.inference.scores import scores, vectors
from maskwright.model.nn import initialise
from maskwright.model.nn.config import Head, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options
from maskwright.model.opening.open import open_weights
from maskwright.model.opening.special_tokens import vocabulary
from maskwright.text.store.loader import Loader
from maskwright.text.tokenizer.tokenizer import Tokenizer

SENTENCES = (
    "Return the number of [MASK] in the list.",
    "The default [MASK] is None.",
    "This method should be [MASK] by subclasses.",
    "Raise an [MASK] if the file does not exist.",
)
SETTINGS = Settings(epochs=3, batch=32, optimizer=AdamW(learning_rate=1e-3))
# Few labels, since pretraining helps most there.
LABELS = 1_000
SEEDS = (0, 1, 2)


def compare(out: Path, say: Say) -> list[Table]:
    """Compute the three result tables of the run in `out`; each is printed by `say` at once."""
    recipe = read(out / run.RECIPE)
    prepared = prepare(recipe, out, lambda text: None)
    model = open_weights(out).network
    tables = []
    for make in (_held_out, _filled, _labelled_task):
        tables.append(make(recipe, prepared, model))
        say(f"\n{for_terminal(tables[-1])}")
    return tables


def _held_out(recipe: Recipe, prepared: PreparedCorpus, model: Transformer) -> Table:
    """Return a table of loss and accuracy at the usual mask rate, beside baselines."""
    usual_recipe = replace(recipe, objective=replace(recipe.objective, options={"rate": 0.15}))
    source = held_out_rows(recipe, prepared.held_out)
    train = training_rows(recipe, prepared.train)
    reseeded = replace(recipe, training=replace(recipe.training, seed=recipe.training.seed + 1))
    objectives = [
        build.objective(usual_recipe, network, prepared.tokenizer)
        for network in (model, build.model(reseeded, model.config))
    ]
    size: dict[str, Any] = {
        "rows": recipe.evaluation.rows,
        "batch_rows": recipe.evaluation.batch,
    }
    figures, untrained = (held_out_loss.evaluate(o, source, **size) for o in objectives)
    counts = held_out_loss.token_counts(prepared.train, weights_of(recipe.corpus, prepared.train))
    lines = held_out_loss.reference_lines(objectives[0], counts, train, source, **size)
    rows_by_name = [
        ("this model", figures.loss, figures.top1, figures.top5),
        ("unigram line", lines.unigram_loss, lines.unigram_top1, lines.unigram_top5),
        ("random encoder", untrained.loss, untrained.top1, untrained.top5),
        ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
    ]
    return {
        "title": "Held-out text, 15 % masked",
        "own_first": True,
        "head": ["", "loss", "top-1", "top-5"],
        "rows": [[name, *(f"{v:.3f}" for v in values)] for name, *values in rows_by_name],
        "note": f"{figures.targets:,} masked tokens; loss in nats. The unigram line is what "
        "guessing by frequency reaches: below it, the model reads the context.",
    }


def _filled(recipe: Recipe, prepared: PreparedCorpus, model: Transformer) -> Table:
    holes_by_text = fill(model, prepared.tokenizer, SENTENCES, top=4)
    return {
        "title": "Filled masks",
        "head": ["text", "likeliest"],
        "rows": [
            [text, "  ".join(f"{c.token} {c.probability:.0%}" for c in holes[0].candidates)]
            for text, holes in zip(SENTENCES, holes_by_text, strict=True)
        ],
        "note": "The four sentences are fixed; they were not chosen for their answers.",
    }


def _labelled_task(recipe: Recipe, prepared: PreparedCorpus, model: Transformer) -> Table:
    chosen = load_task(prepared.tokenizer, recipe.rows.length)
    scores = compare_on_task(chosen, model, prepared.tokenizer)
    return {
        "title": "Which exception carries this message?",
        "head": ["", "accuracy", "macro-F1", "seeds"],
        "rows": [[name, *score.cells()] for name, score in scores.items()],
        "note": f"{len(chosen.train):,} messages to learn from, {len(chosen.test):,} to answer, "
        f"from other files; {len(chosen.names)} classes; {chosen.truncated} messages cut to "
        f"{recipe.rows.length} tokens. ± is the standard deviation over seeds.",
    }


# ---------------------------------------------------------------------------- the labelled task
@dataclass(frozen=True)
class EncodedTask:
    """The task, encoded for one tokenizer and row length."""

    names: list[str]
    texts: tuple[list[str], list[str]]  # to learn from, to answer
    train: EncodedExamples
    test: EncodedExamples
    truncated: int


def load_task(tokenizer: Tokenizer, length: int) -> EncodedTask:
    """Collect the messages of this installation and split them by file."""
    split = quickstart_task.split(quickstart_task.exception_messages(), seed=0)
    order = permute(key("draw", 0), len(split.train), np.arange(min(LABELS, len(split.train))))
    train = [split.train[i] for i in order]
    names = sorted({e.label for e in train})
    test = [e for e in split.test if e.label in names]
    truncated = 0

    def encode(rows: Sequence[quickstart_task.LabelledText]) -> EncodedExamples:
        nonlocal truncated
        ids = [
            tokenizer.frame([int(i) for i in row])[0]
            for row in tokenizer.encode_batch([e.text for e in rows])
        ]
        truncated += sum(len(i) > length for i in ids)
        ids = [i[: length - 1] + i[-1:] if len(i) > length else i for i in ids]
        return EncodedExamples(framed(ids), np.array([names.index(e.label) for e in rows]))

    texts = ([e.text for e in train], [e.text for e in test])
    return EncodedTask(names, texts, encode(train), encode(test), truncated)


@dataclass(frozen=True)
class Score:
    """Accuracy and macro-F1 by seed; one value for deterministic methods."""

    accuracy: list[float]
    macro_f1: list[float]

    def cells(self) -> list[str]:
        """Return accuracy, macro-F1 and the number of seeds as cells of a table."""
        columns = [
            f"{mean(v):.3f}" + (f" ± {stdev(v):.3f}" if len(v) > 1 else "")
            for v in (self.accuracy, self.macro_f1)
        ]
        return [*columns, str(len(self.accuracy))]


def compare_on_task(
    task: EncodedTask, pretrained: Transformer, tokenizer: Tokenizer
) -> dict[str, Score]:
    """Score all six methods on `task`, with three seeds for those that are random."""
    fresh = [_with_head(pretrained.config, None, len(task.names), s) for s in SEEDS]
    scores = {"majority": _majority(task), "words": _words(task)}
    scores["probe, random encoder"] = _probe(task, fresh[:1], tokenizer)
    ready = [_with_head(pretrained.config, pretrained, len(task.names), s) for s in SEEDS]
    scores["probe, pretrained"] = _probe(task, ready[:1], tokenizer)
    for name, models in (("from scratch", fresh), ("fine-tuned", ready)):
        runs = [_tune(task, m, tokenizer, s) for m, s in zip(models, SEEDS, strict=True)]
        scores[name] = _score(task, runs)
    return scores


def _with_head(
    network_config: TransformerConfig, source: Transformer | None, labels: int, seed: int
) -> Transformer:
    """Build a classifier with the weights of `source`; None: randomly initialised."""
    config = replace(
        network_config,
        vocabulary_head=None,
        pooler=False,
        heads=(Head(name="classifier", kind="sequence", labels=labels, pooling="mean"),),
    )
    generator = torch.Generator().manual_seed(torch_seed(key("init", seed)))
    if source is None:
        return initialise.build(config, generator)
    return transfer(source, config, generator).model


def _score(task: EncodedTask, predictions: list[np.ndarray]) -> Score:
    labels = task.test.labels
    return Score(
        [float(accuracy_score(labels, p)) for p in predictions],
        [float(f1_score(labels, p, average="macro")) for p in predictions],
    )


def _majority(task: EncodedTask) -> Score:
    majority_class = np.bincount(task.train.labels).argmax()
    return _score(task, [np.full(len(task.test), majority_class)])


def _words(task: EncodedTask) -> Score:
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit(task.texts[0], task.train.labels)
    return _score(task, [model.predict(task.texts[1])])


def _probe(task: EncodedTask, models: list[Transformer], tokenizer: Tokenizer) -> Score:
    runs = []
    for model in models:
        train, test = (_features(model, part, tokenizer) for part in (task.train, task.test))
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            probe.fit(train, task.train.labels)
        runs.append(probe.predict(test))
    return _score(task, runs)


def _features(model: Transformer, examples: EncodedExamples, tokenizer: Tokenizer) -> np.ndarray:
    network: Any = prepare_network(model, precision="float32")
    objective = Supervised(network, Options(), vocabulary(tokenizer)).eval()
    return vectors(objective, examples, _collation(tokenizer))


def _collation(tokenizer: Tokenizer) -> Collation:
    return Collation(pad=tokenizer.pad or 0, last=False)


def _tune(task: EncodedTask, model: Transformer, tokenizer: Tokenizer, seed: int) -> np.ndarray:
    """Fine-tune all weights; returns the predictions on the test part."""
    objective, collation = (
        Supervised(model, Options(), vocabulary(tokenizer)),
        _collation(tokenizer),
    )
    tuned = tune(objective, task.train, collation, replace(SETTINGS, seed=seed))
    network: Any = prepare_network(tuned.network, precision="float32")
    objective = Supervised(network, Options(), vocabulary(tokenizer)).eval()
    return scores(objective, task.test, collation).argmax(axis=1)


RESULTS = "results.json"
# Time of corpus, evaluations and labelled task without training, measured on two cores.
OVERHEAD_SECONDS = 60.0
TRIAL_STEPS, FEWEST_STEPS = 6, 200


def quickstart(out: Path, *, minutes: float = 4.0) -> dict[str, Any]:
    """Train and evaluate in the new folder `out`; returns the content of `results.json`.

    Args:
        minutes: the total time on this machine; exceeded, with a note, if it is too short for
            `FEWEST_STEPS` steps.

    Raises:
        UsageError: the time is too short for corpus and evaluation alone.
    """
    started = time.monotonic()
    if not OVERHEAD_SECONDS < minutes * 60 < math.inf:
        raise UsageError(
            "too few minutes: corpus, evaluations and the labelled task alone take about "
            f"{duration(OVERHEAD_SECONDS)}",
            where="--minutes",
            found=f"{minutes:g}",
            wanted=f"above {OVERHEAD_SECONDS / 60:g}",
            do="leave --minutes out: four are enough to see something",
        )
    say = printer(None)
    say(f"maskwright quickstart: {minutes:g} minutes asked for; everything goes to {out}\n")

    def adjust(recipe: Recipe, prepared: PreparedCorpus) -> Recipe:
        document.write(out / quickstart_task.MARKER, json.dumps({"minutes": minutes}) + "\n")
        step_seconds = _seconds_per_step(recipe, prepared)
        return sized(recipe, _fit_steps(step_seconds, minutes * 60, time.monotonic() - started))

    run.pretrain(find("quickstart"), out, adjust=adjust)
    results = {"tables": compare(out, say), "seconds": round(time.monotonic() - started, 1)}
    _write(out, results)
    say(f"report: {write_report(out)}")
    say(f"took {results['seconds']:.0f} seconds\n\nnext:")
    for line in (
        f'maskwright fill-mask {shell_word(out)} "The function returns a [MASK] of strings."',
        f"maskwright explore {shell_word(out)}",
        f"maskwright show {shell_word(out)}",
        "maskwright pretrain bert-mini --text your-documents.txt      # on text of your own",
        "maskwright list                                              # what else there is",
    ):
        say(f"  {line}")
    return results


def close(out: Path, *, stream: TextIO | None = None) -> None:
    """Add the result tables to the completed run `out` of a quickstart that was interrupted."""
    if document.read(out):
        return
    say = printer(stream)
    _write(out, {"tables": compare(out, say)})
    say(f"report: {write_report(out)}")


def _write(out: Path, results: dict[str, Any]) -> None:
    document.write(out / RESULTS, json.dumps(results, indent=2) + "\n")


def sized(recipe: Recipe, steps: int) -> Recipe:
    """Return `recipe` for `steps` steps, with six evaluations and three checkpoints."""
    every = max(1, steps // 6)
    return replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=steps)),
        evaluation=replace(recipe.evaluation, every=every),
        checkpoints=replace(recipe.checkpoints, every=2 * every),
    )


def _fit_steps(step_seconds: float, seconds: float, used: float) -> int:
    """Return the number of steps of `step_seconds` that fit into `seconds` after `used` of them;
    prints the expected time, and a note if it is longer."""
    fitting = int((seconds - used - OVERHEAD_SECONDS) / step_seconds)
    steps = max(FEWEST_STEPS, fitting)
    print(
        f"{steps:,} steps, in all about {duration(used + steps * step_seconds + OVERHEAD_SECONDS)}"
    )
    if fitting < steps:
        message = f"longer than the {duration(seconds)} asked for"
        why = f"with fewer than {FEWEST_STEPS} steps there is nothing to see"
        print(Finding("longer-than-asked", message, why).line())
    return steps


def _seconds_per_step(recipe: Recipe, prepared: PreparedCorpus) -> float:
    """Measure the seconds per step of `recipe` in a short trial run."""
    training = recipe.training
    chosen = machine.choose(training.precision, training.device)
    architecture = build.transformer_config(recipe, prepared.tokenizer)
    network = build.model(recipe, architecture).to(chosen.device)
    objective = build.objective(recipe, network, prepared.tokenizer)
    optimizer = start_optimizer(training.optimizer, Parameters(objective, chosen.compute))
    plan = loop.TrainingPlan(
        seed=0,
        microbatches=1,
        budget=Budget(steps=100),
        schedule=training.schedule,
        device=chosen.device,
    )
    machine.keep_memory()
    loader = Loader(training_rows(recipe, prepared.train), training.batch, 0)
    state, marks = TrainState(), []
    batches = Microbatches(objective, [(1.0, loader)], plan, state)
    objective.train()
    for _ in range(TRIAL_STEPS):
        loop.step(objective, batches, optimizer, plan, state, Processes())
        marks.append(time.perf_counter())
    step_seconds = float(np.median(np.diff(marks)))
    tokens = training.batch * recipe.rows.length
    print(
        f"machine: {chosen.device}, {chosen.name} ({chosen.reason}), "
        f"{torch.get_num_threads()} threads; "
        f"{tokens / step_seconds:,.0f} tokens/s"
    )
    return step_seconds
