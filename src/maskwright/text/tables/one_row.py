"""One row as an example: every value checked, and refused with its file, line and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from maskwright.text.tables import flags, required_fields
from maskwright.text.tables.column_contents import is_empty, number, value_of
from maskwright.text.tables.examples import Example, Target
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Task
from maskwright.text.tables.rows import Row


def reader(task: Task, vocabulary: LabelVocabulary | None) -> Callable[[Row], Example]:
    """What makes an example of a row; it raises DataError where a row is bad."""

    def read(row: Row) -> Example:
        required_fields.require(row, task.columns)
        return task.columns.layout.read(row, task, vocabulary)

    return read


def target_of(row: Row, task: Task, vocabulary: LabelVocabulary | None) -> Target:
    """The number of the class that the column `label` names, the numbers of several, or a number.

    Raises:
        DataError: an empty or unknown label.
    """
    name = task.columns["label"]
    if vocabulary is None:
        return number(value_of(row, name), row, name)
    if task.shape.label == "several":
        return tuple(sorted({vocabulary.index(cell, row) for cell in label_cells(row, task)}))
    return vocabulary.index(value_of(row, name), row)


def label_cells(row: Row, task: Task) -> Iterator[Any]:
    """The labels of a row: one, several, or one for each token.

    Raises:
        DataError: a column of them is missing, or holds no labels.
    """
    layout_labels = task.columns.layout.label_cells(row, task)
    if layout_labels is not None:
        yield from layout_labels
        return
    multi_label = task.shape.label == "several"
    names = task.columns.roles["label"]
    for name in names:
        required_fields.require_field(row, "label", name, "[]" if multi_label else "")
    if len(names) > 1:  # a column of flags for each label
        for name in names:
            marks, signs = name in task.marks, name in task.signs
            if flags.in_column(value_of(row, name), row, name, marks=marks, signs=signs):
                yield name
        return
    value = value_of(row, names[0])
    if task.named:
        yield from flags.named(value, row, names[0], task.named)
        return
    if task.flags:
        listed = flags.pieces(value, task.separator)
        yield from flags.places(listed, row, names[0], task.flags)
        return
    if multi_label:
        value = flags.pieces(value, task.separator)
    if multi_label and type(value) is list:
        yield from value
    elif not is_empty(value):
        yield value
