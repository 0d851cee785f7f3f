"""What the vectors of each layer tell: linear probes, with controls for what such a classifier
learns by itself, and similarity of texts.

    accuracy       logistic regression on the frozen states of a layer       Alain & Bengio 2016
    control        the same for random labels, one for each distinct word    Hewitt & Liang 2019
    selectivity    accuracy minus control
    untrained      accuracy on a randomly initialised model of this shape
    mix            one classifier on a learned weighted mean of all layers;  Tenney et al. 2019
                   the mean layer by these weights is the centre of gravity

For tagging, states are those of each word's first token; for whole texts, their mean over tokens,
and the control label belongs to the first word of the text.

For pairs of texts with a similarity score, without training: Spearman's correlation of the score
with the cosine of the two vectors, by layer and by pooling.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from maskwright.ask.analysis.hidden_states import (
    Pooling,
    ProbedModel,
    at_places,
    distance_steps,
    layer_states,
)
from maskwright.base.errors import Finding, UsageError
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import LEVEL, Estimate, estimate
from maskwright.base.metrics.paired import Rival, Verdict, of_metric, of_shares, verdict
from maskwright.base.randomness import integers, key, permute, torch_seed
from maskwright.learn.tasks.base.task_type import TaskType, task_for, task_for_vectors
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.inference.prepared import Prepared
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.modules.supervised import pool
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION

ITERATIONS, TOLERANCE = 100, 1e-3
ROUNDING = 1e-6  # of float32, as a share of the largest number
# A control with fewer distinct words, or one dominant word, is learned by any model.
FEWEST_WORDS, NEARLY_ALL = 10, 0.9
COMMONEST = "commonest class"
NOTHING = Estimate(np.nan, np.nan, np.nan)
MIX_EPOCHS, MIX_BATCH, MIX_RATE = 20, 256, 1e-2
MIX_STEPS = 1000  # minimum; with few examples the mix would hardly move from its initial weights


@dataclass(frozen=True)
class LayerProbe:
    """The accuracies of all layers.

    Attributes:
        learned, evaluated: the numbers of words or texts that the classifiers were trained and
            evaluated on; `part` is the evaluated part of the data.
        accuracy, control, untrained: of each layer, the lowest first; with intervals.
        no_control: why the control is meaningless, and NaN; empty if it is valid.
        weights, mixed: layer weights, which sum to 1, and the accuracy of the weighted layers.
        verdict: whether the best layer is better than those and than an untrained model, by paired
            tests with the level divided by the number of layers, as the best is chosen among them.
    """

    task: str
    part: str
    layers: list[str]
    learned: int
    evaluated: int
    accuracy: list[Estimate]
    control: list[Estimate]
    untrained: list[Estimate]
    weights: list[float]
    mixed: Estimate
    baselines: dict[str, float]
    verdict: Verdict
    findings: Sequence[Finding] = ()
    no_control: str = ""
    of_texts: bool = True

    @property
    def selectivity(self) -> list[float]:
        """Accuracy minus control accuracy, by layer."""
        pairs = zip(self.accuracy, self.control, strict=True)
        return [task.value - control.value for task, control in pairs]

    @property
    def gravity(self) -> float:
        """The mean layer by the weights of the mix; the embeddings are layer 0."""
        return float(np.dot(self.weights, np.arange(len(self.weights))))


@dataclass(frozen=True)
class _States:
    """Words or texts of a part: states of both models (layers, N, D), classes (N,), and the word
    of each that determines its control label."""

    states: NDArray[np.float32]
    untrained: NDArray[np.float32]
    labels: NDArray[np.int64]
    words: list[str]
    findings: Sequence[Finding] = ()


def probe_layers(subject: ProbedModel, data: Dataset, *, items: int = 10_000) -> LayerProbe:
    """Probe every layer for the labels of `data`.

    Args:
        items: the maximum number of words, or texts, of each part, which are sampled.

    Raises:
        UsageError: the task is neither tagging nor classification of texts into one class.
    """
    names = () if data.labels is None else data.labels.names
    task_type = task_for(data.task.name, names)
    if (
        task_type.head not in ("sequence", "token")
        or task_type.problem != "single"
        or len(task_type.roles) > 1
    ):
        raise UsageError(
            "this task is not probed layer by layer",
            found=data.task.name,
            wanted="one class of each text, tags of words, or how alike two texts are",
        )
    evaluated_part = TEST if TEST in data.parts else VALIDATION
    models = subject.model, subject.untrained()
    train, evaluated = (
        _part_states(subject, models, task_type, data.parts[name], items)
        for name in (TRAIN, evaluated_part)
    )
    controls = [_control(part.words, train.labels) for part in (train, evaluated)]
    of_texts = task_type.head == "sequence"
    no_control = _why_invalid(train.words, controls[0], of_texts=of_texts)
    is_right, untrained_is_right = list[NDArray[np.bool_]](), list[NDArray[np.bool_]]()
    control = []
    for layer in range(len(train.states)):
        states = train.states[layer], evaluated.states[layer]
        is_right.append(_is_right(*states, train.labels, evaluated.labels))
        control.append(NOTHING if no_control else _accuracy(_is_right(*states, *controls)))
        states = train.untrained[layer], evaluated.untrained[layer]
        untrained_is_right.append(_is_right(*states, train.labels, evaluated.labels))
    accuracy = [_accuracy(layer) for layer in is_right]
    best = int(np.argmax([estimate.value for estimate in accuracy]))
    baselines = _baselines(train, evaluated, of_texts=of_texts)
    level = 1 - (1 - LEVEL) / len(accuracy)
    rivals = [
        Rival(
            name,
            float(theirs.mean()),
            of_shares(is_right[best], theirs, level),
            name == COMMONEST,
        )
        for name, theirs in {"an untrained model": untrained_is_right[best], **baselines}.items()
    ]
    weights, mixed = _mix(train, evaluated, len(names))
    return LayerProbe(
        task_type.task,
        evaluated_part,
        subject.layers,
        len(train.labels),
        len(evaluated.labels),
        accuracy,
        control,
        [_accuracy(layer) for layer in untrained_is_right],
        weights,
        mixed,
        {name: float(theirs.mean()) for name, theirs in baselines.items()},
        verdict(
            f"the accuracy at {subject.layers[best]} of",
            accuracy[best].value,
            rivals,
            len(evaluated.labels),
            ("text", "texts") if of_texts else ("word", "words"),
        ),
        (*train.findings, *evaluated.findings),
        no_control,
        of_texts=of_texts,
    )


def _part_states(
    subject: ProbedModel,
    models: tuple[Prepared, Prepared],
    task_type: TaskType,
    rows: Sequence[Any],
    items: int,
) -> _States:
    """Sample words or texts of a part and compute their states; args as in `probe_layers`."""
    of_texts = task_type.head == "sequence"
    order = permute(key("draw", 0), len(rows), np.arange(len(rows)))
    counts = np.array([1 if of_texts else len(rows[i].tokens) for i in order])
    order = order[: int(np.searchsorted(counts.cumsum(), items)) + 1]
    rows = [rows[i] for i in np.sort(order)]
    encoded = task_type.encode(rows, subject.frame)
    examples = encoded.examples
    if of_texts:
        words = [row.text.split()[0].lower() if row.text.split() else "" for row in rows]
    else:
        _, word_numbers = encoded.way_back  # the encoded ones of all words of the rows
        row_words = [word.lower() for row in rows for word in row.tokens]
        words = [row_words[n] for n in word_numbers]
        if len(words) > items:
            chosen = np.sort(permute(key("draw", 0, 1), len(words), np.arange(items)))
            assert examples.places is not None
            lengths = examples.places.lengths
            texts_of_words = np.repeat(np.arange(len(lengths)), lengths)[chosen]
            counts = np.bincount(texts_of_words, minlength=len(lengths))
            positions = Sequences(examples.places.tokens[chosen], counts)
            examples = replace(examples, labels=examples.labels[chosen], places=positions)
            words = [words[n] for n in chosen]
    pooling = _pooled("mean") if of_texts else at_places
    trained, untrained = (layer_states(m, examples, subject.collation, pooling) for m in models)
    labels = np.asarray(examples.labels, np.int64)
    return _States(trained, untrained, labels, words, encoded.findings)


def _pooled(pooling: str) -> Pooling:
    return lambda hidden, batch: pool(hidden, batch, [pooling])


def _control(words: Sequence[str], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a random class for each word, equal for equal words, distributed as `labels`."""
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words]
    contents = np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)
    order = integers(key("draw", 0, 1, contents), 1, len(labels))[:, 0]
    return labels[order]


def _why_invalid(words: Sequence[str], control: NDArray[np.int64], *, of_texts: bool) -> str:
    """Return why random classes of these words are not a valid control; "" if they are."""
    (word, count), *_ = Counter(words).most_common(1)
    num_distinct = len(set(words))
    subject = "texts begin with" if of_texts else "words are"
    if num_distinct == 1 or count > NEARLY_ALL * len(words):
        return f"{count / len(words):.0%} of the {subject} “{word}”"
    if num_distinct < FEWEST_WORDS:
        return f"the {subject} {num_distinct} different {'words' if of_texts else 'ones'} only"
    return "" if len(np.unique(control)) > 1 else "all words were drawn the same class"


def _is_right(
    train_states: NDArray[np.float32],
    evaluated_states: NDArray[np.float32],
    labels: NDArray[np.int64],
    truth: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Train a logistic regression on one layer; return which of the evaluated part are right."""
    mean, deviation = _scale(train_states)
    predicted = np.full(len(truth), labels[0])
    if len(np.unique(labels)) > 1:
        from sklearn.linear_model import LogisticRegression  # a second to import

        probe = LogisticRegression(max_iter=ITERATIONS, tol=TOLERANCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # not converged; many classes of few rows
            probe.fit((train_states - mean) / deviation, labels)
        predicted = probe.predict((evaluated_states - mean) / deviation)
    return np.asarray(predicted == truth)


def _accuracy(right: NDArray[np.bool_]) -> Estimate:
    return estimate(metrics.accuracy, np.ones(len(right), bool), right)


def _scale(states: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return means and standard deviations of states (..., N, D) over N. Deviations have a lower
    bound relative to the largest state of a layer, so that rounding errors are not scaled up."""
    lower_bound = ROUNDING * np.abs(states).max((-2, -1), keepdims=True)
    deviation = np.maximum(states.std(-2, keepdims=True), np.where(lower_bound > 0, lower_bound, 1))
    return states.mean(-2, keepdims=True), deviation


class _Mix(nn.Module):
    """A classifier on a weighted mean of layers (Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int, width: int, classes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.top = nn.Linear(width, classes)
        nn.init.zeros_(self.top.weight)
        nn.init.zeros_(self.top.bias)

    def forward(self, states: Tensor) -> Tensor:
        mixed = torch.einsum("l,lnd->nd", self.weights.softmax(0), states)
        scores: Tensor = self.top(mixed)
        return scores


def _mix(train: _States, evaluated: _States, classes: int) -> tuple[list[float], Estimate]:
    """Train the classifier on the mix; returns the weights of layers and the accuracy."""
    mean, deviation = _scale(train.states)
    train_states, evaluated_states = (
        torch.from_numpy((part.states - mean) / deviation) for part in (train, evaluated)
    )
    labels = torch.from_numpy(train.labels)
    mix = _Mix(len(train_states), train_states.shape[2], classes)
    optimizer = torch.optim.Adam(mix.parameters(), lr=MIX_RATE)
    generator = torch.Generator().manual_seed(torch_seed(key("shuffle", 0)))
    for _ in range(max(MIX_EPOCHS, -(-MIX_STEPS // -(-len(labels) // MIX_BATCH)))):
        for chosen in torch.randperm(len(labels), generator=generator).split(MIX_BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(mix(train_states[:, chosen]), labels[chosen]).backward()
            optimizer.step()
    with torch.inference_mode():
        predicted = mix(evaluated_states).argmax(1).numpy()
        weights = mix.weights.softmax(0).tolist()
    return weights, estimate(metrics.accuracy, evaluated.labels, predicted)


def _baselines(
    train: _States, evaluated: _States, *, of_texts: bool
) -> dict[str, NDArray[np.bool_]]:
    """Return for which of the evaluated part the most frequent class is right, and that of each
    word (of the first word of each text if `of_texts`)."""
    commonest = int(np.bincount(train.labels).argmax())
    labels_by_word: dict[str, list[int]] = {}
    for word, label in zip(train.words, train.labels.tolist(), strict=True):
        labels_by_word.setdefault(word, []).append(label)
    by_word = {word: int(np.bincount(labels).argmax()) for word, labels in labels_by_word.items()}
    predicted = np.array([by_word.get(word, commonest) for word in evaluated.words])
    by_word_name = "commonest by first word" if of_texts else "commonest by word"
    return {
        COMMONEST: evaluated.labels == commonest,
        by_word_name: evaluated.labels == predicted,
    }


# ------------------------------------------------------------------------------ similarity of texts
RESAMPLES = 200
RESAMPLES_PER_TEST = 50  # of the verdict, for each layer and pooling


POOLINGS = {
    "first token (CLS)": _pooled("cls"),
    "last token": _pooled("lasttoken"),
    "mean": _pooled("mean"),
    "maximum": _pooled("max"),
}


@dataclass(frozen=True)
class PoolingComparison:
    """Spearman's correlations by pooling, each by layer (`found`); of an untrained model with mean
    pooling (`untrained`), and of TF-IDF (`words`). `pairs` of the `there` pairs were compared.
    `verdict`: whether the best layer and pooling is better than both; its intervals allow for the
    choice among all of them."""

    part: str
    pairs: int
    there: int
    layers: list[str]
    found: dict[str, list[Estimate]]
    untrained: list[Estimate]
    words: float
    verdict: Verdict
    findings: Sequence[Finding] = ()


def compare_pooling(
    subject: ProbedModel, data: Dataset, items: int | None = None
) -> PoolingComparison:
    """Compare layers and poolings on pairs of texts with similarity scores: on the test part of
    `data`, or on all if it is not split; at most `items` of them, sampled (None: all)."""
    task_type = task_for_vectors({})
    part = next(name for name in (ALL, TEST, VALIDATION, TRAIN) if name in data.parts)
    all_rows = data.parts[part]
    indices = np.arange(len(all_rows) if items is None else min(items, len(all_rows)))
    order = np.sort(permute(key("draw", 0), len(all_rows), indices))  # files are often in an order
    rows = [all_rows[number] for number in order]
    encoded = task_type.encode(rows, subject.frame)
    truth = np.array([row.label for row in rows], np.float64)
    scores_by_pooling = {
        name: _pair_scores(subject.model, subject, encoded.examples, method)
        for name, method in POOLINGS.items()
    }
    untrained = _pair_scores(subject.untrained(), subject, encoded.examples, POOLINGS["mean"])
    # TF-IDF is fitted to the training rows, or to all rows if they are not divided.
    data_to_train = replace(data, parts={TRAIN: all_rows, **data.parts})
    ((_, tfidf_answers), *_) = task_type.baselines(data_to_train, part)
    tfidf_scores = np.asarray(tfidf_answers)[order]
    correlations = {n: _correlations(truth, layers) for n, layers in scores_by_pooling.items()}
    choices = list(itertools.product(correlations, range(len(untrained))))
    name, layer = max(
        choices, key=lambda c: np.nan_to_num(correlations[c[0]][c[1]].value, nan=-1.0)
    )
    best, rivals = scores_by_pooling[name][layer], []
    # The best of all choices was selected on these pairs (Bonferroni).
    level, resamples = 1 - (1 - LEVEL) / len(choices), RESAMPLES_PER_TEST * len(choices)
    baselines = {"a bag of words": tfidf_scores, "an untrained model": untrained[layer]}
    for rival, scores in baselines.items():
        gap = of_metric(metrics.spearman, truth, best, scores, level=level, resamples=resamples)
        rivals.append(Rival(rival, metrics.spearman(truth, scores), gap))
    where = f"Spearman's correlation of the {name} at {subject.layers[layer]},"
    return PoolingComparison(
        part,
        len(rows),
        len(all_rows),
        subject.layers,
        correlations,
        _correlations(truth, untrained),
        metrics.spearman(truth, tfidf_scores),
        verdict(where, correlations[name][layer].value, rivals, len(rows), ("pair", "pairs")),
        encoded.findings,
    )


def _pair_scores(
    model: Prepared, subject: ProbedModel, examples: EncodedExamples, method: Pooling
) -> list[NDArray[np.float64]]:
    """Return scores of pairs that rank them as the cosines of their vectors do, by layer."""
    states = layer_states(model, examples, subject.collation, method)
    # A pair's texts follow each other; the nearest pair has the highest rank, as by cosine.
    return [np.asarray(-distance_steps(layer[0::2], layer[1::2])) for layer in states]


def _correlations(
    truth: NDArray[np.float64], ranked: Sequence[NDArray[np.float64]]
) -> list[Estimate]:
    return [estimate(metrics.spearman, truth, layer, resamples=RESAMPLES) for layer in ranked]
