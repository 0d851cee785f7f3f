"""Labelled data in memory: rows as they are read, and the examples made of them.

A table has the parts `train`, `validation` and `test`, or only `all`, which is divided later.

Examples have one type for each layout of rows:

    TextExample(text, label)              QuestionExample(question, context, answers)
    PairExample(first, second, label)     ChoiceExample(question, choices, label)
    TaggedExample(tokens, tags)           RewriteExample(source, target)
    MatchExample(anchor, positive)        ImageExample(image, label)

A label is the number of a class, a tuple of such numbers (several labels), or a float. Each example
remembers its file and line, for messages. `Layout.read` makes them from rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from maskwright.base.errors import DataError, Finding
from maskwright.base.storage.files import new_text
from maskwright.text.corpus.reading import Counts, ReadingOptions, enough_fraction

# ------------------------------------------------------------------------------ rows
ALL, TRAIN, VALIDATION, TEST = "all", "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
LABEL = "label"
DEFAULT_READING = ReadingOptions()
TABLE_FILE = re.compile(r"\.(csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
SKIP = "--read on_bad=skip"
TAKE_OUT = f"take it out ({SKIP} drops and counts it)"
FIX_ROW = f"correct the row, or {TAKE_OUT}"
# Number of a class in the data -> its name, in ascending order.
Names = dict[int, str]


def plain(name: str) -> str:
    """Return a column name in lower case, letters and digits only: `sentence1` of `Sentence_1`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file: texts in csv files, any JSON values elsewhere.

    Attributes:
        values: the values by column.
        file: the file as named by the user.
        number: the number of the row, counted from 1.
        unit: what `number` counts: `line`, `row` (parquet) or `item` (a json array).
        given: the original values of columns from which characters were removed; character
            offsets refer to these.
    """

    values: Mapping[str, Any]
    file: str
    number: int
    unit: str = "line"
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def in_table(self) -> bool:
        """Whether the row is from a csv or tsv file, whose cells are all texts."""
        return TABLE_FILE.search(self.file) is not None

    def as_given(self) -> Row:
        """Return the row with its original texts, before characters were removed."""
        return replace(self, values={**self.values, **self.given}) if self.given else self


def value_of(row: Row, name: str) -> Any:
    """Return the value of a column, or None; a name such as `translation.en` looks in a mapping."""
    value = row.values.get(name)
    if value is None and "." in name:
        column, _, key = name.partition(".")
        value = row.values.get(column)
        value = value.get(key) if type(value) is dict else None
    return value


def has_column(name: str, columns: Collection[str]) -> bool:
    """Whether `columns` has `name`, or the outer column of a name such as `translation.en`."""
    return name in columns or name.partition(".")[0] in columns


def cell_error(
    problem: str, row: Row, name: str, expected: str, do: str = FIX_ROW, *, shown: str | None = None
) -> DataError:
    """Return the error for the cell of the column `name` in `row`; `shown` replaces its value."""
    value = value_of(row, name)
    return DataError(
        problem,
        where=f"{row.where}, column {name!r}",
        found=shown or ("nothing" if value is None else repr(value)[:80]),
        wanted=expected,
        do=do,
    )


@dataclass(frozen=True)
class Table:
    """The rows of all parts.

    Attributes:
        parts: the existing ones of `train`, `validation`, `test`; or only `all`.
        names: class number -> name by column, from a file next to the data or their metadata; those
            of `label` also apply if the column has another name (`names_of`).
        names_file: the file that holds `names`, or "".
        loose: whether `names_file` was not given by the user, so that it may be for other data.
        counts: counts of the reading, by part.
        rejects: the file that lists dropped rows, if requested.
    """

    parts: dict[str, list[Row]]
    names: dict[str, Names] = field(default_factory=dict)
    names_file: str = ""
    loose: bool = False
    counts: dict[str, Counts] = field(default_factory=dict)
    rejects: Path | None = None

    @property
    def first(self) -> list[Row]:
        """The rows from which columns and labels are learned: `train`, or `all`."""
        return self.parts.get(TRAIN, self.parts.get(ALL, []))

    @property
    def columns(self) -> list[str]:
        """The columns of the first part, in order of occurrence."""
        return list(dict.fromkeys(name for row in self.first for name in row.values))

    @property
    def rows(self) -> list[Row]:
        """The rows of all parts."""
        return [row for rows in self.parts.values() for row in rows]

    def names_of(self, column: str) -> Names:
        """Return class number -> name of a label column; empty if no file has the names."""
        if column in self.names or LABEL in self.columns:
            return self.names.get(column, {})
        return self.names.get(LABEL, {})

    def note(self, content: Finding | str) -> None:
        """Add a finding to the counts of the first part, once; a text is about names of classes."""
        finding = Finding("names-of-classes", content) if isinstance(content, str) else content
        notes = self.counts.setdefault(next(iter(self.parts)), Counts()).notes
        if finding not in notes:
            notes.append(finding)

    def without_labels(self, split: str, rows: Sequence[Row], shown: str) -> bool:
        """Drop a test part whose `rows` have no labels, as in public data sets, with a finding that
        names the placeholder `shown`. Return False, without effect, for other parts."""
        if split != TEST or TRAIN not in self.parts:
            return False
        del self.parts[split]
        message = f"not used: {shown} in place of a label in all {len(rows):,} rows"
        unused = Finding("part-not-used", message)
        self.counts.setdefault(split, Counts()).notes.append(unused)
        return True


def usable(
    rows: Sequence[Row], read: Callable[[Row], Any], reading: ReadingOptions
) -> tuple[list[Any], list[tuple[Row, DataError]]]:
    """Return the results of `read` for all rows, and (row, error) for each one that it refused.
    Raises DataError when strict: the first one, with the number of bad rows; and for more bad rows
    than `max_bad_fraction`."""
    results: list[Any] = []
    bad: list[tuple[Row, DataError]] = []
    for row in rows:
        try:
            results.append(read(row))
        except DataError as error:
            bad.append((row, error))
    too_many = len(bad) > reading.max_bad_fraction * len(rows)
    raised = f"--read max_bad_fraction={enough_fraction(len(bad), len(rows))}"
    if bad and reading.on_bad == "strict":
        first_error = bad[0][1]
        if len(bad) > 1:
            first_error.found = (
                f"{first_error.found or ''}; {len(bad):,} of {len(rows):,} rows are bad"
            )
        advice = first_error.do or ""
        if len(bad) == len(rows):  # no row would be left
            advice = re.sub(f",( or)? {re.escape(TAKE_OUT)}", "", advice)
        raise first_error.advising(advice.replace(SKIP, f"{SKIP} {raised}" if too_many else SKIP))
    if too_many:
        reason = bad[0][1]
        higher_limit = f", or raise it ({raised})"
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {reason.what} ({reason.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows" + ("" if len(bad) == len(rows) else higher_limit),
        )
    return results, bad


def list_rejected(bad: Sequence[tuple[Row, DataError]], path: Path | None) -> None:
    """Append bad rows to the list of rejected rows at `path`, as JSON Lines; None lists nothing."""
    if path is None or not bad:
        return
    previous_text = path.read_text(encoding="utf-8")
    with new_text(path) as file:
        file.write(previous_text)
        for row, error in bad:
            parts_of_error = {"reason": error.what, "found": error.found, "wanted": error.wanted}
            file.write(json.dumps({"file": row.file, row.unit: row.number} | parts_of_error) + "\n")


# ------------------------------------------------------------------------------ examples
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
        shares_apart_by: whether rows with the same `apart_by` usually have different answers, such
            as questions about the same context.
        answers_may_differ: whether rows with the same text may have different answers that are all
            right.
    """

    __slots__ = ()
    where: str
    text_fields: ClassVar[tuple[str, ...]]
    answer_field: ClassVar[str] = "label"
    has_text_answer: ClassVar[bool] = False
    stratified: ClassVar[bool] = False
    shares_apart_by: ClassVar[bool] = False
    answers_may_differ: ClassVar[bool] = False

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
    def shared_texts(self) -> Mapping[str, str]:
        """Texts by role that other rows may share; rows that do are kept in one part."""
        return {}

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
    shares_apart_by: ClassVar = True
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
    answers_may_differ: ClassVar = True
    source: str
    target: str
    where: str
    others: tuple[str, ...] = ()


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
