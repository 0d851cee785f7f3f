"""Sequence to sequence: translation, summarization and other text generation from a text.

    {"summary_text": "…"}         "translation_text" or "generated_text", by the columns' names

Decoding is greedy during training; afterwards beam search is used unless it is worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from maskwright.base.metrics import text_score
from maskwright.learn.tasks.base.bag_of_words import fit_words
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Mistake,
    Outputs,
    ReadOutputs,
    TaskMetrics,
    TaskReport,
    text,
)
from maskwright.learn.tasks.base.text_generation import PIPELINES, Template, TextGeneration
from maskwright.text.store.tokenize import sentence_starts
from maskwright.text.tables.cell_values import missing, text_in
from maskwright.text.tables.columns import MANY_ROWS, SEQUENCES, ColumnSearch
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Shape, Task
from maskwright.text.tables.rows import TRAIN, RewriteExample, Row, Table, plain, value_of

BEAMS = 4
WHOLE = "{source}"
JUDGED = 500  # number of rows in which mistakes are looked for
SUMMARIES = ("summary", "highlights", "tldr", "abstract")
# Columns of a translation are named by codes of two letters, such as "en", or "translation".
CODE = 2
REFERENCES = "references"


class RewriteLayout(Layout):
    """{"source": "…", "target": "…", "references": ["…", "…"]}"""

    name = "rewrite"
    roles = ("source", "target")
    optional = (REFERENCES,)
    joined = ("source",)
    lists = (REFERENCES,)
    learned = "target"
    rank = 60

    def find(self, search: ColumnSearch) -> None:
        search.two(("source", "target"), SEQUENCES)
        languages = [name for name in search.described if name.startswith("translation.")]
        if len(languages) == 2 and not {"source", "target"} & set(search.roles):
            search.take("source", languages[:1], "the first language of 'translation'")
            search.take("target", languages[1:], "the second language of 'translation'")
        if "target" in search.roles and search.why["target"] != "as given" and not search.alone:
            target = search.described[search.roles["target"][0]]
            if target.rows >= MANY_ROWS and target.distinct <= target.rows / 10:
                del search.roles["target"]  # few repeated values are classes, not target texts

    def complete(self, table: Table, columns: Columns) -> Columns:
        """Add the column `references` if it holds a list of texts in every row."""
        if REFERENCES in columns.roles or REFERENCES not in columns.left_out:
            return columns
        for rows in table.parts.values():
            for row in rows:
                value = row.values.get(REFERENCES)
                if type(value) is not list or not value or {type(text) for text in value} != {str}:
                    return columns
        why = columns.why | {REFERENCES: "by its name"}
        return replace(columns, roles=columns.roles | {REFERENCES: (REFERENCES,)}, why=why)

    def reason(self, columns: Columns) -> str:
        return "each row has one text to read and one to write"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> RewriteExample:
        roles = task.columns.roles
        source, target = (text_in(row, roles[role]) for role in self.roles)
        references: tuple[str, ...] = ()
        if REFERENCES in roles:
            value = value_of(row, roles[REFERENCES][0])
            if type(value) is not list or not value or not all(type(v) is str for v in value):
                raise missing(row, roles[REFERENCES][0], "list of references", "a list of texts")
            references = tuple(value)
        return RewriteExample(source, target, row.where, references)


SHAPES = (Shape(name="sequence-to-sequence", layout=RewriteLayout(), metrics=text_score.NAMES),)


class SequenceToSequenceTask(TextGeneration):
    """Generates texts. "key" of `options` is the key of an answer, such as "summary_text"."""

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

    # ------------------------------------------------------------------------ decoding
    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        """Finally choose beam search, unless greedy decoding is better on the validation rows, as
        it may be for an undertrained model."""
        calibrated = super().calibrate(encoded, read)
        if not final:
            return calibrated
        beam_search, greedy = (calibrated.with_options({"beams": beams}) for beams in (BEAMS, 1))
        best, rival = (
            task_type.metrics(encoded.rows, task_type.answers(encoded, read(task_type)))
            for task_type in (beam_search, greedy)
        )
        return greedy if rival.values[self.measure] > best.values[self.measure] else beam_search

    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[dict[str, str]]:
        (key,) = self.answer_form(None)
        yield from ({key: str(output)} for output in outputs)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {str(self.options.get("key", "generated_text")): str}

    # ------------------------------------------------------------------------ evaluation
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        return TaskMetrics(text_score.row_metrics(list(answers), _references(rows)))

    def report(self, encoded: Encoded, outputs: Outputs, answers: Answers) -> TaskReport:
        mistakes = []
        for row, predicted in zip(encoded.rows[:JUDGED], answers, strict=False):
            score = text_score.chrf([predicted], _references([row]))
            if score < 1.0:
                mistakes.append(Mistake(row.where, row.source, row.target, predicted, score))
        return TaskReport(sorted(mistakes, key=lambda m: m.weight), "chrF", JUDGED)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The source, its first sentence, and the target of the most similar training source (by
        TF-IDF)."""
        sources = [row.source for row in data.parts[eval_part]]
        training_rows = data.parts[TRAIN]
        tfidf = fit_words([row.source for row in training_rows])
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
