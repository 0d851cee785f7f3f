"""Tasks that a head could answer, as text to text (Raffel et al. 2020): the model writes the label.

    sst2 sentence: it confirms fincher's status …    ->  positive      {"label": "positive", …}
    stsb sentence1: … sentence2: …                   ->  3.8           {"score": 3.8, …}
    question: … context: …                           ->  Saturn        {"answer": "Saturn"}

What is asked, and how answers are measured, is as with a head. Only what is written letter by
letter counts (section 2.4); "unread" is the share of answers that are no label, or no number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.labelled.examples import examples as labelled
from maskwright.labelled.windows.text_to_text import Template
from maskwright.metrics.intervals import Estimate, estimates_of_means
from maskwright.tasks.parts.find import task_for
from maskwright.tasks.parts.task_type import Answers, Encoded, Mistake, Outputs, TaskType
from maskwright.tasks.parts.text_to_text import Writing

UNREAD = "unread"


class InWords(Writing):
    """One of such tasks, without a figure for what cannot be read."""

    @cached_property
    def head_type(self) -> TaskType:
        """The same task of a head."""
        return task_for(self.task, self.labels)

    @property
    def pipeline(self) -> str:
        return "text2text-generation"

    @property
    def roles(self) -> tuple[str, ...]:
        return self.head_type.roles

    @property
    def measures(self) -> tuple[str, ...]:
        return self.head_type.measures

    @property
    def choosable(self) -> tuple[str, ...]:
        return self.head_type.choosable

    @property
    def template(self) -> Template:
        return Template(str(self.options["prompt"]))

    def fields(self, row: Any) -> dict[str, str]:
        return {role: getattr(row, role) for role in self.roles}

    def example(self, values: Sequence[Any], where: str) -> Any:
        return self.head_type.example(values, where)

    def value_of(self, example: Any) -> Any:
        return self.head_type.value_of(example)

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        return self.head_type.measured(rows, answers)

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return self.head_type.estimated(rows, answers)

    def baselines(self, data: labelled.Examples, part: str) -> list[tuple[str, Answers]]:
        return self.head_type.baselines(data, part)

    @property
    def wrongness(self) -> str:
        return "wrong by"

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        found = []
        answers = self.answers(encoded, outputs)
        for row, text, answer in zip(encoded.rows, outputs, answers, strict=True):
            if weight := self.wrong(row, answer):
                read = row.whole_text
                found.append(Mistake(row.where, read, self.right(row), str(text), weight))
        return sorted(found, key=lambda mistake: -mistake.weight)

    @abstractmethod
    def right(self, row: Any) -> str:
        """What would have been right, to be shown."""

    @abstractmethod
    def wrong(self, row: Any, answer: Any) -> float:
        """How wrong an answer is; 0 if it is right."""


class Read(InWords):
    """Answers that are read as values; `missing` tells which could not be."""

    @property
    def measures(self) -> tuple[str, ...]:
        return (*self.head_type.measures, UNREAD)

    @abstractmethod
    def missing(self, answers: Answers) -> NDArray[np.bool_]:
        """(N,) which answers could not be read."""

    def filled(self, answers: Answers) -> Answers:
        """The answers with what stands for those in their place."""
        return answers

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        found = super().measured(rows, self.filled(answers))
        return {**found, UNREAD: float(self.missing(answers).mean())}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        found = super().estimated(rows, self.filled(answers))
        missing = self.missing(answers)[:, None].astype(np.float64)
        return found | estimates_of_means((UNREAD,), missing)
