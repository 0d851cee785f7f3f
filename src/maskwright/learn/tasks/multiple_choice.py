"""Which of several choices answers a question (BERT's SWAG, Devlin et al. 2018, section 4.4).

{"label": 2, "choice": "the cat", "score": 0.71}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import Estimate, estimates
from maskwright.learn.tasks.base import baselines as baseline
from maskwright.learn.tasks.base.encode import Frame, encode, encode_windows, examples_of
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Mistake,
    Outputs,
    Scores,
    TaskType,
    alike,
    text,
)
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.text.tables.examples import ChoiceExample
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.layouts.choices import CHOICES, options_of, question_of
from maskwright.text.tables.rows import TRAIN, Row

SHAPES = (Shape(name="multiple-choice", layout=CHOICES, metrics=("accuracy",)),)


class MultipleChoice(TaskType):
    """Predicts a score for each choice of a row from the pair of question and choice."""

    head = "choice"

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def pipeline(self) -> str:
        return "multiple-choice"

    @property
    def beside(self) -> tuple[str, ...]:
        return ("context",)

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        sizes = np.array([len(row.choices) for row in rows], np.int64)
        pairs = [(row.question, choice) for row in rows for choice in row.choices]
        labels = np.array([row.label for row in rows], np.int64)
        owners = np.repeat(np.arange(len(rows)), sizes)
        if frame.in_windows:
            windows, choices = encode_windows(pairs, frame.tokenizer, frame.length)
            if len(windows) > len(pairs):
                counts = np.bincount(owners[choices], minlength=len(rows))
                examples = examples_of(windows, labels, frame.tokenizer, frame.segments, counts)
                lost = np.bincount(choices, [row.cut for row in windows], len(pairs))
                extent = Extent.of(examples.texts.lengths, choices, owners, lost.astype(np.int64))
                return Encoded(rows, examples, (), (choices, owners), extent)
        no_labels = np.zeros(len(pairs), np.int64)
        encoded_pairs, cuts, lost = encode(
            pairs, no_labels, frame.tokenizer, frame.length, segments=frame.segments
        )
        findings = cuts.findings(frame.length, "choices")
        extent = Extent.of(encoded_pairs.texts.lengths, np.arange(len(pairs)), owners, lost)
        segments = encoded_pairs.segments
        if (sizes == sizes[:1]).all():
            size = int(sizes[0]) if len(sizes) else 2
            examples = EncodedExamples(encoded_pairs.texts, labels, segments, size)
        else:
            examples = EncodedExamples(encoded_pairs.texts, labels, segments, pieces=sizes)
        return Encoded(rows, examples, findings, None, extent)

    def example(self, values: Sequence[Any], where: str) -> ChoiceExample:
        question, choices = values
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise DataError(
                "not two choices or more",
                where=where,
                found=repr(choices)[:80],
                wanted='["one", "another"]',
            )
        choice_texts = tuple(text(choice, "choice", where) for choice in choices)
        return ChoiceExample(text(question, "question", where), choice_texts, 0, where)

    def of_value(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping) and {"context", *self.roles} <= set(value):
            texts = (text(value[role], role, where) for role in ("context", "question"))
            value = {**value, "question": " ".join(texts)}
        return super().of_value(value, where)

    def of_row(self, row: Row, columns: Mapping[str, Sequence[str]]) -> ChoiceExample:
        options = options_of(row, columns["choices"])
        return self.example((question_of(row, columns), options), row.where)

    def value_of(self, example: Any) -> Any:
        return [example.question, list(example.choices)]

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return scores (N, max. number of choices): the mean over a choice's windows; -inf where a
        row has fewer choices."""
        if encoded.way_back is None:
            return outputs
        choices, owners = encoded.way_back  # the choice of each window, the row of each choice
        rows = owners[choices]
        column = np.arange(len(rows)) - np.searchsorted(rows, rows)
        means = np.bincount(choices, outputs[rows, column]) / np.bincount(choices)
        sizes = np.bincount(owners, minlength=len(encoded.rows))
        scores = np.full((len(sizes), sizes.max(initial=0)), -np.inf, np.float32)
        scores[owners, np.arange(len(owners)) - np.searchsorted(owners, owners)] = means
        return scores

    def answers(self, encoded: Encoded, outputs: Scores) -> NDArray[np.int64]:
        return np.asarray(self.merged(encoded, outputs).argmax(1))

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        truth = _truth(rows)
        return {m: metrics.METRICS[m](truth, np.asarray(answers)) for m in self.measures}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return estimates(self.measures, _truth(rows), np.asarray(answers))

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        return alike(_truth(rows), answers, lambda number: f"choice {number + 1}")

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The index that is right most often, and the choice nearest to the question by TF-IDF."""
        rows = data.parts[eval_part]
        most_frequent = int(np.bincount(_truth(data.parts[TRAIN])).argmax())
        tfidf = baseline.fitted(
            [text for row in data.parts[TRAIN] for text in (row.question, *row.choices)]
        )
        near = [
            (tfidf.transform(row.choices) @ tfidf.transform([row.question]).T).toarray()[:, 0]
            for row in rows
        ]
        return [
            ("majority", np.full(len(rows), most_frequent)),
            ("nearest by words", np.array([int(similarities.argmax()) for similarities in near])),
        ]

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        yield from (best for (best,) in self.ranked(encoded, outputs, 1))

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        choices = example.choices
        return {"label": range(len(choices)), "choice": choices, "score": float}

    def mistakes(self, encoded: Encoded, outputs: Scores) -> list[Mistake]:
        mistakes = [
            Mistake(row.where, row.question, row.choices[row.label], best["choice"], best["score"])
            for row, best in zip(encoded.rows, self.as_pipeline(encoded, outputs), strict=True)
            if best["label"] != row.label
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.weight)

    def ranked(self, encoded: Encoded, outputs: Scores, top: int) -> Iterator[list[dict[str, Any]]]:
        outputs = self.merged(encoded, outputs)
        shares = np.exp(outputs - outputs.max(1, keepdims=True), dtype=np.float64)
        for row, probabilities in zip(
            encoded.rows, shares / shares.sum(1, keepdims=True), strict=True
        ):
            order = np.argsort(-probabilities, kind="stable")[: min(top, len(row.choices))]
            yield [
                {
                    "label": int(n),
                    "choice": row.choices[n],
                    "score": round(float(probabilities[n]), 6),
                }
                for n in order
            ]


def _truth(rows: Sequence[Any]) -> NDArray[np.int64]:
    return np.array([row.label for row in rows], np.int64)


TYPE = MultipleChoice
