"""Read questions with contexts from SQuAD files (Rajpurkar et al. 2016, 2018).

    {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [
        {"id": …, "question": …, "answers": [{"text": …, "answer_start": …}], "is_impossible": …}
    ]}]}]}

Offsets count characters of the original text; that an answer is at its offset is checked when rows
are converted to examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maskwright.base.errors import DataError

FIELDS = ("id", "title", "context", "question", "is_impossible", "plausible_answers")


def rows_and_faults(document: Any, where: str = "") -> Iterator[dict[str, Any] | DataError]:
    """Yield the questions of a parsed SQuAD document, 1.1 or 2.0, as flat rows in the order of the
    file, and a DataError in place of each bad question, paragraph or article:

        {"id": …, "title": …, "context": …, "question": …,
         "answers": {"text": […], "answer_start": […]}}

    A question without the field `answers`, as in data for prediction, has none in its row either.

    Raises:
        DataError: the document has no list of articles.
    """
    ids: set[str] = set()
    for number, row_or_fault in enumerate(_questions(document, where), start=1):
        if isinstance(row_or_fault, DataError):
            yield row_or_fault
            continue
        try:
            yield _flat_row(*row_or_fault, number, ids)
        except DataError as error:
            yield error


def _flat_row(
    title: str, context: str, row: Any, where: str, number: int, ids: set[str]
) -> dict[str, Any]:
    """Convert a raw question to a flat row, and add its id to `ids`; DataError if it is bad."""
    if not isinstance(row, Mapping):
        expected = '{"question": "…", "answers": […]}'
        problem, shown = "a question that is no object", repr(row)[:80]
        raise DataError(problem, where=where, found=shown, wanted=expected)
    question_id = str(row.get("id", number))
    where_question = f"{where}, question {question_id}"
    if question_id in ids:
        problem, expected = "two questions of the same id", "another id for each question"
        raise DataError(problem, where=where, found=repr(question_id), wanted=expected)
    ids.add(question_id)
    impossible, answers = row.get("is_impossible"), row.get("answers", row.get("answer", []))
    labelled = bool({"answers", "answer"} & row.keys()) or impossible is True
    if type(answers) is dict:  # one answer, or columns of several
        values = [value if type(value) is list else [value] for value in answers.values()]
        if len(set(map(len, values))) > 1:
            raise _type_error("answers", list, answers, where_question)
        answers = [dict(zip(answers, cells, strict=True)) for cells in zip(*values, strict=True)]
    labelled &= type(answers) is not str  # an answer without offset is searched in the context
    if type(answers) is not list and labelled:
        raise _type_error("answers", list, answers, where_question)
    if (impossible is True and answers) or (impossible is False and labelled and not answers):
        raise DataError(
            "answers and is_impossible do not agree",
            where=where_question,
            found=f"{len(answers)} answers, is_impossible {impossible}",
            wanted="answers, or is_impossible true",
        )
    question = _field(row, "question", str, where_question)
    flat_row = {"id": question_id, "title": title, "context": context, "question": question}
    if not labelled:  # other fields are kept; invalid answers are reported when they are read
        return flat_row | {name: value for name, value in row.items() if name not in FIELDS}
    texts = [_field(gold, "text", str, where_question) for gold in answers]
    starts = [_field(gold, "answer_start", int, where_question) for gold in answers]
    return flat_row | {"answers": {"text": texts, "answer_start": starts}}


def _questions(document: Any, where: str) -> Iterator[tuple[str, str, Any, str] | DataError]:
    """Yield (title, context, raw question, location) for each question, or a DataError."""
    for a, article in enumerate(_field(document, "data", list, where), 1):
        where_article = f"{where}, article {a}".removeprefix(", ")
        title = article.get("title", "") if isinstance(article, Mapping) else ""
        try:
            paragraphs = _field(article, "paragraphs", list, where_article)
        except DataError as error:
            yield error
            continue
        for p, paragraph in enumerate(paragraphs, 1):
            where_paragraph = f"{where_article}, paragraph {p}"
            try:
                context = _field(paragraph, "context", str, where_paragraph)
                questions = _field(paragraph, "qas", list, where_paragraph)
            except DataError as error:
                yield error
                continue
            for row in questions:
                yield str(title), context, row, where_paragraph


def _field(row: Any, name: str, expected: type, where: str) -> Any:
    if not isinstance(row, Mapping) or name not in row:
        shown = ", ".join(map(str, row)) if isinstance(row, Mapping) else repr(row)[:80]
        problem, form = f'the field "{name}" is missing', f'"{name}", as SQuAD has it'
        raise DataError(problem, where=where or None, found=shown or "no fields", wanted=form)
    if type(row[name]) is not expected:
        raise _type_error(name, expected, row[name], where)
    return row[name]


def _type_error(name: str, expected: type, value: Any, where: str) -> DataError:
    form = {str: "a text", list: "a list", int: "a whole number"}[expected]
    problem = f'the field "{name}" has another type'
    return DataError(problem, where=where, found=repr(value)[:80], wanted=form)
