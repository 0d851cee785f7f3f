"""Classification as text generation: the name of the class is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.base.report.tables import Table
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Outputs
from maskwright.learn.tasks.base.text_to_text import ValueAsText
from maskwright.learn.tasks.windows.text_to_text import Labels

SERVES = ("classification", "pair-classification")


class ClassAsText(ValueAsText):
    """Answers are class indices; -1 for a text that is no label."""

    def wanted(self, row: Any) -> str:
        return self.labels[row.label].strip()

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        self._labels(frame)
        return super()._encoded(rows, frame)

    def answers(self, encoded: Encoded, outputs: Outputs) -> NDArray[np.int64]:
        return self._labels(encoded.way_back.frame).read([str(output) for output in outputs])

    def missing(self, answers: Answers) -> NDArray[np.bool_]:
        return np.asarray(answers) < 0

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        tokenizer = encoded.way_back.frame.tokenizer
        max_tokens = max(map(len, tokenizer.encode_batch([name.strip() for name in self.labels])))
        return self.with_options({"longest": max_tokens + 2})  # with begin and end tokens

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        for text, answer in zip(outputs, self.answers(encoded, outputs), strict=True):
            name = None if answer < 0 else self.labels[answer]
            yield {"label": name, "generated_text": str(text)}

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"label": (None, *self.labels), "generated_text": str}

    def by_class(self, rows: Sequence[Any], answers: Answers) -> Table | None:
        return self.head_type.by_class(rows, answers)

    def confusion(self, rows: Sequence[Any], answers: Answers) -> NDArray[np.int64] | None:
        return self.head_type.confusion(rows, answers)

    def right(self, row: Any) -> str:
        return self.labels[row.label]

    def wrong(self, row: Any, answer: Any) -> float:
        return float(answer != row.label)

    def _labels(self, frame: Frame) -> Labels:
        """Return the labels as the tokenizer decodes them.

        Raises:
            IncompatibleError: a decoded label is empty, or equal to another.
        """
        ids = frame.tokenizer.encode_batch([name.strip() for name in self.labels])
        decoded = [frame.tokenizer.decode(token_ids.tolist()).strip() for token_ids in ids]
        for number, label_text in enumerate(decoded):
            if not label_text or label_text in decoded[:number]:
                raise IncompatibleError(
                    "the tokenizer cannot tell the labels apart",
                    where="tokenizer",
                    found=f'"{self.labels[number]}" becomes "{label_text}"',
                    do="rename the label, or learn with a head: without --prompt",
                )
        return Labels(tuple(decoded))


TYPE = ClassAsText
