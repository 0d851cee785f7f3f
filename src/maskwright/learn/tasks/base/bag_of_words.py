"""A bag of words: TF-IDF weights of words and character n-grams, and a linear model above them.
Baselines on the same parts as a model are this and the best constant answer; for retrieval, BM25.

    BagOfWords.fit(rows, num_classes=2, metric="accuracy").scores(rows)    ->  (N, 2)

It is the method `bag-of-words` and, as the row `words` of a table, the baseline of all others.
Words are counted alone and in pairs, characters in groups of 3 to 5 within a word; the weights of
each kind have length 1 in a text. For two texts the features are the weights of each, their
products and differences, and the cosine similarity. Classes are predicted by logistic regression
(one for each of several labels), numbers are predicted by ridge regression. scikit-learn fits all
of it. A saved model is JSON and safetensors, from which the same vectorizers are built again. Only
reading its weights needs torch.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import CheckpointError, ConfigError, MaskwrightError
from maskwright.base.metrics.metrics import METRICS
from maskwright.base.randomness import integers, key, permute
from maskwright.base.storage.manifest import require_as_saved
from maskwright.learn.tasks.base.similarities import unit_vectors
from maskwright.learn.tasks.base.task_type import Encoded, Extent
from maskwright.model.checkpoint.fine_tuned import BAG_OF_WORDS, BAG_TENSORS
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION, Example, PairExample, TextExample

STRENGTHS, USUAL = (1.0, 10.0, 100.0), 10.0
# Words may have a single letter: 'I' and 'a' distinguish languages. A sign is any other character.
WORD, SIGN = r"(?u)\b\w+\b", r"\S"
STEPS = 300
# Maximum of features times classes, at about 160 bytes each in training: with many classes only the
# most frequent words and groups of characters are used.
WEIGHTS = 10_000_000
# With more training rows than this, a word has to occur in two of them.
MANY = 200
# The strength is chosen on validation rows if there are so many, else in folds of training rows.
LEAST_TO_CHOOSE_BY, FOLDS = 20, 3
# The logit of a class that no training row has; its probability is then below 1e-40.
NEVER = -100.0
CONFIG, VOCABULARY = "config.json", "vocabulary.json"
LARGEST = 1 << 28  # bytes of the vocabulary
LATENT = 100  # dimensions


@dataclass(frozen=True, kw_only=True)
class VectorizerSettings:
    """Which groups of units of a text are counted.

    Attributes:
        analyzer: the units: "word", or "char_wb", characters of a word with a space around it.
        lowest, highest: number of units in a group.
    """

    analyzer: str
    lowest: int
    highest: int
    pattern: str = WORD

    def __post_init__(self) -> None:
        # A pattern from a file could take exponential time.
        if self.analyzer not in ("word", "char_wb") or self.pattern not in (WORD, SIGN):
            raise ConfigError("no such vectorizer", where="vectorizers", found=to_plain(self))

    def build(self, **options: Any) -> Any:
        """Return the vectorizer of scikit-learn, with further `options` of it."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(
            analyzer=self.analyzer,
            ngram_range=(self.lowest, self.highest),
            token_pattern=self.pattern if self.analyzer == "word" else None,
            sublinear_tf=True,
            **options,
        )


UNIGRAMS = VectorizerSettings(analyzer="word", lowest=1, highest=1)
WORDS = VectorizerSettings(analyzer="word", lowest=1, highest=2)
CHARACTERS = VectorizerSettings(analyzer="char_wb", lowest=3, highest=5)
SIGNS = VectorizerSettings(analyzer="word", lowest=1, highest=1, pattern=SIGN)


def fit_vectorizers(
    texts: Sequence[str],
    settings: Sequence[VectorizerSettings],
    least: int = 1,
    most: int | None = None,
) -> list[tuple[VectorizerSettings, Any]]:
    """Fit vectorizers on the `most` frequent groups that occur in `least` texts; on all groups if
    none does. Those without a group are left out; if nothing is left, single signs are counted."""
    fitted: list[tuple[VectorizerSettings, Any]] = []
    for candidate in (*settings, SIGNS):
        for number in (least, 1) if candidate is not SIGNS or not fitted else ():
            with contextlib.suppress(ValueError):  # nothing is left
                vectorizer = candidate.build(min_df=number, max_features=most).fit(texts)
                fitted.append((candidate, vectorizer))
                break
    return fitted or [(SIGNS, SIGNS.build(vocabulary=["a"]).fit(texts))]  # all texts are blank


def fit_words(texts: Sequence[str]) -> Any:
    """Return a TF-IDF vectorizer of single words, for similarities; of signs if there are none."""
    ((_, vectorizer),) = fit_vectorizers(texts, [UNIGRAMS])
    return vectorizer


def latent_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return vectors (N, at most `LATENT`) of length 1 by latent semantic analysis (Deerwester et
    al. 1990, doi 10.1002/(SICI)1097-4571(199009)41:6<391::AID-ASI1>3.0.CO;2-9)."""
    from sklearn.decomposition import TruncatedSVD

    weights = fit_words(texts).transform(texts)
    size = min(LATENT, *(n - 1 for n in weights.shape))
    if size < 1:
        return np.ones((len(texts), 1), np.float32)
    return unit_vectors(TruncatedSVD(size, random_state=0).fit_transform(weights))


# Recent fits by their arguments: the baseline of a fold is often what a method was fitted to.
RECENT_FITS: dict[tuple[Any, ...], BagOfWords] = {}
KEPT_ROWS = 20_000  # of all recent fits together


@dataclass(frozen=True)
class BagOfWords:
    """A fitted model of L labels and F features.

    Attributes:
        weights, bias: (L, F) and (L,) float32; L is 1 for numbers.
        strength: the inverse penalty that was chosen.
    """

    settings: tuple[VectorizerSettings, ...]
    vectorizers: tuple[Any, ...]
    is_pair: bool
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    strength: float

    @classmethod
    def fit(
        cls,
        train: Sequence[Example],
        num_classes: int,
        metric: str,
        choose_on: Sequence[Example] = (),
    ) -> BagOfWords:
        """Fit features and linear model on the rows of `train`, and add them to `RECENT_FITS`.

        Args:
            num_classes: number of labels; 0 for numbers.
            metric: chooses the strength of the regression.
            choose_on: validation rows; if they are few, folds of `train` are used in their place.
        """
        fitted = fit_vectorizers(
            [text for row in train for text in _texts(row)],
            (WORDS, CHARACTERS),
            2 if len(train) > MANY else 1,
            WEIGHTS // max(1, num_classes) // 2,
        )
        settings, vectorizers = zip(*fitted, strict=True)
        features, truth = _features(vectorizers, train), targets(train, num_classes)
        if len(choose_on) >= LEAST_TO_CHOOSE_BY:
            new_truth = targets(choose_on, num_classes)
            trials = [(features, truth, _features(vectorizers, choose_on), new_truth)]
        else:
            held_out = [] if len(train) < 2 * FOLDS else _folds(truth)
            trials = [(features[~new], truth[~new], features[new], truth[new]) for new in held_out]
        figures: dict[float, float] = {}
        for strength in STRENGTHS if trials else ():
            answers = []
            for old, old_truth, new, _ in trials:
                linear = _fit_linear(old, old_truth, strength, num_classes)
                answers.append(decided(_scores(new, *linear), truth))
            new_truth = np.concatenate([truth_of_trial for *_, truth_of_trial in trials])
            figures[strength] = METRICS[metric](new_truth, np.concatenate(answers))
        defined = [strength for strength, figure in figures.items() if np.isfinite(figure)]
        best = max(defined, key=figures.__getitem__, default=USUAL)
        linear = _fit_linear(features, truth, best, num_classes)
        bag = cls(settings, vectorizers, isinstance(train[0], PairExample), *linear, best)
        RECENT_FITS[tuple(train), num_classes, metric, tuple(choose_on)] = bag
        while len(RECENT_FITS) > 1 and sum(len(rows) for rows, *_ in RECENT_FITS) > KEPT_ROWS:
            del RECENT_FITS[next(iter(RECENT_FITS))]
        return bag

    def scores(self, rows: Sequence[Example]) -> NDArray[np.float32]:
        """Return the logit (N, L) of each label, or the number (N, 1)."""
        return _scores(_features(self.vectorizers, rows), self._wide_weights, self.bias)

    @cached_property
    def _wide_weights(self) -> NDArray[np.float64]:
        return self.weights.astype(np.float64)  # here, not at each call

    # ------------------------------------------------------------------------ files
    def files(self, about: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the files of the model by name; `about` is added to config.json."""
        from safetensors.numpy import save

        config = {
            "model_type": BAG_OF_WORDS,
            "description": "This is not a Hugging Face model and has no network: it is TF-IDF "
            "weights of words and characters with a linear model. maskwright.load opens it.",
            "vectorizers": [to_plain(setting) for setting in self.settings],
            "is_pair": self.is_pair,
            "strength": self.strength,
            **about,
        }
        terms = [vectorizer.get_feature_names_out().tolist() for vectorizer in self.vectorizers]
        tensors = {f"idf.{n}": vectorizer.idf_ for n, vectorizer in enumerate(self.vectorizers)}
        return {
            CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
            VOCABULARY: (json.dumps({"terms": terms}, ensure_ascii=False) + "\n").encode(),
            BAG_TENSORS: save({**tensors, "weights": self.weights, "bias": self.bias}),
        }

    @classmethod
    def load(cls, folder: Path) -> BagOfWords:
        """Load the model in `folder`.

        Raises:
            CheckpointError: a file is missing, damaged, or does not match the others.
        """
        from maskwright.model.checkpoint import files, safe_read

        config = safe_read.read_json(folder, CONFIG)
        vocabulary = safe_read.read_json(folder, VOCABULARY, LARGEST)
        require_as_saved(safe_read.regular_file(folder, BAG_TENSORS), beside=(CONFIG,))
        stored = files.open_file(folder / BAG_TENSORS)
        tensors = {name: stored.read(name).numpy() for name in stored.entries}
        try:
            settings = tuple(from_plain(VectorizerSettings, s) for s in config["vectorizers"])
            vectorizers, num_features = [], 0
            for number, setting in enumerate(settings):
                vectorizer = setting.build(vocabulary=vocabulary["terms"][number])
                vectorizer.idf_ = tensors[f"idf.{number}"]
                vectorizers.append(vectorizer)
                num_features += len(vectorizer.idf_)
            weights, bias, is_pair = tensors["weights"], tensors["bias"], bool(config["is_pair"])
            num_features = 4 * num_features + len(vectorizers) if is_pair else num_features
            if weights.shape != (*bias.shape, num_features):
                raise ValueError(f"weights {weights.shape}, {num_features} features")
            if not all(np.isfinite(array).all() for array in tensors.values()):
                raise ValueError("a weight that is not finite")
            strength = float(config["strength"])
        except (MaskwrightError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                "the files of a bag of words do not match each other",
                where=folder,
                found=error,
                wanted=f"{CONFIG}, {VOCABULARY} and {BAG_TENSORS} of one model",
                do="take a whole copy of the folder, or fine-tune again into another one",
            ) from error
        return cls(settings, tuple(vectorizers), is_pair, weights, bias, strength)


def encode_words(rows: Sequence[Any]) -> Encoded:
    """Return rows in the form that task types decode. Their words count as tokens; the ids of these
    are all 0, as nothing reads them."""
    counts = [sum(len(text.split()) for text in _texts(row)) for row in rows]
    num_words = np.maximum(np.array(counts, np.int64), 1)
    ids = np.broadcast_to(np.int64(0), (int(num_words.sum()),))
    examples = EncodedExamples(Sequences(ids, num_words), np.zeros(len(rows), np.int64))
    extent = Extent(num_words, np.ones_like(num_words), np.zeros_like(num_words))
    return Encoded(rows, examples, extent=extent)


def _texts(example: Example) -> tuple[str, ...]:
    if isinstance(example, PairExample):
        return example.first, example.second
    assert isinstance(example, TextExample)
    return (example.text,)


def _features(vectorizers: Sequence[Any], rows: Sequence[Example]) -> Any:
    """Return a sparse matrix (N, F) in float64."""
    from scipy import sparse

    texts = list(zip(*map(_texts, rows), strict=True))
    blocks = []
    for vectorizer in vectorizers:
        members = [vectorizer.transform(column) for column in texts]
        blocks += members
        if len(members) > 1:
            shared = members[0].multiply(members[1])
            angle = sparse.csr_matrix(shared.sum(axis=1))
            blocks += [shared, abs(members[0] - members[1]), angle]
    return sparse.hstack(blocks, format="csr")


def _scores(features: Any, weights: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(features @ weights.T + bias, np.float32)


def _folds(truth: NDArray[Any]) -> list[NDArray[np.bool_]]:
    """Return a mask (N,) of the rows of each fold, which have similar shares of the labels."""
    shuffled = permute(key("split", 0), len(truth), np.arange(len(truth)))
    columns = truth[shuffled] if truth.ndim == 1 else truth[shuffled].T
    order = shuffled[np.lexsort(np.atleast_2d(columns))]
    fold = np.empty(len(truth), np.int64)
    fold[order] = np.arange(len(truth)) % FOLDS
    return [fold == number for number in range(FOLDS)]


def _fit_linear(
    features: Any, truth: NDArray[Any], strength: float, num_classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weights (L, F) and bias (L,) of a regression."""
    from sklearn.linear_model import Ridge

    if truth.ndim > 1:
        pairs = [_fit_classes(features, column, strength, 2) for column in truth.T]
        weights = np.stack([weights_of_label[1] for weights_of_label, _ in pairs])
        bias = np.stack([bias_of_label[1] - bias_of_label[0] for _, bias_of_label in pairs])
    elif num_classes:
        weights, bias = _fit_classes(features, truth, strength, num_classes)
    else:
        model = Ridge(alpha=10.0 / strength).fit(features, truth)
        weights, bias = model.coef_[None, :], np.array([model.intercept_])
    return weights.astype(np.float32), bias.astype(np.float32)


@threadpool_limits.wrap(limits=1)
def _fit_classes(
    features: Any, truth: NDArray[np.int64], strength: float, num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (C, F) and bias (C,) of a logistic regression of C classes, some of which may
    have no rows. Of two classes the first has weights and bias 0. Several threads would wait for
    each other most of the time."""
    from sklearn.linear_model import LogisticRegression

    weights, bias = np.zeros((num_classes, features.shape[1])), np.full(num_classes, NEVER)
    classes = np.unique(truth)
    bias[classes] = 0.0
    if len(classes) < 2:
        return weights, bias
    with warnings.catch_warnings():  # not converged; many classes of few rows, as the survey says
        warnings.simplefilter("ignore", UserWarning)
        model = LogisticRegression(C=strength, max_iter=STEPS).fit(features, truth)
    fitted = classes if len(classes) > 2 else classes[1:]
    weights[fitted], bias[fitted] = model.coef_, model.intercept_
    return weights, bias


def decided(scores: NDArray[np.float32], truth: NDArray[Any]) -> NDArray[Any]:
    """Return the predictions that follow from `scores`, in the form of the targets `truth`."""
    if truth.ndim > 1:
        return (scores > 0).astype(np.int64)
    return scores.argmax(1) if truth.dtype.kind in "iu" else scores[:, 0]


def targets(rows: Sequence[Example], classes: int = 0) -> NDArray[Any]:
    """Return the labels of examples as an array: (N,) classes or numbers; for several labels
    (N, classes) of 0 and 1."""
    labels = [e.label for e in rows if isinstance(e, TextExample | PairExample)]
    if not labels or not isinstance(labels[0], tuple):
        return np.array(labels)
    indicators = np.zeros((len(labels), classes), np.int64)
    for row, classes_of_row in enumerate(labels):
        assert isinstance(classes_of_row, tuple)
        indicators[row, list(classes_of_row)] = 1
    return indicators


# ------------------------------------------------------------------------------ baselines
OUT_OF_FOLD = "out-of-fold"  # training rows, each predicted by a model that has not seen it
# Saturation of repeated words and normalisation by length in BM25, as of Anserini on BEIR.
SATURATION, BY_LENGTH = 0.9, 0.4


def baselines(
    data: Dataset, eval_part: str, measure: str | None = None
) -> list[tuple[str, NDArray[Any]]]:
    """Return (name, predictions) of the best answer that is the same for every row, and of a bag of
    words, for the rows of `eval_part`: (N,) classes or numbers; for several labels (N, C) of 0 and
    1. Both are for `measure`, or the task's own. No constant answer has as good a macro F1 of
    classes as chance: then there are answers drawn from the training part, too. For `OUT_OF_FOLD`,
    the training rows again, there is no bag of words."""
    train, rows = data.parts[TRAIN], data.parts[eval_part]
    num_classes = 0 if data.labels is None else len(data.labels)
    truth, metric = targets(train, num_classes), measure or data.task.shape.metrics[0]
    predictions: list[tuple[str, NDArray[Any]]] = []
    if data.labels is None:
        predictions.append(("mean", np.full(len(rows), truth.mean())))
    elif truth.ndim == 1:
        predictions.append(("majority", np.full(len(rows), np.bincount(truth).argmax())))
        if metric == "macro_f1":
            drawn = integers(key("draw", 0, 2), len(rows), len(truth))
            predictions.append(("chance", truth[drawn]))
    else:
        predictions.append(("majority", np.tile(_usual_labels(truth, metric), (len(rows), 1))))
    if eval_part == OUT_OF_FOLD:
        return predictions
    choose_on = data.parts.get(VALIDATION, []) if eval_part == TEST else []
    arguments = (tuple(train), num_classes, metric, tuple(choose_on))
    bag = RECENT_FITS.get(arguments) or BagOfWords.fit(*arguments)
    return [*predictions, ("words", decided(bag.scores(rows), truth))]


def _usual_labels(truth: NDArray[np.int64], metric: str) -> NDArray[np.int64]:
    """Return the labels (C,) that are best for a metric of (N, C) if all rows get them: for whole
    rows the most frequent combination, for the macro F1 all, for the micro F1 the most frequent
    ones, as many as it needs."""
    if metric == "accuracy":
        combinations, counts = np.unique(truth, axis=0, return_counts=True)
        return np.asarray(combinations[counts.argmax()], np.int64)
    shares, size = truth.mean(0), truth.shape[1]
    order = np.argsort(-shares, kind="stable")
    micro_f1 = np.cumsum(shares[order]) / (np.arange(1, size + 1) + shares.sum())
    count = size if metric == "macro_f1" else int(micro_f1.argmax()) + 1
    return np.isin(np.arange(size), order[:count]).astype(np.int64)


class KeywordSearch:
    """BM25 (Robertson & Zaragoza 2009, doi 10.1561/1500000019, with the inverse document frequency
    of Lucene) over lower-case words, without stop words or stemming."""

    def __init__(self, documents: Sequence[str]) -> None:
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer

        self._vectorizer = CountVectorizer(token_pattern=WORD)
        counts = self._vectorizer.fit_transform([*documents, "a"])[:-1].astype(np.float32)  # 1 word
        lengths = np.asarray(counts.sum(1))[:, 0]
        frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = np.log1p((len(documents) - frequencies + 0.5) / (frequencies + 0.5))
        damping = 1 - BY_LENGTH + BY_LENGTH * lengths / max(1.0, lengths.mean())
        of_entry = np.repeat(damping, np.diff(counts.indptr))
        weights = (counts.data * (SATURATION + 1) / (counts.data + SATURATION * of_entry)) * rarity[
            counts.indices
        ]
        self._weights = sparse.csr_matrix(
            (weights.astype(np.float32), counts.indices, counts.indptr), counts.shape
        )

    def scores(self, queries: Sequence[str], documents: slice) -> NDArray[np.float32]:
        """Return the scores (Q, C) of a slice of the documents; -inf without a common word."""
        counts = self._vectorizer.transform(queries).astype(np.float32)
        scores = (counts @ self._weights[documents].T).toarray()
        return np.where(scores > 0, scores, -np.inf).astype(np.float32)
