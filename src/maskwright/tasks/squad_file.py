"""Questions about contexts, and the SQuAD file they come in (Rajpurkar et al. 2016, 2018).

    {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [
        {"id": …, "question": …, "answers": [{"text": …, "answer_start": …}], "is_impossible": …}
    ]}]}]}

An answer is a slice of its context, and is checked to be one: an answer that stands elsewhere is
refused with the place where it does stand, never searched for in silence. Places count characters
of the file's text, before any tokenizer changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.errors import DataError
from maskwright.strict_json import parse
from maskwright.tasks.whole_file import whole_text

LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Answer:
    """A slice of a context: its text and the character it begins at."""

    text: str
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question about a context; checked when it is made.

    Attributes:
        id: its name; unique in a file.
        answers: the gold answers; none where the context does not answer the question.
        where: file and place, for messages.
    Raises:
        DataError: a blank question, or an answer that is blank or not in the context.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    where: str = ""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise DataError("a question without words", where=self.place)
        for answer in self.answers:
            if not answer.text.strip():
                raise DataError("an answer without words", where=self.place,
                                wanted="some text of the context, or no answer at all")  # fmt: skip
            if answer.start < 0 or self.context[answer.start : answer.stop] != answer.text:
                raise self._not_there(answer)

    @property
    def place(self) -> str:
        return ", ".join(part for part in (self.where, f"question {self.id}") if part)

    @property
    def golds(self) -> tuple[str, ...]:
        return tuple(answer.text for answer in self.answers)

    def _not_there(self, answer: Answer) -> DataError:
        shown = answer.text[:LONGEST_SHOWN]
        stands = "nothing; the context ends before"
        if 0 <= answer.start < len(self.context):
            stands = repr(self.context[answer.start : answer.stop][:LONGEST_SHOWN])
        count = self.context.count(answer.text)
        do = "correct the answer or the context"
        if count == 1:
            do = f"it stands at character {self.context.find(answer.text)}: correct answer_start"
        elif count:
            do = f"it stands at {count} other places: correct answer_start"
        return DataError(
            "an answer that is not in its context" if not count else "an answer at a wrong place",
            where=self.place,
            found=f"{stands} at character {answer.start}",
            wanted=repr(shown),
            do=do,
        )


# ------------------------------------------------------------------------------ files
def read_squad(path: Path | str) -> list[Question]:
    """The questions of a SQuAD file, 1.1 or 2.0, also compressed, in the order of the file.

    Raises:
        UsageError: no such file.
        DataError: not such a file; the message names article, paragraph and question.
    """
    text, name = whole_text(path)
    return questions(parse(text, name), name)


def questions(document: Any, where: str = "") -> list[Question]:
    """The questions of a parsed SQuAD document.

    Raises:
        DataError: a missing or wrong field, a wrong answer, or two questions of one id.
    """
    found: dict[str, Question] = {}
    for context, row, place in _rows(document, where):
        name = _field(row, "id", str, place)
        named = f"{place}, question {name}"
        if name in found:
            raise DataError("two questions of the same id", where=place, found=repr(name))
        impossible = row.get("is_impossible")
        golds = row.get("answers", [])
        if type(golds) is not list:
            raise _wrong("answers", list, golds, named)
        if (impossible is True and golds) or (impossible is False and not golds):
            raise DataError("answers and is_impossible do not agree", where=named,
                            found=f"{len(golds)} answers, is_impossible {impossible}")  # fmt: skip
        answers = tuple(
            Answer(_field(g, "text", str, named), _field(g, "answer_start", int, named))
            for g in golds
        )
        question = _field(row, "question", str, named)
        found[name] = Question(name, question, context, answers, place)
    return list(found.values())


def from_rows(rows: Iterable[tuple[Mapping[str, Any], str]]) -> list[Question]:
    """Questions of parsed flat rows, each with its place for messages.

        {"question": …, "context": …, "answers": {"text": […], "answer_start": […]}, "id": …}

    A row without `id` has its number; one without `answers` has none.

    Raises:
        DataError: a missing or wrong field, or a wrong answer.
    """
    found = []
    for number, (row, where) in enumerate(rows):
        golds: tuple[Answer, ...] = ()
        if "answers" in row:
            texts = _list(row["answers"], "text", str, where)
            starts = _list(row["answers"], "answer_start", int, where)
            if len(texts) != len(starts):
                raise DataError("not one place for each answer", where=where,
                                found=f"{len(texts)} texts, {len(starts)} places")  # fmt: skip
            golds = tuple(map(Answer, texts, starts))
        name = _field(row, "id", str, where) if "id" in row else str(number)
        question, context = (_field(row, key, str, where) for key in ("question", "context"))
        found.append(Question(name, question, context, golds, where))
    return found


def _list(row: Any, name: str, kind: type, where: str) -> list[Any]:
    values: list[Any] = _field(row, name, list, where)
    for value in values:
        if type(value) is not kind:
            raise _wrong(name, kind, value, where)
    return values


def _rows(document: Any, where: str) -> Iterator[tuple[str, Any, str]]:
    """(context, question as it stands, place) for each question."""
    for a, article in enumerate(_field(document, "data", list, where), 1):
        at = f"{where}, article {a}".removeprefix(", ")
        for p, paragraph in enumerate(_field(article, "paragraphs", list, at), 1):
            place = f"{at}, paragraph {p}"
            context = _field(paragraph, "context", str, place)
            for row in _field(paragraph, "qas", list, place):
                yield context, row, place


def _field(row: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(row, Mapping) or name not in row:
        raise DataError("the field is missing", where=where or None, wanted=f'"{name}"',
                        do="give a file in SQuAD's form")  # fmt: skip
    if type(row[name]) is not kind:
        raise _wrong(name, kind, row[name], where)
    return row[name]


def _wrong(name: str, kind: type, found: Any, where: str) -> DataError:
    words = {str: "a text", list: "a list", int: "a whole number"}
    return DataError(f'the field "{name}" is of another kind', where=where, found=repr(found)[:80],
                     wanted=words[kind])  # fmt: skip
