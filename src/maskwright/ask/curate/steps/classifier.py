"""classifier: score the quality of documents, by your own examples of good and bad texts.

The classifier is trained on a labelled file when the curation begins, and evaluated by
cross-validation; one no better than chance is refused. Alternatively a fine-tuned model is used.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from maskwright.ask.curate.scores import class_names, model_files, probabilities
from maskwright.base.errors import ConfigError, DataError, Finding, MaskwrightError, near
from maskwright.base.storage.files import file_state
from maskwright.text.curate.arrays.hashes import BASE, mix, starts_of
from maskwright.text.curate.arrays.selection import hashes
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    RuleMeasure,
    arrow_table,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray, UintArray
from maskwright.text.tables import files
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build
from maskwright.text.tables.rows import TextExample

SUMMARY = (
    "notes the quality of each document by your examples of good and bad texts, and keeps the best"
)
LIKELY = 0.01  # the largest probability of the classifier's success by chance
BITS = 18
SIZE = 4  # characters of a character n-gram
FOLDS = 5
FEWEST = 20  # examples of each class
GOOD_NAMES = {"good", "yes", "keep", "true", "1", "positive", "pos", "high", "accept", "ok"}
BAD_NAMES = {"bad", "no", "drop", "false", "0", "negative", "neg", "low", "reject", "remove", "-1"}
SCALE = 10.0  # features are shares; this brings their sums near 1
STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularisation, chosen by cross-validation
# The dual problem: there are fewer examples than features.
SOLVER: dict[str, Any] = dict(solver="liblinear", dual=True, random_state=0, tol=0.01)
FIXED = 1 << 24  # scale of weights, which are stored as integers

# Hashed features of B texts by kind: (F,) columns, (B + 1,) the first feature of each text.
Features = Sequence[tuple[IntArray, IntArray]]


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    NOTES: ClassVar[tuple[str, ...]] = ("quality",)

    examples: str = ""
    """A file of texts labelled with two classes (csv, jsonl, ...), at least 20 of each."""
    model: str = ""
    """The folder of a model that was fine-tuned on two classes, in place of `examples`."""
    good_label: str = ""
    """The class of good texts; may be left out where the names say it (yes and no, good and bad,
    keep and drop, true and false, 1 and 0)."""
    least: float | None = None
    """The least probability of a good text; without this and `keep_share` all are kept, and their
    quality is noted."""
    keep_share: float | None = None
    """The share of the documents that is kept, the best ones."""

    def check(self) -> None:
        self.require_one("examples", "model", example='examples = "judged.csv"')
        self.refuse_both("model", "examples")
        self.refuse_both("least", "keep_share")
        self.check_shares("least", "keep_share", positive=True)

    def files(self) -> Sequence[Path]:
        if self.model:
            return model_files(self.model)
        return [Path(self.examples)] if self.examples else []

    def require(self) -> None:
        if self.model:
            good_label(class_names(self.model), self.good_label)
        else:
            self._learned()

    def score_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the quality of each document, by the classifier in `side_input`."""
        weights = side_input.column("weights")[0].values.to_numpy()
        numbers = (side_input.column(name)[0].as_py() for name in ("bias", "slope", "shift"))
        quality = LinearClassifier(weights, *numbers).probabilities(features_of(batch))
        return arrow_table(row=batch.rows, quality=quality)

    def model_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the quality of each document, by the model."""
        label = good_label(class_names(self.model), self.good_label)
        quality = probabilities(self.model, batch.texts, label)
        return arrow_table(row=batch.rows, quality=quality)

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the quality of each document, and the least one that is kept (`least`).

        Raises:
            UsageError, DataError, ConfigError: the examples are not texts of two classes, or the
                classifier is no better than chance.
            CheckpointError, IncompatibleError: the model cannot be used.
        """
        if self.model:
            table = corpus.map("model", self.model_pass).read()
        else:
            table = corpus.map("score", self.score_pass, self._weights(corpus)).read()
        quality = table.column("quality").to_numpy()
        least = 0.0 if self.least is None else self.least
        if self.keep_share is not None and len(quality):
            kept_count = max(1, round(self.keep_share * len(quality)))
            least = float(np.sort(quality)[len(quality) - kept_count])
        documents, limits = table.column(DOCUMENT), np.full(len(quality), least)
        return arrow_table(document=documents, quality=quality, least=limits)

    def _learned(self) -> tuple[LabelledTexts, LinearClassifier, HeldOutScores]:
        """Train on the examples, cached per process; raise the errors of `gather`."""
        examples, linear, trial = _train_on_file(
            self.examples, self.good_label, *map(file_state, filter(Path.is_file, self.files()))
        )
        if trial.chance > LIKELY:
            raise DataError(
                "the classifier is no better than chance",
                where=f"classifier.examples, {self.examples}",
                found=f"{trial.accuracy:.1%} right on examples it had not learned from "
                f"(area under the curve {trial.area:.2f}, {len(examples.good)} examples)",
                wanted=f"clearly more than {trial.usual:.1%} (area 0.5)",
                do="label more texts, by a judgement that the text itself shows",
            )
        return examples, linear, trial

    def _weights(self, corpus: CorpusHandle) -> ArrowTable:
        """Return the classifier as a side input of `score_pass`; report its metrics."""
        examples, linear, trial = self._learned()
        corpus.say(
            Finding(
                "quality-classifier",
                f"the classifier of quality is right for {trial.accuracy:.1%} of the examples that "
                "it had not learned from",
                f"{len(examples.good):,} examples, {examples.good.sum():,} of them "
                f"{examples.label!r}; the usual class alone: {trial.usual:.1%}; area under the "
                f"curve {trial.area:.3f}",
            )
        )
        return arrow_table(**{name: [value] for name, value in vars(linear).items()})

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        quality = gathered.column("quality").to_numpy()
        limited = self.least is not None or self.keep_share is not None
        low = float(gathered.column("least")[0].as_py()) if limited else None
        return Outcome(
            measures=[RuleMeasure("quality", quality, low=low)],
            notes={"quality": [f"{value:.6f}" for value in quality.tolist()]},
        )


@dataclass(frozen=True)
class LinearClassifier:
    """A linear classifier of hashed features.

    Attributes:
        weights: (2**18,) int64, in units of 2**-24.
        bias: the intercept of the decision function.
        slope, shift: the probability is logistic(slope * decision + shift).
    """

    weights: IntArray
    bias: float
    slope: float
    shift: float

    def probabilities(self, features: Features) -> FloatArray:
        """Return (B,) the probability of the class of good texts, rounded to six decimals."""
        decisions = np.zeros(len(features[0][1]) - 1)
        for columns, starts in features:
            sums = starts_of(self.weights[columns])
            counts = np.maximum(np.diff(starts), 1)
            decisions += (sums[starts[1:]] - sums[starts[:-1]]) / counts * (SCALE / FIXED)
        return _logistic(self.slope * (decisions + self.bias) + self.shift).round(6)


@dataclass(frozen=True)
class HeldOutScores:
    """Cross-validated metrics of a classifier.

    Attributes:
        accuracy: the share of correct predictions.
        usual: the share of the more frequent class.
        area: the area under the ROC curve; 0.5 for chance.
        chance: the probability of an area at least as large by chance.
    """

    accuracy: float
    usual: float
    area: float
    chance: float


def features_of(batch: CurationBatch) -> Features:
    """Compute the features of the texts of a batch."""
    words, characters = batch.words, batch.characters
    pairs, pair_starts = words.shingles(2)
    folded = characters.points.astype(np.uint64)
    capitals = (folded >= 65) & (folded <= 90)
    folded += capitals.astype(np.uint64) * np.uint64(32)
    count = max(0, len(folded) - SIZE + 1)
    sequence = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(SIZE):
            sequence = sequence * BASE + folded[offset : offset + count]
    # The last n-gram of a text includes its line end; those across two texts are dropped.
    complete = np.ones(count, np.bool_)
    for back in range(1, SIZE):
        tails = characters.offsets[1:] - back
        complete[tails[tails < count]] = False
    starts = starts_of(np.maximum(np.diff(characters.offsets) - SIZE + 1, 0))
    kinds = (
        (words.hashes, words.starts),
        (pairs, pair_starts),
        (mix(sequence[complete] + BASE), starts),
    )
    return [((h >> np.uint64(64 - BITS)).astype(np.int64), starts) for h, starts in kinds]


def train_classifier(
    batch: CurationBatch, good: BoolArray
) -> tuple[LinearClassifier, HeldOutScores]:
    """Train a classifier, and evaluate it by cross-validation.

    Args:
        batch: the texts; equal ones are in the same fold.
        good: (B,) whether each text is good.
    """
    from scipy.stats import mannwhitneyu
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # Sort the examples, so that their order has no effect.
    keys = hashes(batch.texts)
    order = np.lexsort((good, keys))
    indices, good, keys = order.tolist(), good[order], keys[order]
    batch = CurationBatch(
        np.arange(len(good)), [batch.ids[n] for n in indices], [batch.texts[n] for n in indices]
    )
    shares = _matrix(features_of(batch))
    document_counts = np.asarray((shares > 0).sum(axis=0)).ravel()
    rarity = np.log((1 + len(good)) / (1 + document_counts)) + 1
    features = np.flatnonzero(document_counts)
    matrix = shares.multiply(rarity[None, :]).tocsr()[:, features]
    folds = _folds(keys, good)

    def fit(strength: float, chosen: BoolArray) -> Any:
        # Examples without a pattern do not converge; the metrics show that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LogisticRegression(C=strength, **SOLVER).fit(matrix[chosen], good[chosen])

    best: tuple[float, float, FloatArray] | None = None
    for strength in STRENGTHS:
        decisions = np.zeros(len(good))
        for fold in range(FOLDS):
            in_fold = folds == fold
            decisions[in_fold] = fit(strength, ~in_fold).decision_function(matrix[in_fold])
        area = float(mannwhitneyu(decisions[good], decisions[~good]).statistic)
        if best is None or area > best[0]:
            best = (area, strength, decisions)
    assert best is not None
    _, strength, decisions = best
    slope, shift = _calibrated(decisions, good)
    fitted = fit(strength, np.ones(len(good), np.bool_))
    weights = np.zeros(1 << BITS, np.int64)
    weights[features] = np.rint(fitted.coef_[0] * rarity[features] * FIXED).astype(np.int64)
    linear = LinearClassifier(weights, float(fitted.intercept_[0]), slope, shift)
    rank_test = mannwhitneyu(decisions[good], decisions[~good], alternative="greater")
    predicted = _logistic(linear.slope * decisions + linear.shift) > 0.5
    share = float(good.mean())
    trial = HeldOutScores(
        float((predicted == good).mean()),
        max(share, 1 - share),
        float(rank_test.statistic) / (good.sum() * (~good).sum()),
        float(rank_test.pvalue),
    )
    return linear, trial


def _calibrated(decisions: FloatArray, good: BoolArray) -> tuple[float, float]:
    """Return slope and shift of Platt scaling, with smoothed targets (Platt 1999, section 2.2)."""
    from sklearn.linear_model import LogisticRegression

    positives, negatives = good.sum(), (~good).sum()
    target = np.where(good, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    regression = LogisticRegression(C=1e6).fit(
        np.concatenate([decisions, decisions])[:, None],
        np.repeat([True, False], len(good)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return float(regression.coef_[0, 0]), float(regression.intercept_[0])


def _logistic(values: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -50, 50))))


def _matrix(features: Features) -> Any:
    """Return (B, 2**18), sparse: the share of each feature in those of its kind, times `SCALE`."""
    import scipy.sparse

    total: Any = 0
    for columns, starts in features:
        counts = np.diff(starts)
        block = scipy.sparse.csr_matrix(
            (np.repeat(SCALE / np.maximum(counts, 1), counts), columns, starts),
            (len(counts), 1 << BITS),
        )
        block.sum_duplicates()
        total = block if isinstance(total, int) else total + block
    return total


def _folds(keys: UintArray, good: BoolArray) -> IntArray:
    """Return (B,) the fold of each example: classes evenly divided, equal texts together."""
    folds = np.zeros(len(keys), np.int64)
    for members in (good, ~good):
        _, ranks = np.unique(keys[members], return_inverse=True)
        folds[members] = ranks % FOLDS
    return folds


@functools.lru_cache(maxsize=2)
def _train_on_file(
    path: str, label: str, *state: object
) -> tuple[LabelledTexts, LinearClassifier, HeldOutScores]:
    examples = read_labelled_texts(path, label)
    return examples, *train_classifier(examples.batch, examples.good)


@dataclass(frozen=True)
class LabelledTexts:
    """B labelled texts.

    `good`: (B,) whether each is good; `label`: the name of the class of good texts."""

    batch: CurationBatch
    good: BoolArray
    label: str


def read_labelled_texts(path: str, label: str) -> LabelledTexts:
    """Read the examples of a labelled file.

    Args:
        label: the class of good texts; "": infer it from its name (yes, good, keep, ...).

    Raises:
        UsageError, DataError: the file cannot be read, is no classification of texts into two
            classes, has too few of one, or a text in both.
        ConfigError: the class of good texts cannot be inferred.
    """
    where = f"classifier.examples, {path}"
    try:
        rows = files.load(path)
        task = infer(rows)
        examples = build(rows, task)
    except MaskwrightError as error:
        if error.where is None or path not in error.where:
            raise error.under(f"{where}: ") from None
        raise
    every = itertools.chain.from_iterable(examples.parts.values())
    singles = [example for example in every if isinstance(example, TextExample)]
    names = () if examples.labels is None else examples.labels.names
    if len(names) != 2 or not all(isinstance(single.label, int) for single in singles):
        raise DataError(
            "the examples are not texts of two classes",
            where=where,
            found=f"{task.name} with {len(names)} classes" if names else task.name,
            wanted="a column of texts and one of labels such as yes and no",
            do="label each text with one of two names",
        )
    number = names.index(good_label(names, label))
    good = np.array([single.label == number for single in singles])
    for count, name in ((int(good.sum()), names[number]), (int((~good).sum()), names[1 - number])):
        if count < FEWEST:
            raise DataError(
                "too few examples to learn from",
                where=where,
                found=f"{count} of {name!r}",
                wanted=f"{FEWEST} or more of each class; some hundred are better",
                do="label more texts",
            )
    by_text: dict[str, TextExample] = {}
    for single in singles:
        previous = by_text.setdefault(single.text, single)
        if previous.label != single.label:
            raise DataError(
                "one text is in both classes",
                where=f"{previous.where} and {single.where}",
                found=single.text[:80],
                wanted="one label for each text",
                do="correct one of the labels",
            )
    texts = [single.text for single in singles]
    ids = [single.where for single in singles]
    return LabelledTexts(CurationBatch(np.arange(len(texts)), ids, texts), good, names[number])


def good_label(names: Sequence[str], label: str) -> str:
    """Return the class of good texts: `label`, or for "" the one inferred from `names`.

    Raises:
        ConfigError: there is no class `label`, or it cannot be inferred.
    """
    if label and label not in names:
        raise ConfigError(
            "there is no such class",
            where="classifier.good_label",
            found=repr(label),
            wanted=" or ".join(names),
            do=near(label, names),
        )
    if label:
        return label
    good = [name for name in names if name.casefold() in GOOD_NAMES]
    bad = [name for name in names if name.casefold() in BAD_NAMES]
    if len(good) == 1 and len(good) + len(bad) == len(names):
        return good[0]
    raise ConfigError(
        "which class is that of good texts is unclear",
        where="classifier.good_label",
        found=", ".join(names[:10]),
        wanted="the class of texts to keep",
        do=f"set good_label = {names[0]!r}, or another of them",
    )
