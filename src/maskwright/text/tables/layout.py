"""The layout of a table, its columns, and the task that is learned from them.

`Layout` is the base class of `layouts/`: the roles of columns, the search for them, and the reading
of a row. The types refer to each other, so they are in one module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from maskwright.base.findings import Finding
from maskwright.text.corpus.ledger import Counts
from maskwright.text.tables.column_contents import Column, is_no_label, value_of
from maskwright.text.tables.examples import Example
from maskwright.text.tables.files import Table
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.role_search import ColumnSearch
from maskwright.text.tables.rows import Row

# What stands in the column of labels; "" where a layout has no classes or numbers.
Label = Literal["classes", "several", "number", ""]
LISTED = 20


class Layout(ABC):
    """A set of roles that belong together.

    Attributes:
        name: as errors call it.
        roles: those that every table of this layout fills.
        optional: further roles that a user may give to a column.
        multi_column: roles that several columns may fill together, each with a value of its own.
        joined: roles of texts that several columns may make together, as a title and what stands
            below it. A text in which places are counted is none of these.
        lists: roles whose cells may be lists.
        learned: the role of what a model learns to predict; prediction needs no such column.
        ignored: answers that stand for none without being named by the user.
        spellings: names of columns by role, plain (`spellings.plain`), the likeliest first; roles
            of `spellings.NAMES` need none.
        rank: layouts are tried in rising order, the most particular first.
        has_label_forms: whether the labels may be classes, several classes or numbers, which their
            cells decide.
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
        """Give columns the roles that they are found for; roles without one are left out."""

    def complete(self, table: Table, columns: Columns) -> Columns:
        """`columns` with optional columns that only a look at all rows can confirm."""
        return columns

    @abstractmethod
    def reason(self, columns: Columns) -> str:
        """The end of a sentence: why the table has this layout. Not called where
        `has_label_forms`."""

    # ------------------------------------------------------------------------ rows
    def prepare(
        self, table: Table, task: Task, classes: Sequence[str]
    ) -> tuple[Table, Iterator[Finding]]:
        """`table` before its rows are read, and findings for the user; `classes` are those of a
        model, where there is one.

        Raises:
            DataError: the table as a whole cannot be right.
        """
        return table, iter(())

    def repair(self, table: Table, task: Task) -> tuple[Table, int] | None:
        """`table` with faults of annotation repaired (`--read repair_tags`), and how many cells
        changed; None where nothing can be repaired."""
        return None

    @abstractmethod
    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> Example:
        """An example of a row; `vocabulary` are the classes, where the task has classes.

        Raises:
            DataError: the row is bad; the error has its file, line and remedy.
        """

    @property
    def answer_role(self) -> str:
        """The role of the answers: `learned`, or the last where no role is that."""
        return self.learned if self.learned in self.roles else self.roles[-1]

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        """The values in `row` that make its answer, as they stand there."""
        values = [value_of(row, name) for name in columns.roles.get(self.answer_role, ())]
        return values[0] if len(values) == 1 and type(values[0]) is list and values[0] else values

    def without(self, row: Row, columns: Columns, no_label: Collection[str]) -> Row | None:
        """`row` without the answers that `no_label` stands for; None where no answer is left."""
        unknown = any(is_no_label(no_label, value) for value in self.answers(row, columns))
        return None if unknown else row

    def meanings(self, labels: Collection[Any]) -> Callable[[str], set[str]]:
        """What else a label may mean than its text does; two that mean the same are refused."""
        return lambda label: set()

    def label_cells(self, row: Row, task: Task) -> Iterator[Any] | None:
        """The labels in a row, where they are not those of a column `label`; None: they are."""
        return None

    def require_sound(self, examples: Sequence[Any]) -> None:
        """Refuse the examples of a part that cannot be right together.

        Raises:
            DataError: they cannot.
        """
        return

    def findings(self, split: str, dataset: Dataset) -> Iterator[Finding]:
        """Each thing of this layout in a part that should not pass in silence."""
        return iter(())

    def label_findings(self, names: Sequence[str]) -> Iterator[Finding]:
        """Each thing in the names of the classes that the user should know."""
        return iter(())


@dataclass(frozen=True)
class Columns:
    """The columns of a layout, by role, and why each was taken.

    Attributes:
        layout: the set of roles.
        roles: role -> names of columns; several for `choices`, for labels of one column each, and
            for texts of several columns.
        why: role -> reason.
        described: every column of the table.
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
        used = {name.split(".")[0] for names in self.roles.values() for name in names}
        if "answers" in self.roles:
            used.add("answer_start")  # where each of them begins
        return [name for name in self.described if name not in used and "." not in name]

    def lines(self) -> list[str]:
        """One line for each role, and one for what is not used."""
        in_cells = {name for name, column in self.described.items() if column.in_cells}
        sentences = [
            f"using column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} as {role} "
            f"({self.why[role]}{'; its cells hold lists' if in_cells & {*names} else ''})"
            for role, names in self.roles.items()
        ]
        if self.left_out:
            left_out = self.left_out
            more = f" and {len(left_out) - LISTED:,} more" if len(left_out) > LISTED else ""
            sentences.append(f"not used: {', '.join(map(repr, left_out[:LISTED]))}{more}")
        return sentences


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The data of one task.

    Attributes:
        name: what `--task` takes.
        layout: which columns a row has, and how it is read.
        label: what is to be predicted of a row.
        metrics: the names of its metrics, the usual one first.
        selectable: further metrics by which an epoch can be selected.
        inferred: whether a table of this layout and label is taken for this task without being
            asked; of several tasks of one layout and label one may be inferred.
    """

    name: str
    layout: Layout
    label: Label = ""
    metrics: tuple[str, ...]
    selectable: tuple[str, ...] = ()
    inferred: bool = True

    @property
    def has_classes(self) -> bool:
        return self.label in ("classes", "several")

    @property
    def choosable(self) -> tuple[str, ...]:
        """The metrics by which an epoch can be selected: the higher, the better."""
        return (*(name for name in self.metrics if "error" not in name), *self.selectable)


@dataclass(frozen=True)
class Task:
    """What is to be learned.

    Attributes:
        shape: what the task type declares of its data.
        why: one sentence.
        columns: which column is what.
        separator: what stands between several labels in one cell; None for lists and columns.
        flags: how many flags each cell has, one for each class; 0 where labels are names.
        named: the classes that mappings of flags name; empty where there are none.
        marks: columns of one label each in which an empty cell means no; signs: in which -1 does.
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
        """What `--task` takes."""
        return self.shape.name

    def lines(self) -> list[str]:
        """What was found, for the user: the task with its reason, then the columns."""
        return [f"task: {self.name}, because {self.why}", *self.columns.lines()]


@dataclass(frozen=True)
class Dataset:
    """The parts of a table as examples of its task.

    Attributes:
        task: what is to be learned.
        parts: by name, as in the table.
        labels: the classes; None where there are none (numbers, answers, texts).
        dropped: (place, reason) of rows left out, by the policy `skip`.
        counts: what the reading of the files met, by part.
        groups: by part, the group of each example; a group stays in one part; empty without groups.
        drawn: the parts that did not come as files.
        together: the role of a text by which rows stayed together when these were drawn.
        repaired, unlabelled: how many tags were changed, and rows left out that have no label.
        folded: how many labels were joined with another spelling.
        rejects: where the rows left out are listed, if they are.
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
