"""Question answering as text generation: the answer is written instead of extracted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maskwright.learn.tasks.base.task_type import Encoded, Outputs
from maskwright.learn.tasks.base.text_to_text import TaskAsText

SERVES = ("question-answering",)


class AnswerAsText(TaskAsText):
    """Answers are texts; "" means that the context has no answer."""

    def wanted(self, row: Any) -> str:
        return row.answers[0][0] if row.answers else ""

    def answers(self, encoded: Encoded, outputs: Outputs) -> list[str]:
        return [str(output) for output in outputs]

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, Any]]:
        yield from ({"answer": str(output)} for output in outputs)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"answer": str}

    def right(self, row: Any) -> str:
        return " / ".join(dict.fromkeys(gold for gold, _ in row.answers)) or "(no answer)"

    def wrong(self, row: Any, answer: Any) -> float:
        return 1.0 - self.head_type.measured([row], [answer])[self.measures[0]]


TYPE = AnswerAsText
