"""Layout of extractive questions: a question, its context, and the offsets of the answers in it.

Offsets count characters as in Python, and the context must contain the answer at its offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, near
from maskwright.base.findings import Finding
from maskwright.text.tables import raw_text
from maskwright.text.tables.cell_values import as_integer, is_empty, missing, require_field, text_in
from maskwright.text.tables.examples import QuestionExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Task
from maskwright.text.tables.marked_text import cause_of_place
from maskwright.text.tables.role_search import NAMES, TEXTLIKE, ColumnSearch
from maskwright.text.tables.rows import TABLE_FILE, Row, plain, value_of

YES_OR_NO = {"yes", "no", "true", "false", "y", "n", "maybe", "0", "1"}
TRUE, FALSE = {"1", "1.0", "true"}, {"0", "0.0", "false"}
NONE = '{"text": [], "answer_start": []}'
UNANSWERABLE = ("isimpossible", "impossible", "unanswerable")


class QuestionLayout(Layout):
    """{"question": "…", "context": "…", "answers": {"text": ["…"], "answer_start": [34]}}"""

    name = "question"
    roles = ("question", "context", "answers")
    joined = ("question",)
    lists = ("answers",)
    learned = "answers"
    rank = 20

    def find(self, search: ColumnSearch) -> None:
        if "answers" not in search.roles and any(
            c.kind in ("texts", "object") and plain(c.name) in NAMES["choices"]
            for c in search.free()
        ):
            return  # the answer is one of the choices, and need not occur in the text
        if "answers" not in search.roles and (_has_verdicts(search) or _is_yes_or_no(search)):
            return
        search.by_name("answers", lambda c: c.kind in ("object", "texts", "text"))
        search.by_name("context", lambda c: c.kind in TEXTLIKE)
        if "context" in search.roles:
            search.by_name("question", lambda c: c.kind in TEXTLIKE)

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        value = value_of(row, columns["answers"])
        texts = value.get("text") if type(value) is dict else value
        if type(texts) is not list or not texts:
            return [texts]
        return [answer.get("text") if type(answer) is dict else answer for answer in texts]

    def reason(self, columns: Columns) -> str:
        return "each row has a question, a context and answers in it"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> QuestionExample:
        columns = task.columns
        question = text_in(row, columns.roles["question"])
        text_in(row, columns.roles["context"])  # the cleaned text must not be empty
        context = text_in(row.as_given(), columns.roles["context"])
        answers = _parse_answers(row, columns["answers"], context)
        impossible = _is_unanswerable(row)
        if impossible is not None and impossible == bool(answers):
            raise DataError(
                "the answers and the mark of an unanswerable question contradict each other",
                where=row.where,
                found=f"{counted(len(answers), 'answer')}, marked as "
                f"{'unanswerable' if impossible else 'answerable'}",
                wanted="answers, or that mark",
                do="correct one of the two, or take the row out (--read on_bad=skip drops and "
                "counts it)",
            )
        return QuestionExample(question, context, answers, row.where)

    def findings(self, split: str, dataset: Dataset) -> Iterator[Finding]:
        """Yield findings on questions of a part without an answer."""
        rows = dataset.parts[split]
        unanswered = [row for row in rows if not row.answers]
        if unanswered:
            yield Finding(
                "questions-without-answer",
                f"{counted(len(unanswered), 'question')} of {len(rows):,} in {split} "
                f"({len(unanswered) / len(rows):.0%}) have no answer in their context",
                f"the first: {unanswered[0].where}",
            )
        columns = dataset.task.columns
        empty = columns.column("answers").empty if unanswered else 0
        if empty and TABLE_FILE.search(
            unanswered[0].where.rpartition(",")[0]
        ):  # else null is refused
            yield Finding(
                "empty-answers",
                f"an empty cell in the column {columns['answers']!r} is read as no answer",
                remedy="take out rows whose answers are not known",
            )


def _has_verdicts(search: ColumnSearch) -> bool:
    """Whether there is a text column `answer` and a column `label` of classes that rate it."""
    answer, label = search.by_plain.get("answer"), search.by_plain.get("label")
    return (
        bool(answer and label)
        and search.described[str(answer)].kind == "text"
        and (search.described[str(label)].has_classes)
    )


def _is_yes_or_no(search: ColumnSearch) -> bool:
    """Whether all answers are yes or no, which need not occur in the text."""
    name = next((n for s in NAMES["answers"] if (n := search.by_plain.get(s))), None)
    answers = {str(value_of(row, name)).strip().lower() for row in search.rows} if name else set()
    return bool(answers) and answers <= YES_OR_NO


def _parse_answers(row: Row, name: str, context: str) -> tuple[tuple[str, int], ...]:
    """Return the answers as (text, offset in `context`); without offset they must occur once."""
    value = value_of(row, name)
    starts: list[Any] = []
    if value is None and _is_unanswerable(row):
        return ()
    require_field(row, "answers", name, NONE)
    if value is None:
        raise DataError(
            "null in the place of answers",
            where=f"{row.where}, column {name!r}",
            found="null",
            wanted="answers",
            do=f"where there is none, write {NONE}; or take the row out (--read on_bad=skip drops "
            "and counts it)",
        )
    if type(value) is dict:
        if "text" not in value:
            raise DataError(
                "an answer without a text",
                where=f"{row.where}, column {name!r}",
                found=f"the fields {', '.join(value) or '(none)'}",
                wanted="'text'",
                do=f"rename the field ({near('text', value)}), or take the row out (--read "
                "on_bad=skip drops and counts it)",
            )
        texts, starts = value["text"], value.get("answer_start", [])
    elif type(value) is list and value and all(type(answer) is dict for answer in value):
        texts, starts = [v.get("text") for v in value], [v.get("answer_start") for v in value]
    else:
        texts = value if type(value) is list else [] if is_empty(value) else [value]
        start = value_of(row, "answer_start")
        starts = start if type(start) is list else [] if is_empty(start) else [start]
    if type(texts) is str:
        texts, starts = [texts], [starts]
    if type(texts) is not list or not all(type(t) is str for t in texts):
        raise missing(row, name, "answer", '{"text": ["…"], "answer_start": [0]}')
    if type(starts) is not list or (starts and len(starts) != len(texts)):
        raise missing(row, name, "place of an answer", "as many answer_start as text")
    begins = [as_integer(start) for start in starts] if starts else [None] * len(texts)
    return tuple(
        _locate(text, start, context, row, name) for text, start in zip(texts, begins, strict=True)
    )


def _is_unanswerable(row: Row) -> bool | None:
    """Whether the row is marked as unanswerable; None without such a mark."""
    name = next((name for name in row.values if plain(name) in UNANSWERABLE), None)
    value = "" if name is None else str(row.values[name]).strip().lower()
    return True if value in TRUE else False if value in FALSE else None


def _locate(text: str, start: int | None, context: str, row: Row, name: str) -> tuple[str, int]:
    """Locate an answer and return (its text in the context, its offset); raise DataError if it is
    not at `start`, or without `start` not exactly once in the context."""
    is_at_start = start is not None and start >= 0 and context[start : start + len(text)] == text
    if start is not None and is_at_start and text.strip():
        return text, start
    count = context.count(text) if text.strip() else 0
    if start is None and count == 1:
        return text, context.index(text)
    if start is not None and (slice_ := raw_text.slice_of(context, text, start)) is not None:
        return context[slice_], slice_.start
    text_at_start = "" if start is None else context[max(0, start) : max(0, start) + len(text)]
    cause = cause_of_place(context, text, start) if start is not None else None
    if count == 1:
        tip = f"it stands there once, at character {context.index(text)}: correct answer_start"
    elif count:
        starts = [match.start() for match in re.finditer(re.escape(text), context)]
        tip = f"it stands there {count} times, at {', '.join(map(str, starts[:5]))}: give its place"
    else:
        tip = "correct the answer, or take the row out (--read on_bad=skip drops and counts it)"
    raise DataError(
        "the answer is not in the context at its place",
        where=f"{row.where}, column {name!r}",
        found=f"{text!r}, at character {start}: {text_at_start!r}"
        if start is not None
        else repr(text),
        wanted="context[start : start + len(answer)] == answer, in characters",
        do=f"{tip}; {cause}" if cause else tip,
    )


QUESTION = QuestionLayout()
