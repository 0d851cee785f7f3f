"""Probable label errors, by predictions for rows that a model has not learned from.

Five folds of the rows (equal texts and groups in one) are predicted by a model of the other four:
logistic regression on a bag of words, or on the frozen embeddings of a Transformer. This is the
setting of confident learning (Northcutt et al. 2021, arXiv:1911.00068), but its count of errors is
not used: rows that a model finds hard are not told from rows with a wrong label by it, so it calls
10 to 15 % of the labels of clean data wrong. Instead two numbers are fitted to the probabilities p
of the given labels by maximum likelihood: an inverse temperature, and a share e of labels that were
replaced by any of the other K - 1 classes,

    P(label) = (1 - e) p + e (1 - p) / (K - 1).

The model of clean labels is e = 0, and both are compared by their likelihood ratio. The posterior
probability of a wrong label, e (1 - p) / (K - 1) / P(label), ranks rows as their margin does, and
its mean is the precision to expect of a list.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.doctor.check import (
    EXAMINED,
    Check,
    FlaggedRow,
    Subject,
    percent,
    severity,
    shown_text,
)
from maskwright.base.errors import DataError, Finding
from maskwright.base.report.panel import WorkPanel
from maskwright.base.terminal import counted
from maskwright.learn.tasks.base.bag_of_words import MANY, WORDS, fit_vectorizers, targets
from maskwright.text.tables.rows import TRAIN, Example, PairExample, TextExample
from maskwright.text.tables.splits import fold_rows

FOLDS = 5
# Of so many classes and rows a bag of words is learned in seconds.
ROWS_TIMES_CLASSES = 800_000
EMBEDDED = 2_000  # rows that a model encodes
LEAST_ROWS = 60
# Twice the log of the likelihood ratio from which labels are called wrong. Where labels follow
# their probabilities it exceeds 11 in less than 1 of 1,000 data sets (chi-squared, at the border of
# its parameter); in public data without such a finding the highest is 3.
RATIO = 11.0
LIMIT = 2.71  # the same for the upper limit of a one-sided 95 % interval
# A model has to avoid this share of the errors of the most frequent label to judge labels.
SKILL = 0.2
NOISY = 0.01  # a share of wrong labels that lowers every score by as much
SUSPECT = 0.5  # posterior probability of a wrong label
# Shuffled labels of public data have a relation of -3.4 to 2.3 to their texts. That of labels which
# need the order of words (CoLA) is 9 on 5,000 rows, but 0 to 6 on 1,000: fewer rows are a note.
RELATION, LEAST_RELATED = 3.0, 2_000
LISTED = 1_000


@dataclass(frozen=True)
class FoldPredictions:
    """Predictions of rows by models that did not learn from them.

    Attributes:
        labels: (N,) class indices, for several labels (N, C) of 0 and 1, or numbers.
        log_odds: (N, C) log probabilities of the classes up to a constant; for several labels
            the logit of each; for numbers (N, 1) predictions. NaN for rows that are in no fold.
        source: of the features.
    """

    rows: Sequence[Example]
    labels: NDArray[Any]
    log_odds: NDArray[np.float64]
    source: str

    @property
    def accuracy(self) -> float:
        """The share of rows, or of all labels of rows, that are predicted right."""
        if self.labels.ndim == 2:
            return float(((self.log_odds > 0) == self.labels).mean())
        return float((self.log_odds.argmax(1) == self.labels).mean())

    @property
    def usual(self) -> float:
        """The accuracy of the most frequent answer."""
        if self.labels.ndim == 2:
            share = self.labels.mean()
            return float(max(share, 1 - share))
        return float(np.bincount(self.labels).max() / len(self.labels))

    @property
    def skill(self) -> float:
        """The share of the errors of the most frequent answer that are avoided."""
        return (self.accuracy - self.usual) / max(1 - self.usual, 1e-9)

    @property
    def relation(self) -> float:
        """By how many standard deviations the scores of the labels exceed those of labels that are
        permuted over the rows (Hoeffding 1951); infinite for several labels."""
        if self.labels.ndim == 2:
            return math.inf
        counts = np.bincount(self.labels, minlength=self.log_odds.shape[1])
        centred = self.log_odds - self.log_odds.mean(0)
        centred = centred - (centred @ counts)[:, None] / len(self.labels)
        deviation = math.sqrt((centred**2 @ counts).sum() / (len(self.labels) - 1))
        return float(centred[np.arange(len(self.labels)), self.labels].sum()) / max(deviation, 1e-9)


def out_of_fold(
    subject: Subject,
    embed: Callable[[Sequence[str]], NDArray[Any]] | None,
    source: str,
    panel: WorkPanel,
) -> FoldPredictions | None:
    """Predict each row by a model of the other folds; None if the task or the number of rows does
    not allow it, and for pairs without `embed`.

    Args:
        embed: returns one vector (N, D) for each text; None: a bag of words.
        panel: shows the progress.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    first_row = subject.rows[0]
    num_classes = len(subject.names)
    is_pair = isinstance(first_row, PairExample)
    if not isinstance(first_row, TextExample | PairExample) or (is_pair and embed is None):
        return None
    most = EXAMINED if embed is None else EMBEDDED
    data = subject.drawn(min(most, ROWS_TIMES_CLASSES // max(1, num_classes)))
    rows = data.parts[TRAIN]
    if len(rows) < LEAST_ROWS or not num_classes:
        return None
    try:
        folds = fold_rows(data, FOLDS)
    except DataError:  # groups or texts are fewer than folds
        return None
    labels = targets(rows, num_classes)
    texts = [row.whole_text for row in rows]
    panel.part = f"labels by {source}"
    features: Any = None if embed is None else _embeddings(rows, embed)
    log_odds = np.full((len(rows), num_classes), np.nan)
    if embed is None:  # each text is split once, not once in each fold
        ((_, weigh),) = fit_vectorizers(texts, [WORDS])
        counts = CountVectorizer.transform(weigh, texts)
    begin = time.monotonic()
    for number, held_out in enumerate(map(np.array, folds)):
        now = time.monotonic()
        panel.part = f"labels by {source}, fold {number + 1} of {len(folds)}"
        panel.ends = now + (now - begin) / number * (len(folds) - number) if number else math.nan
        learned = np.setdiff1d(np.arange(len(rows)), held_out)
        if embed is None:
            num_texts = (counts[learned] > 0).sum(0)  # of each word
            least = min(2 if len(learned) > MANY else 1, num_texts.max())
            common = counts[:, np.flatnonzero(num_texts >= least)]
            features = TfidfTransformer(sublinear_tf=True).fit(common[learned]).transform(common)
        sides = features[learned], labels[learned], features[held_out]
        log_odds[held_out] = _predicted(*sides, num_classes)
    is_predicted = ~np.isnan(log_odds).any(1)
    return FoldPredictions(
        [row for row, is_known in zip(rows, is_predicted, strict=True) if is_known],
        labels[is_predicted],
        log_odds[is_predicted],
        source,
    )


def _embeddings(rows: Sequence[Example], embed: Callable[[Sequence[str]], NDArray[Any]]) -> Any:
    """Encode each text once; of a pair the features are products and differences."""
    fields = type(rows[0]).text_fields
    vectors = [embed([getattr(row, name) for row in rows]) for name in fields]
    matrix = vectors[0]
    if len(vectors) == 2:
        matrix = np.hstack([vectors[0] * vectors[1], np.abs(vectors[0] - vectors[1])])
    return matrix / matrix.std()  # penalties are for features of this scale


def _predicted(
    features: Any, labels: NDArray[Any], new_features: Any, num_classes: int
) -> NDArray[np.float64]:
    """Return the log odds (N, C) of new rows."""
    from sklearn.linear_model import LogisticRegression

    # A bag of words has rows of length 1 with few features; embeddings have deviation 1.
    strength = 0.01 if isinstance(features, np.ndarray) else 10.0
    model = LogisticRegression(C=strength, max_iter=100, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not converged; many classes of few rows
        if labels.ndim == 2:
            log_odds = np.full((new_features.shape[0], num_classes), -10.0)
            for number, column in enumerate(labels.T):
                if 0 < column.sum() < len(column):
                    log_odds[:, number] = model.fit(features, column).decision_function(
                        new_features
                    )
            return log_odds
        log_odds = np.full((new_features.shape[0], num_classes), -20.0)
        model.fit(features, labels)
    log_odds[:, model.classes_] = np.maximum(model.predict_log_proba(new_features), -20.0)
    return log_odds


@dataclass(frozen=True)
class LabelNoise:
    """The fit of a `share` of wrong labels.

    Attributes:
        most: the upper limit of its one-sided 95 % interval, at most 0.5.
        ratio: twice the log of the likelihood ratio against a share of 0.
        posterior: (N,) or (N, C) the probability that a label is wrong.
    """

    share: float
    most: float
    ratio: float
    posterior: NDArray[np.float64]


def estimate_noise(log_odds: NDArray[np.float64], labels: NDArray[Any]) -> LabelNoise:
    """Fit the share of wrong labels; arrays as in `FoldPredictions`. Each of several labels is a
    row of two classes."""
    from scipy.optimize import minimize, minimize_scalar

    if labels.ndim == 2:
        pairs = np.stack([np.zeros(labels.size), log_odds.ravel()], axis=1)
        noise = estimate_noise(pairs, labels.ravel())
        return replace(noise, posterior=noise.posterior.reshape(labels.shape))
    num_others = log_odds.shape[1] - 1
    every = np.arange(len(labels))

    def label_probabilities(log_scale: float) -> NDArray[np.float64]:
        scaled = log_odds * np.exp(np.clip(log_scale, -5, 5))
        scaled = scaled - scaled.max(1, keepdims=True)
        probabilities = np.exp(scaled)
        return np.asarray(probabilities[every, labels] / probabilities.sum(1))

    def loss(log_scale: float, share: float) -> float:
        p = label_probabilities(log_scale)
        mixed = (1 - share) * p + share * (1 - p) / num_others
        return float(-np.log(np.maximum(mixed, 1e-12)).sum())

    clean = minimize(lambda x: loss(x[0], 0.0), [0.0], method="Nelder-Mead")
    noisy = minimize(
        lambda x: loss(x[0], 1 / (1 + np.exp(-x[1]))), [clean.x[0], -3.0], method="Nelder-Mead"
    )
    share = float(1 / (1 + np.exp(-noisy.x[1])))
    p = label_probabilities(noisy.x[0])
    wrong = share * (1 - p) / num_others
    posterior = wrong / ((1 - share) * p + wrong)
    low, most = share, 0.5
    while most - low > 0.005:
        middle = (low + most) / 2
        bracket = noisy.x[0], noisy.x[0] + 0.3
        fit = minimize_scalar(loss, bracket=bracket, args=(middle,), tol=0.01)
        low, most = (low, middle) if fit.fun - noisy.fun > LIMIT / 2 else (middle, most)
    return LabelNoise(share, most, max(0.0, 2 * float(clean.fun - noisy.fun)), posterior)


def check_labels(subject: Subject, predicted: FoldPredictions | None) -> Check:
    """Look for labels that are probably wrong."""
    name = "label errors"
    if predicted is None:
        needed = f"{LEAST_ROWS} rows of {FOLDS} different texts or groups"
        return Check(name, f"needs {needed}, with classes of texts, or of pairs and a MODEL")
    figures: dict[str, Any] = {
        "examined_rows": len(predicted.rows),
        "features": predicted.source,
        "accuracy": round(predicted.accuracy, 4),
        "majority": round(predicted.usual, 4),
    }
    skill = f"{predicted.source}, out of fold"
    if len(predicted.rows) < len(subject.rows):
        skill += f", {len(predicted.rows):,} of {len(subject.rows):,} rows"
    skill += f": {predicted.accuracy:.3f} right (most frequent answer {predicted.usual:.3f})"
    if predicted.skill < SKILL:
        skill += ", which is too little to judge labels"
        return Check(name, skill, figures, _unrelated(predicted))
    noise = estimate_noise(predicted.log_odds, predicted.labels)
    figures |= {"estimated_share": round(noise.share, 4), "likelihood_ratio": round(noise.ratio, 1)}
    figures["highest_share"] = round(noise.most, 3)
    if noise.ratio < RATIO:
        hidden = f"no sign of wrong labels, but up to {percent(noise.most)} would not show"
        return Check(name, f"{skill}; {hidden}", figures)
    flagged = np.argwhere(noise.posterior >= SUSPECT)
    flagged = flagged[np.argsort(-noise.posterior[tuple(flagged.T)], kind="stable")]
    rows = [_flagged_row(subject, predicted, noise, index) for index in flagged[:LISTED]]
    expected = float(noise.posterior[tuple(flagged.T)].mean()) if len(flagged) else 0.0
    figures |= {"suspects": len(flagged), "expected_precision": round(expected, 3)}
    labels = "labels" if predicted.labels.ndim == 1 else "marks of labels"
    confused = Counter((row.label, row.suggestion) for row in rows).most_common(1)
    finding = Finding(
        "wrong-labels",
        f"about {percent(noise.share)} of the {labels} are wrong",
        f"{counted(len(flagged), 'row')} to look at, of which about {expected:.0%} are wrong"
        + (f"; most often {confused[0][0][0]!r} in place of {confused[0][0][1]!r}" if rows else "")
        + (f"; the first: {rows[0].where}" if rows else ""),
        "correct the rows that are listed, then run this again",
        severity(noise.share, NOISY),
    )
    return Check(name, f"{skill}; about {percent(noise.share)} wrong", figures, [finding], rows)


def _unrelated(predicted: FoldPredictions) -> list[Finding]:
    """Return a finding if labels are predicted no better than by chance."""
    if predicted.relation >= RELATION:
        return []
    message = "the label is predicted from the text no better than by chance"
    evidence = f"{predicted.accuracy:.2f} right of {len(predicted.rows):,} rows, the most frequent "
    evidence += f"answer {predicted.usual:.2f}"
    remedy = "make sure that these are the columns you mean: --column text=… --column label=…; if "
    remedy += "the order of words decides, name a MODEL"
    grade = severity(len(predicted.rows), LEAST_RELATED)
    return [Finding("labels-not-predicted", message, evidence, remedy, grade)]


def _flagged_row(
    subject: Subject, predicted: FoldPredictions, noise: LabelNoise, index: NDArray[np.int64]
) -> FlaggedRow:
    row = predicted.rows[index[0]]
    if len(index) == 2:  # one of several labels: it is missing, or too much
        label, suggestion = subject.names[index[1]], f"not {subject.names[index[1]]}"
        if not predicted.labels[tuple(index)]:
            label, suggestion = suggestion, label
    else:
        odds, number = predicted.log_odds[index[0]].copy(), predicted.labels[index[0]]
        odds[number] = -np.inf
        label, suggestion = subject.names[number], subject.names[int(odds.argmax())]
    text = " ".join(shown_text(row).split())
    score = round(float(noise.posterior[tuple(index)]), 3)
    return FlaggedRow(row.where, text, label, suggestion, score)
