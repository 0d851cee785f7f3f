"""Tasks with labels as text generation: the label is written instead of computed by a head.

    cola sentence: The course is jumping well.          ->   unacceptable
    stsb sentence1: … sentence2: …                      ->   3.8
    question: … context: …                              ->   the answer, or nothing

A generated text is a label only if it equals one exactly, except for whitespace at the ends; others
count as wrong (Raffel et al. 2020, section 2.4), and their share is the metric `unread`. Numbers
are rounded to about 25 steps of a round size over the range of the training part, such as 0.2 for
STS-B, so that regression becomes a choice among few texts.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.base.metrics import metrics, row_metrics
from maskwright.base.report.document import figure
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Mistake,
    Outputs,
    ReadOutputs,
    TaskMetrics,
    TaskReport,
    TaskType,
    classes_table,
    task_for,
)
from maskwright.learn.tasks.base.text_generation import Template, TextGeneration
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TRAIN
from maskwright.text.tokenizer.tokenizer import Tokenizer

UNREAD = "unread"
NUMBER = re.compile(r"[+-]?[0-9]{1,12}(\.[0-9]{1,12})?")
STEPS = 25
NICE = (1.0, 2.0, 5.0, 10.0)


class TaskAsText(TextGeneration):
    """A task that also has a head type, learned as text to text."""

    pipeline = "text2text-generation"
    quantity: ClassVar[str] = "wrong by"
    parses: ClassVar[bool] = True

    @cached_property
    def head_type(self) -> TaskType:
        """The task type that solves the task with a head."""
        return task_for(self.task, self.labels)

    @property
    def template(self) -> Template:
        return Template(str(self.options["prompt"]))

    def fields(self, row: Any) -> dict[str, str]:
        return {role: getattr(row, role) for role in self.roles}

    def example(self, values: Sequence[Any], where: str) -> Any:
        return self.head_type.example(values, where)

    @property
    def measures(self) -> tuple[str, ...]:
        return (*super().measures, *([UNREAD] if self.parses else []))

    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        return self.head_type.metrics(rows, answers)

    def report(self, encoded: Encoded, outputs: Outputs, answers: Answers) -> TaskReport:
        mistakes = [
            Mistake(row.where, row.whole_text, self.right(row), str(text), weight)
            for row, text, answer in zip(encoded.rows, outputs, answers, strict=True)
            if (weight := self.wrong(row, answer))
        ]
        return TaskReport(sorted(mistakes, key=lambda m: -m.weight), self.quantity)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        return self.head_type.baselines(data, eval_part)

    @abstractmethod
    def right(self, row: Any) -> str:
        """The correct answer, for display."""

    @abstractmethod
    def wrong(self, row: Any, answer: Any) -> float:
        """The error of an answer; 0 if it is correct."""


def _with_unread(head_metrics: TaskMetrics, is_unread: NDArray[np.bool_]) -> TaskMetrics:
    """Add the share of the answers (N,) that could not be parsed."""
    unread = row_metrics.means((UNREAD,), is_unread[:, None].astype(np.float64))
    return TaskMetrics({**head_metrics.figures, **unread})


# ------------------------------------------------------------------------------ classes
class ClassAsText(TaskAsText):
    """Answers are class indices; -1 for a text that is no label."""

    def wanted(self, row: Any) -> str:
        return self.labels[row.label].strip()

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        require_distinct(frame.tokenizer, self.labels)
        return super()._encoded(rows, frame)

    def answers(self, encoded: Encoded, outputs: Outputs) -> NDArray[np.int64]:
        names = require_distinct(encoded.way_back.frame.tokenizer, self.labels)
        numbers = {name: number for number, name in enumerate(names)}
        return np.array([numbers.get(str(output).strip(), -1) for output in outputs], np.int64)

    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        return _with_unread(super().metrics(rows, answers), np.asarray(answers) < 0)

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        tokenizer = encoded.way_back.frame.tokenizer
        max_tokens = max(map(len, tokenizer.encode_batch([name.strip() for name in self.labels])))
        return self.with_options({"longest": max_tokens + 2})  # with begin and end tokens

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        for text, answer in zip(outputs, self.answers(encoded, outputs), strict=True):
            name = None if answer < 0 else self.labels[answer]
            yield {"label": name, "generated_text": str(text)}

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"label": (None, *self.labels), "generated_text": str}

    def report(self, encoded: Encoded, outputs: Outputs, answers: Answers) -> TaskReport:
        truth, predicted = np.array([row.label for row in encoded.rows]), np.asarray(answers)
        figures = metrics.per_class(truth, predicted, self.labels)
        return replace(
            super().report(encoded, outputs, answers),
            classes=classes_table(figures, "Rows are those of the class in the file."),
            confusion=metrics.confusion(truth, predicted, len(self.labels)),
        )

    def right(self, row: Any) -> str:
        return self.labels[row.label]

    def wrong(self, row: Any, answer: Any) -> float:
        return float(answer != row.label)


def require_distinct(tokenizer: Tokenizer, labels: Sequence[str]) -> list[str]:
    """Return the labels as the tokenizer decodes them.

    Raises:
        IncompatibleError: a decoded label is empty, or equal to another.
    """
    ids = tokenizer.encode_batch([label.strip() for label in labels])
    decoded = [tokenizer.decode(token_ids.tolist()).strip() for token_ids in ids]
    for number, label_text in enumerate(decoded):
        if not label_text or label_text in decoded[:number]:
            raise IncompatibleError(
                "the tokenizer cannot tell the labels apart",
                where="tokenizer",
                found=f'"{labels[number]}" becomes "{label_text}"',
                do="rename the label, or learn with a head: without --prompt",
            )
    return decoded


# ------------------------------------------------------------------------------ numbers
class NumberAsText(TaskAsText):
    """Answers are numbers; NaN for a text that is no number or out of range. `options` has "step",
    "low" and "high" from the training part, and "usual" as a substitute for NaN."""

    quantity = "off by"

    def of_data(self, data: Dataset) -> Self:
        values = [float(row.label) for row in data.parts[TRAIN]]
        low, high = min(values), max(values)
        step = nice((high - low) / STEPS)
        # Rounded numbers may be slightly out of the range.
        return self.with_options({"step": step, "low": low - step, "high": high + step})

    def wanted(self, row: Any) -> str:
        return number_text(row.label, float(self.options["step"]))

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        low, high, step = (float(self.options[name]) for name in ("low", "high", "step"))
        numbers = np.arange(low + step, high - step / 2, step)  # all that `wanted` may return
        values = [number_text(value, step) for value in numbers]
        ids = frame.tokenizer.encode_batch(values)
        for value, token_ids in zip(values, ids, strict=True):
            if _without_blanks(decoded := frame.tokenizer.decode(token_ids.tolist())) != value:
                raise IncompatibleError(
                    "the tokenizer cannot write the numbers",
                    where="tokenizer",
                    found=f'"{value}" becomes "{decoded}"',
                    do="learn with a head: without --prompt",
                )
        return super()._encoded(rows, frame)

    def answers(self, encoded: Encoded, outputs: Outputs) -> NDArray[np.float64]:
        texts = [_without_blanks(str(output)) for output in outputs]
        return read_numbers(texts, self.options["low"], self.options["high"])

    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        is_unread = np.isnan(np.asarray(answers, np.float64))
        return _with_unread(super().metrics(rows, self._filled(answers)), is_unread)

    def _filled(self, answers: Answers) -> NDArray[np.float64]:
        """Return the answers with the usual number for those that are no numbers."""
        numbers = np.asarray(answers, np.float64)
        return np.where(np.isnan(numbers), float(self.options.get("usual", 0.0)), numbers)

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        usual = float(np.mean([row.label for row in encoded.rows]))
        return super().calibrate(encoded, read, final=final).with_options({"usual": usual})

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        for text, answer in zip(outputs, self.answers(encoded, outputs), strict=True):
            score = float(answer) if math.isfinite(answer) else None
            yield {"score": score, "generated_text": str(text)}

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"score": float | None, "generated_text": str}

    def right(self, row: Any) -> str:
        return figure(row.label)

    def wrong(self, row: Any, answer: Any) -> float:
        return abs(float(self._filled([answer])[0]) - row.label)


def _without_blanks(text: str) -> str:
    """Remove whitespace, which some tokenizers add around a decimal point."""
    return "".join(text.split())


def nice(step: float) -> float:
    """Round `step` up to 1, 2 or 5 times a power of ten; 0 becomes 1."""
    if not step > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    factor = next(n for n in NICE if step <= n * power * (1 + 1e-9))
    return float(f"{factor * power:.3g}")


def number_text(value: float, step: float = 0.2) -> str:
    """Round `value` to the nearest multiple of `step` and format it with the decimals of `step`:
    2.57 becomes "2.6". Halves are rounded to the even multiple."""
    # In decimal arithmetic, as 0.2 has no exact binary representation.
    unit = Decimal(str(step)).normalize()
    digits = max(0, -int(unit.as_tuple().exponent))
    multiple = (Decimal(str(value)) / unit).to_integral_value() * unit
    return f"{multiple + 0:.{digits}f}"


def read_numbers(
    written: Sequence[str], low: float = -math.inf, high: float = math.inf
) -> NDArray[np.float64]:
    """Parse texts as numbers (N,); NaN for a text that is no number or out of range."""
    bare = [text.strip() for text in written]
    values = np.array([float(t) if NUMBER.fullmatch(t) else math.nan for t in bare], np.float64)
    return np.where((values >= low) & (values <= high), values, math.nan)


# ------------------------------------------------------------------------------ answers
class AnswerAsText(TaskAsText):
    """Answers are texts; "" means that the context has no answer."""

    parses = False

    def wanted(self, row: Any) -> str:
        return row.answers[0][0] if row.answers else ""

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        yield from ({"answer": str(output)} for output in outputs)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"answer": str}

    def right(self, row: Any) -> str:
        return " / ".join(dict.fromkeys(gold for gold, _ in row.answers)) or "(no answer)"

    def wrong(self, row: Any, answer: Any) -> float:
        return 1.0 - self.metrics([row], [answer]).values[self.measures[0]]


SERVES = {
    "classification": ClassAsText,
    "pair-classification": ClassAsText,
    "regression": NumberAsText,
    "similarity": NumberAsText,
    "question-answering": AnswerAsText,
}
