"""What a whole text, or two, is: one class, several, or a number.

{"label": "good", "score": 0.93}    {"labels": […], "scores": […]}    {"score": 3.2}

Regression targets are standardised for training: a head initialised near zero would not reach years
from 1990 to 2019. Afterwards mean and deviation are folded into the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import rounded
from maskwright.base.errors import DataError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import Estimate, estimates
from maskwright.base.report.tables import Table
from maskwright.base.report.wording import figure
from maskwright.learn.tasks.base import baselines as baseline
from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.encode import Frame, encode, encode_windows, examples_of
from maskwright.learn.tasks.base.task_type import (
    LOGIT,
    SECOND,
    TWO_TEXTS,
    UNTOLD,
    Answers,
    Encoded,
    Extent,
    Mistake,
    Outputs,
    Scores,
    TaskType,
    alike,
    classes_table,
    text,
)
from maskwright.learn.tasks.windows.windows import KEEPS, Keep, pool
from maskwright.model.objectives.supervised import Problem
from maskwright.text.tables.cell_values import is_empty, text_in, text_of
from maskwright.text.tables.examples import PairExample, TextExample
from maskwright.text.tables.layout import Dataset, Label, Shape
from maskwright.text.tables.layouts.pair import PAIR
from maskwright.text.tables.layouts.text import TEXT
from maskwright.text.tables.rows import Row, value_of

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

CLASS = ("accuracy", "macro_f1", "matthews")
NUMBER = ("spearman", "pearson", "squared_error")
SHAPES = (
    Shape(name="classification", layout=TEXT, label="classes", metrics=CLASS),
    Shape(
        name="multi-label",
        layout=TEXT,
        label="several",
        metrics=("micro_f1", "macro_f1", "accuracy"),
    ),
    Shape(name="regression", layout=TEXT, label="number", metrics=NUMBER),
    Shape(name="pair-classification", layout=PAIR, label="classes", metrics=CLASS),
    Shape(name="similarity", layout=PAIR, label="number", metrics=NUMBER),
)
PROBLEMS: dict[Label, Problem] = {"classes": "single", "several": "multi", "number": "number"}
# Heads compute in float32, whose relative precision is about 1e-7.
FINEST = 1e-5


class Classification(TaskType):
    """Predicts one class, several classes or a number for a text or a pair, depending on `task`."""

    head = "sequence"

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.shape.label]

    @property
    def decoding(self) -> dict[str, Any]:
        return {name: bool(self.options.get(name)) for name in (LOGIT, UNTOLD)}

    @property
    def wrongness(self) -> str:
        return {"single": "how sure", "multi": "labels wrong", "number": "off by"}[self.problem]

    @property
    def pipeline(self) -> str:
        return "text-classification"

    def continues(self, labels: Sequence[str]) -> bool:
        # The standardisation of other data is folded into the head of a saved regression.
        return self.problem != "number" and super().continues(labels)

    def training_objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long, train: Encoded
    ) -> Objective:
        """Return the objective for `train`; for regression, on standardised targets."""
        from maskwright.model.objectives.modules.supervised import Standardised, Supervised

        objective = self.objective(model, vocabulary, long)
        if self.problem != "number" or not isinstance(objective, Supervised):
            return objective
        centre, spread = self._mean_and_deviation(model, train)
        if spread < FINEST * abs(centre):
            raise DataError(
                "numbers too close together for their size",
                where=train.rows[0].where,
                found=f"{figure(centre)} ± {spread:.3g}",
                wanted=f"a deviation above {FINEST:g} of their mean",
                do="take a common number from all, such as the least",
            )
        return Standardised(model, objective.options, vocabulary, centre, spread)

    def after_training(self, model: Transformer, train: Encoded) -> None:
        """Fold the standardisation of `training_objective` into the head."""
        from maskwright.model.nn.heads import HeadModule

        if self.problem == "number":
            head = model.heads[model.config.heads[0].name]
            assert isinstance(head, HeadModule)
            head.rescale(*self._mean_and_deviation(model, train))

    def _mean_and_deviation(self, model: Transformer, train: Encoded) -> tuple[float, float]:
        """Return mean and deviation of the targets; (0, root mean square) for a head without bias,
        into which a mean cannot be folded."""
        targets = self._truth(train.rows)
        centre = float(targets.mean()) if model.config.heads[0].bias else 0.0
        spread = float(np.sqrt(np.square(targets - centre).mean()))
        return centre, spread if spread > 0 else 1.0

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        if any(isinstance(row, PairExample) for row in rows) and frame.long != "head":
            raise UsageError(
                "of two texts the longer one loses its end",
                where="--long",
                found=frame.long,
                wanted="head",
            )
        if frame.long not in KEEPS:
            return self._pieces(rows, frame)
        texts = [(r.first, r.second) if isinstance(r, PairExample) else (r.text,) for r in rows]
        if frame.in_windows:
            return self._in_windows(rows, texts, frame)
        keep = cast(Keep, frame.long)
        examples, cuts, cut = encode(
            texts,
            self._targets(rows),
            frame.tokenizer,
            frame.length,
            segments=frame.segments,
            keep=keep,
        )
        extent = Extent.of(examples.texts.lengths, np.arange(len(rows)), cut=cut)
        return Encoded(rows, examples, cuts.findings(frame.length), extent=extent)

    def _in_windows(
        self, rows: Sequence[Any], texts: Sequence[tuple[str, ...]], frame: Frame
    ) -> Encoded:
        """Encode texts in windows, whose scores are averaged; only for prediction."""
        windows, owners = encode_windows(texts, frame.tokenizer, frame.length)
        cut = np.bincount(owners, [row.cut for row in windows], len(rows)).astype(np.int64)
        labels = self._targets(rows)[owners]
        examples = examples_of(windows, labels, frame.tokenizer, frame.segments)
        extent = Extent.of(examples.texts.lengths, owners, cut=cut)
        return Encoded(rows, examples, (), (owners, "mean"), extent)

    def _pieces(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """Encode texts in pieces, as examples of their own or together, as `frame.long` says."""
        texts = [(row.text,) for row in rows]
        pieces, owners = encode_windows(texts, frame.tokenizer, frame.length)
        counts = np.bincount(owners, minlength=len(rows))
        extent = Extent.of(np.array([max(1, len(piece)) for piece in pieces], np.int64), owners)
        num_divided = int((counts > 1).sum())
        findings: tuple[Finding, ...] = ()
        if num_divided:
            message = f"{num_divided:,} of {len(rows):,} read in pieces, {len(pieces):,} in all"
            findings = (Finding("read-in-pieces", message),)
        labels, framed = self._targets(rows), (frame.tokenizer, frame.segments)
        pooling = frame.long.removeprefix("pieces-")
        if pooling == frame.long:
            return Encoded(
                rows, examples_of(pieces, labels, *framed, counts), findings, None, extent
            )
        examples = examples_of(pieces, labels[owners], *framed)
        return Encoded(rows, examples, findings, (owners, pooling), extent)

    def of_value(self, value: Any, where: str) -> Any:
        if self.options.get(UNTOLD):
            if isinstance(value, Mapping) and value.keys() >= TWO_TEXTS:
                value = (value["text"], value["text_pair"])
            if isinstance(value, list | tuple) and len(value) == 2:
                first_text, second_text = map(text, value, ("text", SECOND), (where, where))
                return PairExample(first_text, second_text, self._none, where)
        if len(self.roles) > 1 and isinstance(value, Mapping) and value.keys() == TWO_TEXTS:
            value = (value["text"], value[SECOND])
        return super().of_value(value, where)

    def of_row(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Any:
        (pair,) = columns.get(SECOND, (SECOND,))
        if self.options.get(UNTOLD) and not is_empty(value_of(row, pair)):
            return self.of_value((text_in(row, columns["text"]), text_of(row, pair)), row.where)
        return super().of_row(row, columns)

    def example(self, values: Sequence[Any], where: str) -> TextExample | PairExample:
        texts = [text(value, role, where) for value, role in zip(values, self.roles, strict=True)]
        if len(texts) > 1:
            return PairExample(texts[0], texts[1], self._none, where)
        return TextExample(texts[0], self._none, where)

    def value_of(self, example: Any) -> Any:
        if isinstance(example, PairExample):
            return [example.first, example.second]
        return example.text

    @property
    def _none(self) -> tuple[int, ...] | int:
        """What stands for the label of a text without one."""
        return () if self.problem == "multi" else 0

    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        return _of_texts(encoded, outputs)

    def answers(self, encoded: Encoded, outputs: Scores) -> NDArray[Any]:
        outputs = _of_texts(encoded, outputs)
        if self.problem == "single":
            return outputs.argmax(1)
        return (outputs > 0).astype(np.int64) if self.problem == "multi" else self._values(outputs)

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        truth = self._truth(rows)
        return {m: metrics.METRICS[m](truth, np.asarray(answers)) for m in self.measures}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return estimates(self.measures, self._truth(rows), np.asarray(answers))

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        return [(prediction.name, prediction.predicted) for prediction in baseline.baselines(data)]

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        if self.problem == "number":
            outputs = _of_texts(encoded, outputs)
            yield from ({"score": rounded(n)} for n in self._values(outputs))
            return
        for row in self._shares(encoded, outputs):
            if self.problem == "multi":
                chosen = [i for i, p in enumerate(row) if p > 0.5]
                yield {
                    "labels": [self.labels[i] for i in chosen],
                    "scores": [round(float(row[i]), 6) for i in chosen],
                }
            else:
                yield self._label_and_score(row, int(row.argmax()))

    def ranked(self, encoded: Encoded, outputs: Scores, top: int) -> Iterator[list[dict[str, Any]]]:
        if self.problem == "number":
            yield from super().ranked(encoded, outputs, top)
        for row in self._shares(encoded, outputs):
            order = np.argsort(-row, kind="stable")[:top]
            yield [self._label_and_score(row, int(label)) for label in order]

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        if self.problem == "number":
            return {"score": float}
        if self.problem == "multi" and not ranked:
            return {"labels": [self.labels], "scores": [float]}
        return {"label": self.labels, "score": float}

    def scores(self, encoded: Encoded, outputs: Outputs, *, raw: bool = False) -> Scores:
        if raw:
            return _of_texts(encoded, outputs)
        if self.problem == "number":
            return np.asarray(self._values(_of_texts(encoded, outputs))[:, None], np.float32)
        return np.asarray(self._shares(encoded, outputs), np.float32)

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        if self.problem == "number":
            return alike(self._truth(rows), answers, "{:.4g}".format)
        multi = self.problem == "multi"
        return alike(self._truth(rows), answers, self._names if multi else self.labels.__getitem__)

    def by_class(self, rows: Sequence[Any], answers: Answers) -> Table | None:
        truth, predicted = self._truth(rows), np.asarray(answers)
        if self.problem == "number":
            return None
        if self.problem == "single":
            figures = metrics.per_class(truth, predicted, self.labels)
        else:
            figures = [
                metrics.per_class(truth[:, i], predicted[:, i], ("", name))[1]
                for i, name in enumerate(self.labels)
            ]
        return classes_table(figures, "Rows are those of the class in the file.")

    def confusion(self, rows: Sequence[Any], answers: Answers) -> NDArray[np.int64] | None:
        if self.problem != "single":
            return None
        return metrics.confusion(self._truth(rows), np.asarray(answers), len(self.labels))

    def mistakes(self, encoded: Encoded, outputs: Scores) -> list[Mistake]:
        truth, predicted = self._truth(encoded.rows), self.answers(encoded, outputs)
        pairs = list(zip(truth, predicted, strict=True))
        if self.problem == "number":
            weights = np.abs(predicted - truth)
            names = [(figure(float(a)), figure(float(b))) for a, b in pairs]
        elif self.problem == "multi":
            weights = (predicted != truth).sum(1)
            names = [(self._names(a), self._names(b)) for a, b in pairs]
        else:
            weights = np.where(predicted != truth, self._shares(encoded, outputs).max(1), 0.0)
            names = [(self.labels[a], self.labels[b]) for a, b in pairs]
        order = [n for n in np.argsort(-weights, kind="stable") if weights[n] > 0]
        return [
            Mistake(row.where, row.whole_text, names[n][0], names[n][1], float(weights[n]))
            for n, row in ((n, encoded.rows[n]) for n in order)
        ]

    def _values(self, outputs: Scores) -> NDArray[Any]:
        """Return the predicted numbers (N,) of a regression."""
        scores: NDArray[Any] = outputs[:, 0]
        return _logistic(scores) if self.options.get(LOGIT) else scores

    def _names(self, chosen: NDArray[np.int64]) -> str:
        return ", ".join(self.labels[i] for i in np.flatnonzero(chosen)) or "none"

    def _label_and_score(self, shares: NDArray[np.float64], label: int) -> dict[str, Any]:
        return {"label": self.labels[label], "score": round(float(shares[label]), 6)}

    def _shares(self, encoded: Encoded, outputs: Scores) -> NDArray[np.float64]:
        """Return the probability (N, L) of each label; independent ones for several classes."""
        outputs = _of_texts(encoded, outputs)
        if self.problem == "multi":
            return _logistic(outputs)
        shifted = np.exp(outputs - outputs.max(1, keepdims=True), dtype=np.float64)
        return np.asarray(shifted / shifted.sum(1, keepdims=True))

    def _targets(self, rows: Sequence[Any]) -> NDArray[np.int64] | NDArray[np.float32]:
        if self.problem == "single":
            return np.array([row.label for row in rows], dtype=np.int64)
        if self.problem == "number":
            return np.array([[row.label] for row in rows], dtype=np.float32)
        indicators = np.zeros((len(rows), len(self.labels)), dtype=np.float32)
        for number, row in enumerate(rows):
            indicators[number, list(row.label)] = 1.0
        return indicators

    def _truth(self, rows: Sequence[Any]) -> NDArray[Any]:
        if self.problem == "number":  # in float64, not rounded to float32
            return np.array([row.label for row in rows], dtype=np.float64)
        targets = self._targets(rows)
        return targets.astype(np.int64) if self.problem == "multi" else targets


def _logistic(logits: Scores) -> NDArray[Any]:
    return np.asarray(1.0 / (1.0 + np.exp(-logits.astype(np.float64))))


def _of_texts(encoded: Encoded, outputs: Scores) -> Scores:
    """Return the scores of whole texts, pooled from those of their pieces or windows."""
    if encoded.way_back is None:
        return outputs
    owners, pooling = encoded.way_back
    return pool(outputs, owners, pooling).astype(np.float32)


TYPE = Classification
