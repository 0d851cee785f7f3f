"""Regression as text generation: the number is written, rounded to about 25 steps of a round size
over the range of the training part, such as 0.2 for STS-B (Raffel et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.base.report.wording import figure
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Outputs
from maskwright.learn.tasks.base.text_to_text import ValueAsText
from maskwright.learn.tasks.windows.text_to_text import number_text, read_numbers
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TRAIN

SERVES = ("regression", "similarity")
STEPS = 25
NICE = (1.0, 2.0, 5.0, 10.0)


class NumberAsText(ValueAsText):
    """Answers are numbers; NaN for a text that is no number or out of range. `options` has "step",
    "low" and "high" from the training part, and "usual" as a substitute for NaN."""

    @property
    def wrongness(self) -> str:
        return "off by"

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

    def missing(self, answers: Answers) -> NDArray[np.bool_]:
        return np.isnan(np.asarray(answers, np.float64))

    def filled(self, answers: Answers) -> Answers:
        usual = float(self.options.get("usual", 0.0))
        return np.where(self.missing(answers), usual, np.asarray(answers, np.float64))

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        usual = float(np.mean([row.label for row in encoded.rows]))
        return super().calibrate(encoded, outputs).with_options({"usual": usual})

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        for text, answer in zip(outputs, self.answers(encoded, outputs), strict=True):
            score = float(answer) if math.isfinite(answer) else None
            yield {"score": score, "generated_text": str(text)}

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"score": float | None, "generated_text": str}

    def right(self, row: Any) -> str:
        return figure(row.label)

    def wrong(self, row: Any, answer: Any) -> float:
        filled = np.asarray(self.filled([answer]))
        return abs(float(filled[0]) - row.label)


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


TYPE = NumberAsText
