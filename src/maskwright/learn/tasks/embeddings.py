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
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import rounded
from maskwright.base.errors import DataError, IncompatibleError
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import Estimate, estimate, estimates_of_means
from maskwright.learn.tasks.base import baselines as baseline
from maskwright.learn.tasks.base.choices import (
    COMPARED,
    LOWER,
    NAME,
    PROMPTS,
    SKIPPED,
    VECTOR_POOLINGS,
    Long,
)
from maskwright.learn.tasks.base.encode import Frame, encode, encode_windows, examples_of
from maskwright.learn.tasks.base.similarities import compared
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Outputs,
    Scores,
    TaskType,
    text,
)
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.text.tables.cell_values import text_in
from maskwright.text.tables.examples import MatchExample, PairExample, TextExample
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.layouts.match import MATCH
from maskwright.text.tables.layouts.pair import PAIR
from maskwright.text.tables.rows import TRAIN, Row

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.contrastive import Aim, Contrast
    from maskwright.model.objectives.base.objective import Vocabulary

EMBEDDING, MATCHING = "embedding", "matching"
SHAPES = (
    # Only on request: by default, numbers for two texts are predicted by a head.
    Shape(
        name=EMBEDDING,
        layout=PAIR,
        label="number",
        metrics=("spearman", "pearson"),
        inferred=False,
    ),
    Shape(name=MATCHING, layout=MATCH, metrics=("first_is_right", "mrr")),
)
AT_ONCE = 1024  # anchors that are compared with all candidates
DIGITS = 6  # decimals of a vector of length 1
MODULES = ("Transformer", "Pooling", "Normalize")
# Key of each of `VECTOR_POOLINGS` in 1_Pooling/config.json, in releases before and after 6.
MODES = {pooling: f"pooling_mode_{pooling}_tokens" for pooling in VECTOR_POOLINGS} | {
    "cls": "pooling_mode_cls_token",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


class EmbeddingTask(TaskType):
    """Vectors of texts, trained on similarities of pairs or on matching pairs."""

    head = None
    alone = "text"

    @property
    def pipeline(self) -> str:
        return "sentence-similarity"

    @property
    def rivals(self) -> bool:
        return self.task == MATCHING

    def objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long = "head"
    ) -> Contrast:
        from maskwright.model.objectives.base.contrastive import Contrast

        if "cls" in self.poolings and model.config.decoder is not None:
            raise IncompatibleError(
                "the first token of a decoder has read nothing",
                where="--pooling",
                found="cls",
                wanted="mean or max",
            )
        aim: Aim = "similarity" if self.task == EMBEDDING else "ranking"
        return Contrast(model, aim, self.poolings, int(self.options.get(SKIPPED, 0)))

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

    def _as_read(self, text: str) -> str:
        text = self.prompt + text
        return lowered(text) if self.options.get(LOWER) else text

    def of_data(self, data: Dataset) -> Self:
        """Set "scale" of `options` if similarities of the training part are not in [-1, 1]: their
        minimum and maximum then correspond to the cosines 0 and 1."""
        if self.task != EMBEDDING:
            return self
        similarities = _truth(data.parts[TRAIN])
        low, high = float(similarities.min()), float(similarities.max())
        if low == high:
            raise DataError(
                "all pairs are alike to the same degree",
                where=TRAIN,
                found=low,
                do="give pairs that are less alike, too; or learn from pairs that "
                "belong together with --task matching",
            )
        return self if low >= -1 and high <= 1 else self.with_options({"scale": [low, high]})

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        if len({isinstance(row, TextExample) for row in rows}) > 1:
            raise DataError(
                "texts by themselves beside pairs of texts",
                where=rows[0].where,
                wanted="one or the other",
            )
        texts = [(self._as_read(text),) for row in rows for text in _texts(row)]
        choices = len(_texts(rows[0])) if rows else 2
        if frame.in_windows and SKIPPED not in self.options:  # only the first window has the prompt
            return self._in_windows(rows, texts, choices, frame)
        no_labels = np.zeros(len(texts), np.int64)
        encoded, cuts, cut = encode(
            texts, no_labels, frame.tokenizer, frame.length, segments=frame.segments
        )
        labels: NDArray[np.float32] = np.zeros(len(rows), np.float32)
        if rows and isinstance(rows[0], TextExample):
            pass  # a single text has no label
        elif self.task == EMBEDDING:
            similarities = np.array([row.label for row in rows], np.float32)
            low, high = self.options.get("scale", (0.0, 1.0))
            labels = ((similarities - low) / (high - low)).astype(np.float32)  # a cosine
        else:
            codes = _codes(rows)[1].reshape(-1, len(rows))  # equal texts are no negatives
            labels = np.stack([_anchor_codes(rows), *codes], axis=1).astype(np.float32)
        examples = EncodedExamples(encoded.texts, labels, encoded.segments, choices)
        extent = Extent.of(
            encoded.texts.lengths, np.arange(len(texts)), np.arange(len(texts)) // choices, cut
        )
        return Encoded(rows, examples, cuts.findings(frame.length, "texts"), extent=extent)

    def _in_windows(
        self, rows: Sequence[Any], texts: Sequence[tuple[str, ...]], choices: int, frame: Frame
    ) -> Encoded:
        """Encode texts in windows without overlap, each of which gets a vector; only for
        prediction."""
        windows, owners = encode_windows(texts, frame.tokenizer, frame.length, overlap=False)
        no_labels = np.zeros(len(windows), np.float32)
        examples = examples_of(windows, no_labels, frame.tokenizer, frame.segments)
        lengths = examples.texts.lengths
        extent = Extent.of(lengths, owners, np.arange(len(texts)) // choices)
        weights = np.array(
            [max(1, int((row.token_indices >= 0).sum())) for row in windows], np.float64
        )
        return Encoded(rows, examples, (), (owners, weights, choices), extent)

    def example(self, values: Sequence[Any], where: str) -> PairExample | MatchExample:
        first_text, second_text = (
            text(v, role, where) for v, role in zip(values, self.roles, strict=True)
        )
        if self.task == EMBEDDING:
            return PairExample(first_text, second_text, 0.0, where)
        return MatchExample(first_text, second_text, where)

    def of_row(
        self, row: Row, columns: Mapping[str, Sequence[str]]
    ) -> PairExample | MatchExample | TextExample:
        if self.alone in columns:
            return self.of_value(text_in(row, columns[self.alone]), row.where)
        return super().of_row(row, columns)

    def of_value(self, value: Any, where: str) -> PairExample | MatchExample | TextExample:
        if isinstance(value, Mapping) and self.alone in value:
            value = value[self.alone]
        if isinstance(value, str):
            return TextExample(text(value, self.alone, where), 0.0, where)
        return super().of_value(value, where)

    def value_of(self, example: Any) -> Any:
        texts = _texts(example)
        return texts[0] if isinstance(example, TextExample) else list(texts[:2])

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

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        predicted = np.asarray(answers)
        if self.task == EMBEDDING:
            truth = _truth(rows)
            return {m: metrics.METRICS[m](truth, predicted) for m in self.measures}
        means = _metrics_of_ranks(predicted).mean(0)
        return dict(zip(self.measures, map(float, means), strict=True))

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        predicted = np.asarray(answers)
        if self.task == EMBEDDING:
            truth = _truth(rows)
            return {m: estimate(metrics.METRICS[m], truth, predicted) for m in self.measures}
        return estimates_of_means(self.measures, _metrics_of_ranks(predicted))

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """Cosine similarity of TF-IDF vectors fitted on the training part."""
        weigh = baseline.fitted([text for row in data.parts[TRAIN] for text in _texts(row)])
        rows = data.parts[eval_part]
        anchors = weigh.transform([_texts(row)[0] for row in rows])
        if self.task == EMBEDDING:
            second = weigh.transform([row.second for row in rows])
            return [("words", np.asarray(anchors.multiply(second).sum(1))[:, 0])]
        candidates = weigh.transform(_candidates(rows))
        return [("words", _ranks(lambda batch: (anchors[batch] @ candidates.T).toarray(), rows))]

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

    def files(self, frame: Frame, width: int) -> dict[str, str]:
        modes: dict[str, Any] = {mode: pooling in self.poolings for pooling, mode in MODES.items()}
        if SKIPPED in self.options:
            modes["include_prompt"] = False
        modules = [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{name}" if i else "",
                "type": f"sentence_transformers.models.{name}",
            }
            for i, name in enumerate(MODULES)
        ]
        contents: dict[str, Any] = {
            "modules.json": modules,
            "1_Pooling/config.json": {"word_embedding_dimension": width, **modes},
            "2_Normalize/config.json": {},
            "sentence_bert_config.json": {
                "max_seq_length": frame.length,
                "do_lower_case": bool(self.options.get(LOWER)),
            },
            "config_sentence_transformers.json": {
                "__version__": {},
                "prompts": dict(self.options.get(PROMPTS, {})),
                "default_prompt_name": self.options.get(NAME),
                "similarity_fn_name": "cosine",
            },
        }
        return {name: json.dumps(value, indent=2) + "\n" for name, value in contents.items()}


def lowered(text: str) -> str:
    """Lowercase `text` by character, as the normalizer of the tokenizers library does."""
    return "".join(character.lower() for character in text)


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
    return [
        text for column in zip(*(_texts(row)[1:] for row in rows), strict=True) for text in column
    ]


def _codes(rows: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return first indices of the distinct candidates, and each candidate's number (C,) in them."""
    _, first_index, code = np.unique(
        np.array(_candidates(rows), object), return_index=True, return_inverse=True
    )
    return first_index, code


def _anchor_codes(rows: Sequence[Any]) -> NDArray[np.int64]:
    """Return codes (R,) of the rows' anchors: equal texts have the same code."""
    return np.unique(np.array([row.anchor for row in rows], object), return_inverse=True)[1]


def _ranks(near: Callable[[slice], NDArray[Any]], rows: Sequence[Any]) -> NDArray[np.float64]:
    """Return the rank (R,), from 1, of each row's positive among the distinct candidates, except
    the positives of equal anchors; ties count half.

    Args:
        near: returns the similarities (A, C) of a slice of anchors to all candidates; called for
            portions of rows to limit memory.
    """
    first_index, codes = _codes(rows)
    codes, anchors = codes[: len(rows)], _anchor_codes(rows)
    order = np.argsort(anchors, kind="stable")
    starts = np.searchsorted(anchors[order], np.arange(anchors.max(initial=-1) + 2))
    ranks = np.ones(len(rows))
    for begin in range(0, len(rows), AT_ONCE):
        row_numbers = np.arange(begin, min(begin + AT_ONCE, len(rows)))
        similarities = near(slice(begin, begin + len(row_numbers)))[:, first_index]
        right_similarity = similarities[np.arange(len(row_numbers)), codes[row_numbers]]
        for number, row in enumerate(row_numbers):
            equals = codes[order[starts[anchors[row]] : starts[anchors[row] + 1]]]
            similarities[number, equals] = -np.inf  # including the row's own positive
        higher, ties = (
            (similarities > right_similarity[:, None]).sum(1),
            (similarities == right_similarity[:, None]).sum(1),
        )
        ranks[row_numbers] += higher + ties / 2
    return ranks


def _metrics_of_ranks(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (R, 2): whether the rank is 1, and the reciprocal rank."""
    return np.stack([ranks == 1.0, 1.0 / ranks], axis=1).astype(np.float64)


TYPE = EmbeddingTask
