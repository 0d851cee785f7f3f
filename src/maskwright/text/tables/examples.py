"""Examples: one type for each layout of rows.

    TextExample(text, label)              QuestionExample(question, context, answers)
    PairExample(first, second, label)     ChoiceExample(question, choices, label)
    TaggedExample(tokens, tags)           RewriteExample(source, target)
    MatchExample(anchor, positive)

A label is the number of a class, a tuple of such numbers (several labels), or a float. Each example
remembers its file and line, for messages. `Layout.read` makes them from rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Target = int | float | tuple[int, ...]
UNKNOWN = -1  # class index of an unknown tag
BETWEEN = "\x1f"  # does not occur in texts, as the reader removes control characters


def folded(text: str) -> str:
    """Normalise case and white space of `text`, for comparisons."""
    return " ".join(text.split()).casefold()


class Example:
    """Base class of examples, made from validated rows; `where` is the file and line.

    Attributes:
        text_fields: the fields whose texts are the input of a model.
        answer_field: the field with the target.
        has_text_answer: whether the target is a text, which may be the same in all rows.
        stratified: whether splits are stratified by the answer.
    """

    __slots__ = ()
    where: str
    text_fields: ClassVar[tuple[str, ...]]
    answer_field: ClassVar[str] = "label"
    has_text_answer: ClassVar[bool] = False
    stratified: ClassVar[bool] = False

    @property
    def whole_text(self) -> str:
        """All input texts, joined with `BETWEEN`."""
        return BETWEEN.join(getattr(self, name) for name in self.text_fields)

    @property
    def answer(self) -> Any:
        """The target; compares equal for equal answers."""
        return getattr(self, self.answer_field)

    @property
    def apart_by(self) -> str:
        """The text that must not occur in two parts of the data."""
        return self.whole_text

    @property
    def shares_apart_by(self) -> bool:
        """Whether rows with the same `apart_by` usually have different answers, such as questions
        about the same context."""
        return False

    @property
    def shared_texts(self) -> Mapping[str, str]:
        """Texts by role that other rows may share; rows that do are kept in one part."""
        return {}

    @property
    def answers_may_differ(self) -> bool:
        """Whether rows with the same text may have different answers that are all right."""
        return False

    @property
    def repeated(self) -> Hashable:
        """A value that is equal in all rows of a part whose answers do not differ."""
        return self.answer

    @property
    def stratum(self) -> Hashable:
        """The value to stratify splits by: a class index, a tuple of several, or None."""
        return self.answer if self.stratified else None


@dataclass(frozen=True, slots=True)
class TextExample(Example):
    """A text and its label."""

    text_fields: ClassVar = ("text",)
    stratified: ClassVar = True
    text: str
    label: Target
    where: str


@dataclass(frozen=True, slots=True)
class PairExample(Example):
    """Two texts and the label of both."""

    text_fields: ClassVar = ("first", "second")
    stratified: ClassVar = True
    first: str
    second: str
    label: Target
    where: str

    @property
    def apart_by(self) -> str:
        """Both texts in sorted order, so that swapped pairs are equal."""
        return BETWEEN.join(sorted((self.first, self.second), key=folded))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"first": self.first, "second": self.second}


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """Words and their classes.

    Attributes:
        tags: the class index of each word, or `UNKNOWN`.
        text: the text that was split into words; "" if the data have words.
        widened: how many spans marked in the text begin or end within a word.
        miscounted: the unit of offsets in which no span would begin or end within a word, or "".
    """

    answer_field: ClassVar = "tags"
    tokens: tuple[str, ...]
    tags: tuple[int, ...]
    where: str
    text: str = ""
    widened: int = 0
    miscounted: str = ""

    @property
    def whole_text(self) -> str:
        return " ".join(self.tokens)

    @property
    def repeated(self) -> Hashable:
        """The tag if all words have the same, else the location, which is unique."""
        distinct_tags = set(self.tags) - {UNKNOWN}
        return distinct_tags.pop() if len(distinct_tags) == 1 else self.where


@dataclass(frozen=True, slots=True)
class QuestionExample(Example):
    """A question, its context, and its answers as (text, character offset in the context); empty
    for an unanswerable question."""

    text_fields: ClassVar = ("question", "context")
    has_text_answer: ClassVar = True
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    where: str

    @property
    def answer(self) -> frozenset[str]:
        return frozenset(text for text, _ in self.answers)

    @property
    def apart_by(self) -> str:
        return self.context

    @property
    def shares_apart_by(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ChoiceExample(Example):
    """A question and its choices; the label is the index of the right one. `question` begins with
    the text it refers to, if any, which is also in `context`."""

    has_text_answer: ClassVar = True
    question: str
    choices: tuple[str, ...]
    label: int
    where: str
    context: str = ""

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.question, *self.choices))

    @property
    def repeated(self) -> str:
        """The text of the right choice, as a model does not see its index."""
        return self.choices[self.label]

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"context": self.context}


@dataclass(frozen=True, slots=True)
class RewriteExample(Example):
    """A source text and a target text to generate; `others` are equally good targets."""

    text_fields: ClassVar = ("source",)
    answer_field: ClassVar = "target"
    has_text_answer: ClassVar = True
    source: str
    target: str
    where: str
    others: tuple[str, ...] = ()

    @property
    def answers_may_differ(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MatchExample(Example):
    """A text, a matching text, and hard negatives: the same number in every row."""

    answer_field: ClassVar = "positive"
    has_text_answer: ClassVar = True
    anchor: str
    positive: str
    where: str
    negatives: tuple[str, ...] = ()

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.anchor, self.positive, *self.negatives))

    @property
    def apart_by(self) -> str:
        """The anchor and the positive, without the negatives."""
        return BETWEEN.join((self.anchor, self.positive))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"anchor": self.anchor}
