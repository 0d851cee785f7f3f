"""Text embeddings: similarity of two texts (`embedding`), or retrieval of a match (`matching`).

    {"score": 0.83}            the cosine of the two vectors
    {"vector": [0.12, …]}      of a single text, normalised to length 1

The model folder can be loaded by old and new releases of `sentence-transformers`: model, pooling
("pooling" of `options`; by default the mean over tokens, several are joined by +), normalisation.
Settings of such a folder are kept in `options` and saved in a folder that is trained from it:

    prompts, default_prompt    prefixes of texts by name; the name of the prefix that is used
    prompt_tokens              number of its tokens that are not pooled
    lowercase                  whether texts are lowercased
    similarity                 how two vectors are compared, if not by their cosine
    dimensions                 numbers of leading dimensions that are vectors by themselves, if any
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError, IncompatibleError
from maskwright.base.terminal import rounded
from maskwright.learn.tasks.base.bag_of_words import fit_words
from maskwright.learn.tasks.base.choices import COMPARED, DIMENSIONS, LOWER, NAME, PROMPTS, SKIPPED
from maskwright.learn.tasks.base.encode import Frame, Keep, encode, encode_windows, examples_of
from maskwright.learn.tasks.base.similarities import compared
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Outputs,
    Scores,
    TaskMetrics,
    TaskType,
    metrics_of_arrays,
    metrics_of_means,
    text,
)
from maskwright.text.tables.cell_values import text_of
from maskwright.text.tables.columns import MATCHES, NEGATIVE, ColumnSearch
from maskwright.text.tables.labelled_texts import PAIR
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Shape, Task
from maskwright.text.tables.rows import TRAIN, MatchExample, PairExample, Row, TextExample, plain
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.modules.supervised import Aim, Contrast

EMBEDDING, MATCHING = "embedding", "matching"
AT_ONCE = 1024  # anchors that are compared with all candidates
DIGITS = 6  # decimals of a vector of length 1


class MatchLayout(Layout):
    """{"anchor": "…", "positive": "…", "negative": "…"}"""

    name = "match"
    roles = ("anchor", "positive")
    optional = ("negative",)
    multi_column = ("negative",)
    joined = ("anchor", "positive")
    rank = 70

    def find(self, search: ColumnSearch) -> None:
        search.two(("anchor", "positive"), MATCHES)
        negatives = [c.name for c in search.free() if NEGATIVE.fullmatch(plain(c.name))]
        if negatives and "negative" not in search.roles:
            ordered = sorted(negatives, key=lambda name: (len(name), name))
            search.take("negative", ordered, "by the name" + "s" * (len(negatives) > 1))

    def reason(self, columns: Columns) -> str:
        return "each row has two texts that belong together"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> MatchExample:
        roles = task.columns.roles
        anchor, positive = self.inputs(row, roles)
        negatives = tuple(text_of(row, name) for name in roles.get("negative", ()))
        return MatchExample(anchor, positive, row.where, negatives)


SHAPES = (
    # Only on request: by default, numbers for two texts are predicted by a head.
    Shape(
        name=EMBEDDING, layout=PAIR, label="number", metrics=("spearman", "pearson"), inferred=False
    ),
    Shape(
        name=MATCHING,
        layout=MatchLayout(),
        metrics=("first_is_right", "mrr"),
        in_batch_negatives=True,
    ),
)


class EmbeddingTask(TaskType):
    """Vectors of texts, trained on similarities of pairs or on matching pairs."""

    head = None
    alone = "text"
    pipeline = "sentence-similarity"

    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Contrast:
        from maskwright.model.objectives.modules.supervised import Contrast

        if "cls" in self.poolings and model.config.decoder is not None:
            raise IncompatibleError(
                "the first token of a decoder has read nothing",
                where="--pooling",
                found="cls",
                wanted="mean or max",
            )
        aim: Aim = "similarity" if self.task == EMBEDDING else "ranking"
        skipped, dimensions = int(self.options.get(SKIPPED, 0)), self.options.get(DIMENSIONS, ())
        return Contrast(model, aim, self.poolings, skipped, dimensions)

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings whose vectors are concatenated."""
        return tuple(str(self.options.get("pooling", "mean")).split("+"))

    @property
    def decoding(self) -> dict[str, Any]:
        return {
            "poolings": self.poolings,
            "prompt": self.prompt,
            "lowercase": bool(self.options.get(LOWER)),
            "skipped": int(self.options.get(SKIPPED, 0)),
            "unit": True,
            COMPARED: str(self.options.get(COMPARED, "cosine")),
        }

    def compared(self, first_vectors: Scores, second_vectors: Scores) -> NDArray[np.float64]:
        """Return the similarities (N,) of vectors (N, D); higher means more similar."""
        return compared(self.decoding[COMPARED], first_vectors, second_vectors)

    @property
    def prompt(self) -> str:
        """The prefix of each text; "" if there is none."""
        name = self.options.get(NAME)
        return "" if name is None else str(self.options.get(PROMPTS, {}).get(name, ""))

    def _as_read(self, text: str, tokenizer: Tokenizer) -> str:
        text = self.prompt + text
        return lowered(text, tokenizer) if self.options.get(LOWER) else text

    def of_data(self, data: Dataset) -> Self:
        """Set "scale" of `options` if similarities of the training part are not in [-1, 1]: their
        minimum and maximum then correspond to the cosines 0 and 1."""
        if self.task != EMBEDDING:
            return self
        similarities = _truth(data.parts[TRAIN])
        low, high = float(similarities.min()), float(similarities.max())
        if low == high:
            do = "give pairs that are less alike, too; or learn matching pairs: --task matching"
            raise DataError("all pairs are equally alike", where=TRAIN, found=low, do=do)
        return self if low >= -1 and high <= 1 else self.with_options({"scale": [low, high]})

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        if len({isinstance(row, TextExample) for row in rows}) > 1:
            raise DataError(
                "texts by themselves beside pairs of texts",
                where=rows[0].where,
                wanted="one or the other",
            )
        texts = [(self._as_read(text, frame.tokenizer),) for row in rows for text in _texts(row)]
        choices = len(_texts(rows[0])) if rows else 2
        if frame.in_windows and SKIPPED not in self.options:  # only the first window has the prompt
            return self._in_windows(rows, texts, choices, frame)
        labels: NDArray[np.float32] = np.zeros(len(rows), np.float32)
        if rows and isinstance(rows[0], TextExample):
            pass  # a single text has no label
        elif self.task == EMBEDDING:
            similarities = np.array([row.label for row in rows], np.float32)
            low, high = self.options.get("scale", (0.0, 1.0))
            labels = ((similarities - low) / (high - low)).astype(np.float32)  # a cosine
        else:
            codes = _codes(rows)[1].reshape(-1, len(rows))  # equal texts are no negatives
            anchor_codes: dict[str, int] = {}
            anchors = [anchor_codes.setdefault(row.anchor, len(anchor_codes)) for row in rows]
            labels = np.stack([anchors, *codes], axis=1).astype(np.float32)
        keep: Keep = "tail" if frame.keeps_end else "head"
        examples, cuts, cut = encode(texts, labels, frame, keep, choices=choices)
        numbers = np.arange(len(texts))
        extent = Extent.of(examples.texts.lengths, numbers, numbers // choices, cut)
        return Encoded(rows, examples, cuts.findings(frame.length, "texts"), extent=extent)

    def _in_windows(
        self, rows: Sequence[Any], texts: Sequence[tuple[str, ...]], choices: int, frame: Frame
    ) -> Encoded:
        """Encode texts in windows without overlap, each of which gets a vector; only for
        prediction."""
        windows, owners = encode_windows(texts, frame, overlap=False)
        no_labels = np.zeros(len(windows), np.float32)
        examples = examples_of(windows, no_labels, frame)
        lengths = examples.texts.lengths
        extent = Extent.of(lengths, owners, np.arange(len(texts)) // choices)
        weights = np.array([max(1, row.num_first) for row in windows], np.float64)
        return Encoded(rows, examples, (), (owners, weights, choices), extent)

    def example(self, values: Sequence[Any], where: str) -> PairExample | MatchExample:
        first_text, second_text = (
            text(v, role, where) for v, role in zip(values, self.roles, strict=True)
        )
        if self.task == EMBEDDING:
            return PairExample(first_text, second_text, 0.0, where)
        return MatchExample(first_text, second_text, where)

    def of_value(self, value: Any, where: str) -> PairExample | MatchExample | TextExample:
        if isinstance(value, Mapping) and self.alone in value:
            value = value[self.alone]
        if isinstance(value, str):
            return TextExample(text(value, self.alone, where), 0.0, where)
        return super().of_value(value, where)

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return vectors (R, texts per row * D): of a text in several windows the mean, weighted
        by numbers of tokens and, if vectors have length 1, normalised."""
        if encoded.way_back is None:
            return outputs
        owners, weights, choices = encoded.way_back
        counts = np.bincount(owners)
        vectors = np.zeros((len(counts), outputs.shape[1]), np.float64)
        np.add.at(vectors, owners, outputs * weights[:, None])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not self.decoding["unit"]:
            lengths = np.bincount(owners, weights)[:, None]
        vectors /= np.where(lengths > 0, lengths, 1.0)
        is_single = counts[owners] == 1
        vectors[owners[is_single]] = outputs[is_single]
        return vectors.astype(np.float32).reshape(-1, choices * outputs.shape[1])

    def parted(self, encoded: Encoded, outputs: Scores) -> list[Scores]:
        """Return the vectors as an array (R, D) for each text of a row, the anchors first."""
        rows, outputs = encoded.rows, self.merged(encoded, outputs)
        return np.split(outputs, len(_texts(rows[0])) if len(rows) else 2, axis=1)

    def answers(self, encoded: Encoded, outputs: Scores) -> NDArray[Any]:
        anchors, *other_vectors = self.parted(encoded, outputs)
        if self.task == EMBEDDING:
            return self.compared(anchors, other_vectors[0])
        candidates = np.concatenate(other_vectors).T
        return _ranks(lambda rows: anchors[rows] @ candidates, encoded.rows)

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        anchors, *other_vectors = self.parted(encoded, outputs)
        if not other_vectors:
            for vector in anchors.astype(float):  # their length need not be 1
                size = math.floor(math.log10(float(np.abs(vector).max(initial=0.0)) or 1.0))
                yield {"vector": vector.round(max(DIGITS, DIGITS - 1 - size)).tolist()}
            return
        yield from (
            {"score": rounded(v)} for v in self.compared(anchors, other_vectors[0]).tolist()
        )

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"vector": [float]} if isinstance(example, TextExample) else {"score": float}

    # ------------------------------------------------------------------------ evaluation
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        if self.task == EMBEDDING:
            return metrics_of_arrays(self.measures, _truth(rows), answers)
        ranks = np.asarray(answers, np.float64)
        return metrics_of_means(self.measures, np.stack([ranks == 1.0, 1.0 / ranks], axis=1))

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """Cosine similarity of TF-IDF vectors fitted on the training part."""
        weigh = fit_words([text for row in data.parts[TRAIN] for text in _texts(row)])
        rows = data.parts[eval_part]
        anchors = weigh.transform([_texts(row)[0] for row in rows])
        if self.task == EMBEDDING:
            second = weigh.transform([row.second for row in rows])
            return [("words", np.asarray(anchors.multiply(second).sum(1))[:, 0])]
        candidates = weigh.transform(_candidates(rows))
        return [("words", _ranks(lambda batch: (anchors[batch] @ candidates.T).toarray(), rows))]


def lowered(text: str, tokenizer: Tokenizer) -> str:
    """Lowercase `text` by character, as the normalizer of the tokenizers library does; special
    tokens are kept if the tokenizer recognises them."""
    return "".join(
        piece if number % 2 else "".join(character.lower() for character in piece)
        for number, piece in enumerate(tokenizer.special_pieces(text))
    )


def _texts(row: Any) -> tuple[str, ...]:
    if isinstance(row, TextExample):
        return (row.text,)
    if isinstance(row, MatchExample):
        return (row.anchor, row.positive, *row.negatives)
    return (row.first, row.second)


def _truth(rows: Sequence[Any]) -> NDArray[np.float64]:
    return np.array([row.label for row in rows], np.float64)


def _candidates(rows: Sequence[Any]) -> list[str]:
    """Return the C texts among which anchors are matched: all positives, then all negatives."""
    return [text for column in zip(*map(_texts, rows), strict=True) for text in column][len(rows) :]


def _codes(rows: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return first indices of the distinct candidates, and each candidate's number (C,) in them."""
    candidates = np.array(_candidates(rows), object)
    return np.unique(candidates, return_index=True, return_inverse=True)[1:]


def _ranks(near: Callable[[slice], NDArray[Any]], rows: Sequence[Any]) -> NDArray[np.float64]:
    """Return the rank (R,), from 1, of each row's positive among the distinct candidates, except
    the positives of equal anchors; ties count half. `near` returns the similarities (A, C) of a
    slice of anchors to all candidates, for portions of rows to limit memory."""
    first_index, codes = _codes(rows)
    positives = defaultdict[str, list[int]](list)
    for row, code in zip(rows, codes[: len(rows)].tolist(), strict=True):
        positives[row.anchor].append(code)
    ranks = np.ones(len(rows))
    for begin in range(0, len(rows), AT_ONCE):
        row_numbers = np.arange(begin, min(begin + AT_ONCE, len(rows)))
        similarities = near(slice(begin, begin + len(row_numbers)))[:, first_index]
        right_similarity = similarities[np.arange(len(row_numbers)), codes[row_numbers]]
        for number, row in enumerate(row_numbers.tolist()):  # including the own positive
            similarities[number, positives[rows[row].anchor]] = -np.inf
        right = right_similarity[:, None]
        ranks[row_numbers] += (similarities > right).sum(1) + (similarities == right).sum(1) / 2
    return ranks


TYPE = EmbeddingTask
