"""Layouts of rows: roles, the search for their columns, and the reading of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from maskwright.base.findings import Finding
    from maskwright.text.tables.columns import Columns
    from maskwright.text.tables.examples import Example, Examples
    from maskwright.text.tables.files import Table
    from maskwright.text.tables.infer import Task
    from maskwright.text.tables.labels import Vocabulary
    from maskwright.text.tables.role_search import Search
    from maskwright.text.tables.rows import Row


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
    def find(self, search: Search) -> None:
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
    def read(self, row: Row, task: Task, known: Vocabulary | None) -> Example:
        """An example of a row; `known` are the classes, where the task has classes.

        Raises:
            DataError: the row is bad; the error has its file, line and remedy.
        """

    @property
    def answer_role(self) -> str:
        """The role of the answers: `learned`, or the last where no role is that."""
        return self.learned if self.learned in self.roles else self.roles[-1]

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        """The values in `row` that make its answer, as they stand there."""
        from maskwright.text.tables.column_contents import value_of

        values = [value_of(row, name) for name in columns.roles.get(self.answer_role, ())]
        return values[0] if len(values) == 1 and type(values[0]) is list and values[0] else values

    def without(self, row: Row, columns: Columns, no_label: Collection[str]) -> Row | None:
        """`row` without the answers that `no_label` stands for; None where no answer is left."""
        from maskwright.text.tables.column_contents import is_no_label

        unknown = any(is_no_label(no_label, value) for value in self.answers(row, columns))
        return None if unknown else row

    def meanings(self, labels: Collection[Any]) -> Callable[[str], set[str]]:
        """What else a label may mean than its text does; two that mean the same are refused."""
        return lambda label: set()

    def label_cells(self, row: Row, task: Task) -> Iterator[Any] | None:
        """The labels in a row, where they are not those of a column `label`; None: they are."""
        return None

    def require_sound(self, made: Sequence[Any]) -> None:
        """Refuse the examples of a part that cannot be right together.

        Raises:
            DataError: they cannot.
        """
        return

    def findings(self, part: str, examples: Examples) -> Iterator[Finding]:
        """Each thing of this layout in a part that should not pass in silence."""
        return iter(())

    def label_findings(self, names: Sequence[str]) -> Iterator[Finding]:
        """Each thing in the names of the classes that the user should know."""
        return iter(())
