"""A labelled task from the machine itself: which exception carries this message?

The label is the class in `raise X("…")`, so nobody annotated anything; a file is never split
between training and test, so a module's own phrases do not leak. Six ways compete on equal
splits:

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
from statistics import mean, stdev

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
from maskwright.inference.encoded import Collation, Examples, framed
from maskwright.inference.scores import scores, vectors
from maskwright.labelled import exception_messages as labelled
from maskwright.models.special_tokens import vocabulary
from maskwright.nn.config import Head, TransformerConfig
from maskwright.nn.initialise import build
from maskwright.nn.transformer import Transformer
from maskwright.objectives.modules.supervised import Supervised
from maskwright.objectives.supervised import Options
from maskwright.randomness import key, permute, torch_seed
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.optimizers.settings import AdamW

SETTINGS = Settings(epochs=3, batch=32, optimizer=AdamW(learning_rate=1e-3))
# Few labels, because that is where pretraining has to show what it is worth.
LABELS = 1_000
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Task:
    """The task, encoded for one tokenizer and row length."""

    names: list[str]
    texts: tuple[list[str], list[str]]  # to learn from, to answer
    train: Examples
    test: Examples
    truncated: int


def load(tokenizer: Tokenizer, length: int) -> Task:
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


def compare(task: Task, pretrained: Transformer, tokenizer: Tokenizer) -> dict[str, Score]:
    """All six ways on `task`, three seeds where chance plays a part."""
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
    return build(config, generator) if source is None else transfer(source, config, generator).model


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
    objective = Supervised(model, Options(), vocabulary(tokenizer)).eval()
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
    objective = Supervised(tuned.network, Options(), vocabulary(tokenizer)).eval()
    return scores(objective, task.test, collation).argmax(axis=1)
