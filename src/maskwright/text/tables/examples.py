"""Examples: a type for each layout of rows.

    TextExample(text, label)              QuestionExample(question, context, answers)
    PairExample(first, second, label)     ChoiceExample(question, choices, label)
    TaggedExample(tokens, tags)           RewriteExample(source, target)
    MatchExample(anchor, positive)

A label is the number of a class, a tuple of such numbers (several labels), or a float. Each example
remembers its file and line, for messages. `Layout.read` makes them from rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Example(ABC):
    """A row that was read and checked; `where` is its file and line."""

    __slots__ = ()
    where: str
    # Whether the answer is a text, which may be right in all rows.
    has_text_answer: ClassVar[bool] = False

    @property
    @abstractmethod
    def whole_text(self) -> str:
        """All that a model reads of it, its parts separated by `BETWEEN`."""

    @property
    @abstractmethod
    def answer(self) -> Any:
        """What is to be predicted; equal for equal answers."""

    @property
    def apart_by(self) -> str:
        """The text that must not be in two parts of the data."""
        return self.whole_text

    @property
    def shares_apart_by(self) -> bool:
        """Whether rows with one `apart_by` usually have answers of their own, as the questions
        about one context."""
        return False

    @property
    def shared_texts(self) -> Mapping[str, str]:
        """Texts that other rows may share, by role: rows that do are kept in one part."""
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
        return None


@dataclass(frozen=True, slots=True)
class TextExample(Example):
    """A text and its label."""

    text: str
    label: Target
    where: str

    @property
    def whole_text(self) -> str:
        return self.text

    @property
    def answer(self) -> Target:
        return self.label

    @property
    def stratum(self) -> Hashable:
        return self.label


@dataclass(frozen=True, slots=True)
class PairExample(Example):
    """Two texts and the label of both."""

    first: str
    second: str
    label: Target
    where: str

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.first, self.second))

    @property
    def answer(self) -> Target:
        return self.label

    @property
    def apart_by(self) -> str:
        """Both texts, in an order that does not depend on which is first."""
        return BETWEEN.join(sorted((self.first, self.second), key=folded))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"first": self.first, "second": self.second}

    @property
    def stratum(self) -> Hashable:
        return self.label


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """Words, and the class of each or `UNKNOWN`; the text they are cut from, if they are, how many
    parts that were marked in it begin or end within a word, and the counting of places by which
    none does."""

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
    def answer(self) -> tuple[int, ...]:
        return self.tags

    @property
    def repeated(self) -> Hashable:
        """The only tag of the words; of a sentence with several tags, the sentence."""
        distinct_tags = set(self.tags) - {UNKNOWN}
        return distinct_tags.pop() if len(distinct_tags) == 1 else self.where


@dataclass(frozen=True, slots=True)
class QuestionExample(Example):
    """A question; (answer, where it begins in the context); no answers where there are none."""

    has_text_answer: ClassVar[bool] = True
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    where: str

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.question, self.context))

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
    """A question and its choices; the label is the place of the right one. The question has what it
    is about before it, which is `context`, too."""

    has_text_answer: ClassVar[bool] = True
    question: str
    choices: tuple[str, ...]
    label: int
    where: str
    context: str = ""

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.question, *self.choices))

    @property
    def answer(self) -> int:
        return self.label

    @property
    def repeated(self) -> str:
        """The right words: a model does not see at which place they stand."""
        return self.choices[self.label]

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"context": self.context}


@dataclass(frozen=True, slots=True)
class RewriteExample(Example):
    """A text to read and one to write; `others` would have been as good."""

    has_text_answer: ClassVar[bool] = True
    source: str
    target: str
    where: str
    others: tuple[str, ...] = ()

    @property
    def whole_text(self) -> str:
        return self.source

    @property
    def answer(self) -> str:
        return self.target

    @property
    def answers_may_differ(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class MatchExample(Example):
    """Two texts that belong together, and others that nearly do: as many in every row."""

    has_text_answer: ClassVar[bool] = True
    anchor: str
    positive: str
    where: str
    negatives: tuple[str, ...] = ()

    @property
    def whole_text(self) -> str:
        return BETWEEN.join((self.anchor, self.positive, *self.negatives))

    @property
    def answer(self) -> str:
        return self.positive

    @property
    def apart_by(self) -> str:
        """Not the texts that do not belong to the anchor."""
        return BETWEEN.join((self.anchor, self.positive))

    @property
    def shared_texts(self) -> Mapping[str, str]:
        return {"anchor": self.anchor}
