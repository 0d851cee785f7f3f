"""The first run's model compared with baselines without pretraining, in three tables: held-out text
against the unigram line and a random encoder, a few filled masks, and a labelled task. Each is
printed and kept for the report.

The task comes from the machine itself: which exception carries this message? The label is the class
in `raise X("…")`, so nobody annotated anything; a file is never split between training and test, so
a module's own phrases do not leak. Six methods compete on equal splits:

    majority                            the commonest label
    words                               TF-IDF of words and pairs, logistic regression
    probe, random encoder               mean hidden state of an untrained model, the same regression
    probe, pretrained                   the same features of the pretrained model
    from scratch                        the same model and recipe, fine-tuned from random weights
    fine-tuned                          fine-tuned from the pretrained weights
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maskwright.checkpoint.transfer import transfer
from maskwright.finetune.tune import Settings, tune
from maskwright.inference import held_out_loss as likelihood
from maskwright.inference.encoded import Collation, Examples, framed
from maskwright.inference.fill_mask import fill
from maskwright.inference.prepared import prepare as prepare_network
from maskwright.inference.scores import scores, vectors
from maskwright.labelled import exception_messages as labelled
from maskwright.models.open import open_weights
from maskwright.models.special_tokens import vocabulary
from maskwright.nn import initialise
from maskwright.nn.config import Head, TransformerConfig
from maskwright.nn.transformer import Transformer
from maskwright.objectives.modules.supervised import Supervised
from maskwright.objectives.supervised import Options
from maskwright.pretrain import build, run
from maskwright.pretrain.mixing import weights_of
from maskwright.pretrain.prepare import Prepared, prepare
from maskwright.pretrain.rows import held_out_rows, training_rows
from maskwright.randomness import key, permute, torch_seed
from maskwright.recipes.parts.find import read
from maskwright.recipes.parts.recipe import Recipe
from maskwright.report.say import Say
from maskwright.report.tables import Table, for_terminal
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.optimizers.settings import AdamW

SENTENCES = (
    "Return the number of [MASK] in the list.",
    "The default [MASK] is None.",
    "This method should be [MASK] by subclasses.",
    "Raise an [MASK] if the file does not exist.",
)
SETTINGS = Settings(epochs=3, batch=32, optimizer=AdamW(learning_rate=1e-3))
# Few labels, because that is where pretraining has to show what it is worth.
LABELS = 1_000
SEEDS = (0, 1, 2)


def compare(out: Path, say: Say) -> list[Table]:
    """The three tables of the run in `out`; each is passed to `say` as soon as it is made."""
    recipe = read(out / run.RECIPE)
    prepared = prepare(recipe, out, lambda text: None)
    model = open_weights(out).network
    tables = []
    for make in (_held_out, _filled, _labelled_task):
        tables.append(make(recipe, prepared, model))
        say(f"\n{for_terminal(tables[-1])}")
    return tables


def _held_out(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
    """Loss and accuracy at the usual mask rate, so that figures compare with others'."""
    usual = replace(recipe, objective=replace(recipe.objective, options={"rate": 0.15}))
    source = held_out_rows(recipe, prepared.held_out)
    train = training_rows(recipe, prepared.train)
    rows, batch = recipe.evaluation.rows, recipe.evaluation.batch
    other = replace(recipe, training=replace(recipe.training, seed=recipe.training.seed + 1))
    objectives = [
        build.objective(usual, network, prepared.tokenizer)
        for network in (model, build.model(other, model.config))
    ]
    own, random = (likelihood.evaluate(o, source, rows=rows, batch_rows=batch) for o in objectives)
    counts = likelihood.token_counts(prepared.train, weights_of(recipe.corpus, prepared.train))
    lines = likelihood.reference_lines(
        objectives[0], counts, train, source, rows=rows, batch_rows=batch
    )
    shown = [
        ("this model", own.loss, own.top1, own.top5),
        ("unigram line", lines.unigram_loss, lines.unigram_top1, lines.unigram_top5),
        ("random encoder", random.loss, random.top1, random.top5),
        ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
    ]
    return {
        "title": "Held-out text, 15 % masked",
        "own_first": True,
        "head": ["", "loss", "top-1", "top-5"],
        "rows": [[name, *(f"{v:.3f}" for v in values)] for name, *values in shown],
        "note": f"{own.targets:,} masked tokens; loss in nats. The unigram line is what guessing "
        "by frequency reaches: below it, the model reads the context.",
    }


def _filled(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
    found = fill(model, prepared.tokenizer, SENTENCES, top=4)
    return {
        "title": "Filled masks",
        "head": ["text", "likeliest"],
        "rows": [
            [text, "  ".join(f"{c.token} {c.probability:.0%}" for c in holes[0].candidates)]
            for text, holes in zip(SENTENCES, found, strict=True)
        ],
        "note": "The four sentences are fixed; they were not chosen for their answers.",
    }


def _labelled_task(recipe: Recipe, prepared: Prepared, model: Transformer) -> Table:
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
class Task:
    """The task, encoded for one tokenizer and row length."""

    names: list[str]
    texts: tuple[list[str], list[str]]  # to learn from, to answer
    train: Examples
    test: Examples
    truncated: int


def load_task(tokenizer: Tokenizer, length: int) -> Task:
    """Collect the messages of this installation and split them by file."""
    parts = labelled.split(labelled.exception_messages(), seed=0)
    order = permute(key("draw", 0), len(parts.train), np.arange(min(LABELS, len(parts.train))))
    few = [parts.train[i] for i in order]
    names = sorted({e.label for e in few})
    scored = [e for e in parts.test if e.label in names]
    truncated = 0

    def encode(known: Sequence[labelled.Labelled]) -> Examples:
        nonlocal truncated
        ids = [
            tokenizer.frame([int(i) for i in row])[0]
            for row in tokenizer.encode_batch([e.text for e in known])
        ]
        truncated += sum(len(i) > length for i in ids)
        ids = [i[: length - 1] + i[-1:] if len(i) > length else i for i in ids]
        return Examples(framed(ids), np.array([names.index(e.label) for e in known]))

    texts = ([e.text for e in few], [e.text for e in scored])
    return Task(names, texts, encode(few), encode(scored), truncated)


@dataclass(frozen=True)
class Score:
    """Accuracy and macro-F1 over seeds; one seed where nothing is drawn."""

    accuracy: list[float]
    macro_f1: list[float]

    def cells(self) -> list[str]:
        """Accuracy, macro-F1 and the number of seeds, as a table shows them."""
        columns = [
            f"{mean(v):.3f}" + (f" ± {stdev(v):.3f}" if len(v) > 1 else "")
            for v in (self.accuracy, self.macro_f1)
        ]
        return [*columns, str(len(self.accuracy))]


def compare_on_task(task: Task, pretrained: Transformer, tokenizer: Tokenizer) -> dict[str, Score]:
    """All six methods on `task`, three seeds where chance plays a part."""
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


def _score(task: Task, predictions: list[np.ndarray]) -> Score:
    wanted = task.test.labels
    return Score(
        [float(accuracy_score(wanted, p)) for p in predictions],
        [float(f1_score(wanted, p, average="macro")) for p in predictions],
    )


def _majority(task: Task) -> Score:
    common = np.bincount(task.train.labels).argmax()
    return _score(task, [np.full(len(task.test), common)])


def _words(task: Task) -> Score:
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit(task.texts[0], task.train.labels)
    return _score(task, [model.predict(task.texts[1])])


def _probe(task: Task, models: list[Transformer], tokenizer: Tokenizer) -> Score:
    runs = []
    for model in models:
        train, test = (_features(model, part, tokenizer) for part in (task.train, task.test))
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            probe.fit(train, task.train.labels)
        runs.append(probe.predict(test))
    return _score(task, runs)


def _features(model: Transformer, part: Examples, tokenizer: Tokenizer) -> np.ndarray:
    network: Any = prepare_network(model, precision="float32")
    objective = Supervised(network, Options(), vocabulary(tokenizer)).eval()
    return vectors(objective, part, _collation(tokenizer))


def _collation(tokenizer: Tokenizer) -> Collation:
    return Collation(pad=tokenizer.pad or 0, last=False)


def _tune(task: Task, model: Transformer, tokenizer: Tokenizer, seed: int) -> np.ndarray:
    """Fine-tune all weights; returns the predictions on the test part."""
    objective, collation = (
        Supervised(model, Options(), vocabulary(tokenizer)),
        _collation(tokenizer),
    )
    tuned = tune(objective, task.train, collation, replace(SETTINGS, seed=seed))
    network: Any = prepare_network(tuned.network, precision="float32")
    objective = Supervised(network, Options(), vocabulary(tokenizer)).eval()
    return scores(objective, task.test, collation).argmax(axis=1)
