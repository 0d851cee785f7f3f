"""The layout of a table, its columns, and the task and dataset derived from them.

`Layout` is the base class of layouts: it defines the roles of columns, the search for them, and
the reading of a row. The types refer to each other, so they are in one module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from maskwright.base.errors import Finding
from maskwright.text.corpus.reading import Counts
from maskwright.text.tables.cell_values import is_no_label, text_in
from maskwright.text.tables.columns import Column, ColumnSearch
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.rows import Example, Row, Table, value_of

# The form of the labels; "" if a layout has neither classes nor numbers.
Label = Literal["classes", "several", "number", ""]
LISTED = 20


class Layout(ABC):
    """A set of roles that belong together.

    Attributes:
        name: name in error messages.
        roles: roles that every table of this layout fills.
        optional: further roles that a user may give to a column.
        multi_column: roles that several columns may fill together, each with its own value.
        joined: roles of texts that may be joined from several columns, such as a title and a body;
            not for texts with character offsets.
        lists: roles whose cells may be lists.
        learned: the role of the target; prediction does not need its column.
        ignored: answers that mean a missing answer even if the user does not name them.
        spellings: normalised column names (`rows.plain`) by role, the likeliest first; not
            needed for roles in `columns.NAMES`.
        rank: layouts are tried in ascending order, the most specific first.
        has_label_forms: whether labels may be classes, several classes or numbers, depending on the
            values of the label column.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    multi_column: ClassVar[tuple[str, ...]] = ()
    joined: ClassVar[tuple[str, ...]] = ()
    lists: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[str] = "label"
    ignored: ClassVar[tuple[str, ...]] = ()
    spellings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    rank: ClassVar[int] = 100
    has_label_forms: ClassVar[bool] = False

    # ------------------------------------------------------------------------ columns
    @abstractmethod
    def find(self, search: ColumnSearch) -> None:
        """Assign columns to the roles of this layout in `search`, as far as they can be found."""

    def complete(self, table: Table, columns: Columns) -> Columns:
        """Return `columns` with optional columns that can only be confirmed by all rows."""
        return columns

    @abstractmethod
    def reason(self, columns: Columns) -> str:
        """Return why the table has this layout, as the end of a sentence; not called if
        `has_label_forms`."""

    # ------------------------------------------------------------------------ rows
    def prepare(
        self, table: Table, task: Task, classes: Sequence[str]
    ) -> tuple[Table, Iterator[Finding]]:
        """Prepare the table before its rows are read, and return it with findings; `classes` are
        those of a model, or empty.

        Raises:
            DataError: the table as a whole is invalid.
        """
        return table, iter(())

    def repair(self, table: Table, task: Task) -> tuple[Table, int] | None:
        """Return the table with repaired annotations (`--read repair_tags`) and the number of
        changed cells; None if the layout has nothing to repair."""
        return None

    @abstractmethod
    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> Example:
        """Convert a row to an example; `vocabulary` has the classes, None if there are none.

        Raises:
            DataError: the row is bad; the error has its file, line and remedy.
        """

    @property
    def input_roles(self) -> tuple[str, ...]:
        """The roles that prediction needs: all but the target."""
        return tuple(role for role in self.roles if role != self.learned)

    def inputs(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Sequence[Any]:
        """Return the values of the `input_roles` in a row; `columns`: names by role.

        Raises:
            DataError: a value is missing or has another type.
        """
        return [text_in(row, columns[role]) for role in self.input_roles]

    @property
    def answer_role(self) -> str:
        """The role of the answers: `learned`, or the last role if it is not among `roles`."""
        return self.learned if self.learned in self.roles else self.roles[-1]

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        """Return the raw values in `row` that make up its answer."""
        values = [value_of(row, name) for name in columns.roles.get(self.answer_role, ())]
        return values[0] if len(values) == 1 and type(values[0]) is list and values[0] else values

    def without(self, row: Row, columns: Columns, no_label: Collection[str]) -> Row | None:
        """Return `row` without the answers equal to one of `no_label`; None if none is left."""
        unknown = any(is_no_label(no_label, value) for value in self.answers(row, columns))
        return None if unknown else row

    def meanings(self, labels: Collection[Any]) -> Callable[[str], set[str]]:
        """Return a function label -> further meanings; labels that share one are refused."""
        return lambda label: set()

    def label_cells(self, row: Row, task: Task) -> Iterator[Any] | None:
        """Return the labels of a row if they are not in a column `label`, else None."""
        return None

    def require_sound(self, examples: Sequence[Any]) -> None:
        """Check the examples of a part together.

        Raises:
            DataError: they are inconsistent.
        """
        return

    def findings(self, split: str, dataset: Dataset) -> Iterator[Finding]:
        """Yield the findings on a part that are specific to this layout."""
        return iter(())

    def label_findings(self, names: Sequence[str]) -> Iterator[Finding]:
        """Yield the findings on the names of the classes."""
        return iter(())


@dataclass(frozen=True)
class Columns:
    """The columns assigned to the roles of a layout, with reasons.

    Attributes:
        layout: the set of roles.
        roles: role -> names of columns; several for `choices`, for labels with one column for each
            class, and for joined texts.
        why: role -> reason for the choice.
        described: the statistics of every column of the table by name.
    """

    layout: Layout
    roles: dict[str, tuple[str, ...]]
    why: dict[str, str]
    described: dict[str, Column]

    def __getitem__(self, role: str) -> str:
        return self.roles[role][0]

    def column(self, role: str) -> Column:
        return self.described[self[role]]

    @property
    def left_out(self) -> list[str]:
        used_columns = {name.split(".")[0] for names in self.roles.values() for name in names}
        if "answers" in self.roles:
            used_columns.add("answer_start")  # where each of them begins
        return [name for name in self.described if name not in used_columns and "." not in name]

    def lines(self, further: str | None = None) -> list[str]:
        """Return one line for each role, and one for unused columns other than `further`."""
        in_cells = {name for name, column in self.described.items() if column.in_cells}
        sentences = [
            f"using column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} as {role} "
            f"({self.why[role]}{'; its cells hold lists' if in_cells & {*names} else ''})"
            for role, names in self.roles.items()
        ]
        if left_out := [name for name in self.left_out if name != further]:
            unlisted = f" and {len(left_out) - LISTED:,} more" if len(left_out) > LISTED else ""
            sentences.append(f"not used: {', '.join(map(repr, left_out[:LISTED]))}{unlisted}")
        return sentences


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a task type declares about its data.

    Attributes:
        name: the value of `--task`.
        layout: the columns of a row, and how it is read.
        label: the form of the labels.
        metrics: the names of its metrics, the default one first.
        selectable: further metrics by which an epoch can be selected.
        inferred: whether the task is inferred for tables of this layout and form of labels; only
            one task for each combination can be.
        in_batch_negatives: whether the other rows of a step serve as negatives, so that a step
            cannot be computed in portions.
        group: the role whose text names the group of a row, such as its query; "": none.
    """

    name: str
    layout: Layout
    label: Label = ""
    metrics: tuple[str, ...]
    selectable: tuple[str, ...] = ()
    inferred: bool = True
    in_batch_negatives: bool = False
    group: str = ""

    @property
    def has_classes(self) -> bool:
        return self.label in ("classes", "several")

    @property
    def choosable(self) -> tuple[str, ...]:
        """The metrics by which an epoch can be selected, for which higher is better."""
        return (*(name for name in self.metrics if "error" not in name), *self.selectable)


@dataclass(frozen=True)
class Task:
    """The task of a table, and how to read its labels.

    Attributes:
        shape: what the task type declares about its data.
        why: the reason for the task, as one sentence.
        columns: the columns by role.
        separator: separator of several labels in one cell; None for lists and columns.
        flags: number of flags in each cell, one for each class; 0 if labels are names.
        named: the classes named by mappings of flags; empty if labels are not mappings.
        marks: columns of one class each in which an empty cell means no; signs: in which -1 does.
    """

    shape: Shape
    why: str
    columns: Columns
    separator: str | None = None
    flags: int = 0
    named: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The value of `--task`."""
        return self.shape.name

    def lines(self) -> list[str]:
        """Return lines for the user: the task with its reason, then the columns."""
        return [f"task: {self.name}, because {self.why}", *self.columns.lines()]


@dataclass(frozen=True)
class Dataset:
    """The parts of a table as examples of its task.

    Attributes:
        task: the task of the table.
        parts: the examples by name of the part.
        labels: the classes; None for tasks without classes (numbers, answers, texts).
        dropped: (location, reason) of bad rows that were left out with the policy `skip`.
        counts: the counts of reading the files, by part.
        groups: the group of each example, by part; a group stays in one part. Empty without groups.
        sampled: the names of the parts that were sampled and did not come as files.
        together: the role of the text that kept rows together when parts were sampled, or "".
        repaired, unlabelled: number of changed tags, and of rows left out without a label.
        folded: number of labels that were joined with another spelling.
        rejects: the file that lists the rows left out, or None.
    """

    task: Task
    parts: dict[str, list[Any]]
    labels: LabelVocabulary | None = None
    dropped: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()
    together: str = ""
    repaired: int = 0
    unlabelled: int = 0
    folded: int = 0
    rejects: Path | None = None
