"""Convert one row to an example, checking every value; errors name file, line and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.tables import flags
from maskwright.text.tables.column_contents import has_column, is_empty, number_of, value_of
from maskwright.text.tables.examples import Example, Target
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Task
from maskwright.text.tables.rows import Row
from maskwright.text.tables.shapes import COMMON, may_be_joined

ALIKE = 0.75  # least difflib similarity of misspelt names: `body` and `bodi`, `answer`, `answers`
# Roles whose fields are checked when they are read: there may be fewer choices, and unanswerable
# questions have no answers.
ELSEWHERE = (*COMMON, "choices", "answers")
# A field may be a misspelling of another if it occurs in less than this share of its rows.
RARE = 0.25


def row_reader(task: Task, vocabulary: LabelVocabulary | None) -> Callable[[Row], Example]:
    """Return a function that converts a row to an example and raises DataError for a bad row."""

    def read(row: Row) -> Example:
        require_fields(row, task.columns)
        return task.columns.layout.read(row, task, vocabulary)

    return read


def target_of(row: Row, task: Task, vocabulary: LabelVocabulary | None) -> Target:
    """Return the target in the column `label`: a class index, a sorted tuple of them, or a float.

    Raises:
        DataError: an empty or unknown label.
    """
    name = task.columns["label"]
    if vocabulary is None:
        return number_of(value_of(row, name), row, name)
    if task.shape.label == "several":
        return tuple(sorted({vocabulary.index(cell, row) for cell in label_cells(row, task)}))
    return vocabulary.index(value_of(row, name), row)


def label_cells(row: Row, task: Task) -> Iterator[Any]:
    """Yield the labels of a row: one, several, or one for each token.

    Raises:
        DataError: a label column is missing, or does not hold labels.
    """
    layout_labels = task.columns.layout.label_cells(row, task)
    if layout_labels is not None:
        yield from layout_labels
        return
    multi_label = task.shape.label == "several"
    names = task.columns.roles["label"]
    for name in names:
        require_field(row, "label", name, "[]" if multi_label else "")
    if len(names) > 1:  # a column of flags for each label
        for name in names:
            marks, signs = name in task.marks, name in task.signs
            if flags.flag_in_column(value_of(row, name), row, name, marks=marks, signs=signs):
                yield name
        return
    value = value_of(row, names[0])
    if task.named:
        yield from flags.flagged_names(value, row, names[0], task.named)
        return
    if task.flags:
        cell_flags = flags.split_cell(value, task.separator)
        yield from flags.set_flags(cell_flags, row, names[0], task.flags)
        return
    if multi_label:
        value = flags.split_cell(value, task.separator)
    if multi_label and type(value) is list:
        yield from value
    elif not is_empty(value):
        yield value


# ------------------------------------------------------------------------------ missing fields
def require_fields(row: Row, columns: Columns) -> None:
    """Check that a row has the fields of `columns`. If several columns are joined to one text, some
    may be missing, unless the row has a field with a similar name.

    Raises:
        DataError: a field is missing; the error suggests similar names.
    """
    for role, names in columns.roles.items():
        if role in ELSEWHERE or role in columns.layout.optional:
            continue
        if may_be_joined(role) and len(names) > 1:
            _require_any(row, role, names, columns)
        else:
            for name in names:
                require_field(row, role, name)


def require_field(row: Row, role: str, name: str, empty: str = "") -> None:
    """Check that a row has the field `name` with the given role; null is a value.

    Args:
        empty: how to write an empty value, for the message; "" if there is no such value.

    Raises:
        DataError: the field is missing.
    """
    if not has_column(name, row.values):
        raise _missing_error(row, role, name, empty)


def _require_any(row: Row, role: str, names: Sequence[str], columns: Columns) -> None:
    missing = [name for name in names if not has_column(name, row.values)]
    if len(missing) == len(names):
        raise _missing_error(row, role, names[0])
    used_columns = {name for column_names in columns.roles.values() for name in column_names}
    row_counts = {name: column.rows for name, column in columns.described.items()}
    for name in missing:
        # An unused field with a similar name is a misspelling only if it is rare.
        unused_columns = [
            candidate
            for candidate in row.values
            if candidate not in used_columns
            and row_counts.get(candidate, 0) < RARE * row_counts.get(name, 0)
        ]
        if get_close_matches(name, unused_columns, n=1, cutoff=ALIKE):
            raise _missing_error(row, role, name)


def _missing_error(row: Row, role: str, name: str, empty: str = "") -> DataError:
    similar = get_close_matches(name, row.values, n=1, cutoff=ALIKE)
    fixes = [f"rename the field {similar[0]!r}"] if similar else []
    fixes += [f"write {empty}, where there is none"] if empty else [] if similar else ["write it"]
    return DataError(
        "a field is missing",
        where=row.where,
        found=f"the fields {', '.join(row.values) or '(none)'}",
        wanted=f"{name!r}, which is used as {role}",
        do=f"{', or '.join(fixes)}; or take the row out (--read on_bad=skip drops and counts it)",
    )
