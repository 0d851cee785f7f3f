"""Sequence to sequence: translation, summarization and other text generation from a text.

    {"summary_text": "…"}         "translation_text" or "generated_text", by the columns' names

Decoding is greedy during training; afterwards beam search is used unless it is worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from maskwright.base.metrics import text_score
from maskwright.base.metrics.intervals import Estimate
from maskwright.learn.tasks.base import baselines as baseline
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Mistake, Outputs, text
from maskwright.learn.tasks.base.text_to_text import TextGeneration
from maskwright.learn.tasks.windows.text_to_text import Template
from maskwright.text.store.pairs import sentence_starts
from maskwright.text.tables.examples import RewriteExample
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.layouts.rewrite import REWRITE
from maskwright.text.tables.rows import TRAIN, plain

SHAPES = (Shape(name="sequence-to-sequence", layout=REWRITE, metrics=text_score.NAMES),)
BEAMS = 4
WHOLE = "{source}"
JUDGED = 500  # number of rows in which mistakes are looked for
PIPELINES = {"summary_text": "summarization", "translation_text": "translation"}
SUMMARIES = ("summary", "highlights", "tldr", "abstract")
# Columns of a translation are named by codes of two letters, such as "en", or "translation".
CODE = 2


class SequenceToSequenceTask(TextGeneration):
    """Generates texts. "key" of `options` is the key of an answer, such as "summary_text"."""

    judged = JUDGED

    @property
    def pipeline(self) -> str:
        return PIPELINES.get(str(self.options.get("key")), "text2text-generation")

    def of_data(self, data: Dataset) -> Self:
        source, target = (data.task.columns.roles[role][0] for role in ("source", "target"))
        languages = all(len(name.rpartition(".")[2]) == CODE for name in (source, target))
        key = "generated_text"
        if plain(target) in SUMMARIES:
            key = "summary_text"
        elif languages or "translation" in plain(target):
            key = "translation_text"
        return self.with_options({"key": key})

    # ------------------------------------------------------------------------ encoding
    @property
    def template(self) -> Template:
        return Template(str(self.options.get("prompt", WHOLE)))

    def fields(self, row: Any) -> dict[str, str]:
        return {"source": row.source}

    def wanted(self, row: Any) -> str:
        return str(row.target)

    def example(self, values: Sequence[Any], where: str) -> RewriteExample:
        return RewriteExample(text(values[0], "source", where), "", where)

    def value_of(self, example: Any) -> Any:
        return example.source

    # ------------------------------------------------------------------------ decoding
    def answers(self, encoded: Encoded, outputs: Outputs) -> list[str]:
        return [str(output) for output in outputs]

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        return text_score.figures(list(answers), _references(rows))

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return text_score.estimates(list(answers), _references(rows))

    def decoded(self, encoded: Encoded, read: Callable[[Self], Outputs]) -> Self:
        """Choose beam search, unless greedy decoding is better on the validation rows, as it may
        be for an undertrained model."""
        beam_search, greedy = (self.with_options({"beams": beams}) for beams in (BEAMS, 1))
        figures = [
            decoding.measured(encoded.rows, decoding.answers(encoded, read(decoding)))[self.measure]
            for decoding in (beam_search, greedy)
        ]
        return greedy if figures[1] > figures[0] else beam_search

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, str]]:
        (key,) = self.answer_form(None)
        yield from ({key: str(output)} for output in outputs)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {str(self.options.get("key", "generated_text")): str}

    @property
    def wrongness(self) -> str:
        return "chrF"

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        mistakes = []
        for row, predicted in zip(encoded.rows[:JUDGED], map(str, outputs), strict=False):
            score = text_score.chrf([predicted], _references([row]))
            mistakes.append(Mistake(row.where, row.source, row.target, predicted, score))
        return sorted((m for m in mistakes if m.weight < 1.0), key=lambda mistake: mistake.weight)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The source, its first sentence, and the target of the most similar training source (by
        TF-IDF)."""
        sources = [row.source for row in data.parts[eval_part]]
        training_rows = data.parts[TRAIN]
        tfidf = baseline.fitted([row.source for row in training_rows])
        table = tfidf.transform([row.source for row in training_rows])
        nearest = [int((table @ row.T).toarray().argmax()) for row in tfidf.transform(sources)]
        return [
            ("the text itself", sources),
            ("its first sentence", [_first_sentence(source) for source in sources]),
            ("what the nearest training text has", [training_rows[n].target for n in nearest]),
        ]


def _references(rows: Sequence[Any]) -> list[list[str]]:
    return [list(dict.fromkeys((row.target, *row.others))) for row in rows]


def _first_sentence(text: str) -> str:
    stop = sentence_starts(text)[1:2]
    return text[: stop[0]].strip() if stop else text


TYPE = SequenceToSequenceTask
