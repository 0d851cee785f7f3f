"""Examples: a type for each layout of rows.

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
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    pass

Target = int | float | tuple[int, ...]
UNKNOWN = -1  # the number of the tag of a word of which nothing is known
BETWEEN = "\x1f"  # no text has it: the reader takes control characters out


def folded(text: str) -> str:
    """`text` without regard to case and blanks."""
    return " ".join(text.split()).casefold()


class Example:
    """A row that was read and checked; `where` is its file and line.

    Attributes:
        text_fields: the fields with all texts that a model reads.
        answer_field: the field with what is to be predicted.
        has_text_answer: whether the answer is a text, which may be right in all rows.
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
        """All that a model reads of it, the texts separated by `BETWEEN`."""
        return BETWEEN.join(getattr(self, name) for name in self.text_fields)

    @property
    def answer(self) -> Any:
        """What is to be predicted; equal for equal answers."""
        return getattr(self, self.answer_field)

    @property
    def apart_by(self) -> str:
        """The text that must not be in two parts of the data."""
        return self.whole_text

    @property
    def shares_apart_by(self) -> bool:
        """Whether rows with one `apart_by` usually have different answers, as the questions about
        one context."""
        return False

    @property
    def shared_texts(self) -> Mapping[str, str]:
        """Texts that other rows may share, by role; such rows are kept in one part."""
        return {}

    @property
    def answers_may_differ(self) -> bool:
        """Whether rows with one text may have different answers, none of them wrong."""
        return False

    @property
    def repeated(self) -> Hashable:
        """What is equal in all rows of a part that tells no answers apart."""
        return self.answer

    @property
    def stratum(self) -> Hashable:
        """What parts are drawn evenly by: the number of a class, those of several, or None."""
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
        """Both texts, in an order that does not depend on which is first."""
        return BETWEEN.join(sorted((self.first, self.second), key=folded))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"first": self.first, "second": self.second}


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """Words, and the class of each.

    Attributes:
        tags: the number of the class of each word, or `UNKNOWN`.
        text: the text that the words are cut from, if any.
        widened: how many spans marked in the text begin or end within a word.
        miscounted: the counting of places by which none of them does.
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
        """The only tag of the words; of a sentence with several tags, the sentence."""
        distinct_tags = set(self.tags) - {UNKNOWN}
        return distinct_tags.pop() if len(distinct_tags) == 1 else self.where


@dataclass(frozen=True, slots=True)
class QuestionExample(Example):
    """A question and its answers in a context: (answer, offset in the context) each; no answers if
    there are none."""

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
    """A question and its choices; the label is the index of the right one. The text that the
    question is about stands before it, and in `context`, too."""

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
        """The text of the right choice: a model does not see its index."""
        return self.choices[self.label]

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"context": self.context}


@dataclass(frozen=True, slots=True)
class RewriteExample(Example):
    """A text to read and one to write; `others` would have been as good."""

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
    """Two texts that belong together, and others that nearly do: as many in every row."""

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
        """Without the texts that do not belong to the anchor."""
        return BETWEEN.join((self.anchor, self.positive))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"anchor": self.anchor}
