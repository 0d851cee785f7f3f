"""Examples: one small type for each shape of task, and the parts that they make.

    Single(text, label)                        Answered(question, context, answers)
    Pair(first, second, label)                 Choice(question, choices, label)
    Tagged(tokens, tags)                       Rewrite(source, target)
    Match(anchor, positive)

A label is the number of a class, a tuple of such numbers (several labels), or a float. Each example
remembers its file and line, for messages. `build.py` makes them from rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.corpus.ledger import Counts
from maskwright.labelled.columns.infer import Task
from maskwright.labelled.examples.labels import Vocabulary

Target = int | float | tuple[int, ...]
BETWEEN = "\x1f"  # no text has it: the reader takes control characters out


@dataclass(frozen=True, slots=True)
class Single:
    """A text and its label."""

    text: str
    label: Target
    where: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts and the label of both."""

    first: str
    second: str
    label: Target
    where: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """Words, and the class of each; the text they are cut from, if they are, how many parts that
    were marked in it begin or end within a word, and the counting of places by which none does."""

    tokens: tuple[str, ...]
    tags: tuple[int, ...]
    where: str
    text: str = ""
    widened: int = 0
    miscounted: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question; (answer, where it begins in the context); no answers where there are none."""

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    where: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A question and its choices; the label is the place of the right one. The question has what it
    is about before it, which is `context`, too."""

    question: str
    choices: tuple[str, ...]
    label: int
    where: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A text to read and one to write; `others` would have been as good."""

    source: str
    target: str
    where: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Two texts that belong together, and others that nearly do: as many in every row."""

    anchor: str
    positive: str
    where: str
    negatives: tuple[str, ...] = ()


Example = Single | Pair | Tagged | Answered | Choice | Rewrite | Match


@dataclass(frozen=True)
class Examples:
    """The parts of a table as examples of its task.

    Attributes:
        task: what is to be learned.
        parts: by name, as in the table.
        labels: the classes; None where there are none (numbers, answers, texts).
        dropped: (place, reason) of rows left out, by the policy `skip`.
        counts: what the reading of the files met, by part.
        groups: by part, what each example must not be torn from; empty where nothing was said.
        drawn: the parts that did not come as files.
        together: the role of a text by which rows stayed together when these were drawn.
        repaired, unlabelled: how many tags were changed, and rows left out that have no label.
        folded: how many labels were joined with another spelling.
        rejects: where the rows left out are listed, if they are.
    """

    task: Task
    parts: dict[str, list[Any]]
    labels: Vocabulary | None = None
    dropped: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    drawn: tuple[str, ...] = ()
    together: str = ""
    repaired: int = 0
    unlabelled: int = 0
    folded: int = 0
    rejects: Path | None = None


def folded(text: str) -> str:
    """`text` without regard to case and blanks."""
    return " ".join(text.split()).casefold()


def whole_text(example: Example) -> str:
    """All that is read of an example, its parts separated."""
    if isinstance(example, Single):
        return example.text
    if isinstance(example, Pair):
        return BETWEEN.join((example.first, example.second))
    if isinstance(example, Tagged):
        return " ".join(example.tokens)
    if isinstance(example, Answered):
        return BETWEEN.join((example.question, example.context))
    if isinstance(example, Choice):
        return BETWEEN.join((example.question, *example.choices))
    if isinstance(example, Match):
        return BETWEEN.join((example.anchor, example.positive, *example.negatives))
    return example.source


def label_of(example: Example) -> Any:
    """What is to be said about an example; equal for equal labels."""
    if isinstance(example, Tagged):
        return example.tags
    if isinstance(example, Answered):
        return frozenset(text for text, _ in example.answers)
    if isinstance(example, Single | Pair | Choice):
        return example.label
    return example.positive if isinstance(example, Match) else example.target
