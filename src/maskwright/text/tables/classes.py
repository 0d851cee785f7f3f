"""The classes of a task, learned from the training rows or matched with those of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.text.corpus.ledger import Counts
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables import labels
from maskwright.text.tables.column_contents import label_of, value_of
from maskwright.text.tables.files import Table
from maskwright.text.tables.labels import LabelVocabulary, fold_onto
from maskwright.text.tables.layout import Task
from maskwright.text.tables.one_row import label_cells
from maskwright.text.tables.raw_text import as_integer
from maskwright.text.tables.rows import Row, usable

LISTED = 8
# Kinds of columns whose labels are integers.
NUMBERS = ("whole", "number", "wholes", "numbers", "booleans")


def match_model_classes(
    classes: Sequence[str],
    values: Sequence[int] | None,
    table: Table,
    task: Task,
    fold: bool,
    assume: bool = False,
) -> LabelVocabulary:
    """Match the labels of a table with the classes of a model: by name, or by numbers that the
    data, the class names (`LABEL_0`) or the training data of the model assign to classes.

    Args:
        values: the number of each class in the training data; None if labels were names there.
        assume: read numbers without names as indices of the classes, and record a finding.

    Raises:
        DataError: labels are numbers that no source assigns to classes.
    """
    role = task.columns.layout.learned
    column = task.columns[role]
    class_names = tuple(classes)
    if task.flags and task.flags != len(class_names):
        raise DataError(
            "not as many flags as the model has classes",
            where=f"{table.first[0].where}, column {column!r}",
            found=f"{task.flags} flags in each row",
            wanted=f"{len(class_names)}: {', '.join(class_names[:8])}",
            do="write a flag for each class of the model, or the names of the classes",
        )
    rows = [row for split_rows in table.parts.values() for row in split_rows]
    row_by_label = {cell: row for row in rows for cell in readable_labels(row, task)}
    name_by_number = _called(table, task, column, rows)
    by_number = _numbers_in(class_names) if assume else {}
    if by_number and name_by_number and set(class_names).isdisjoint(name_by_number.values()):
        # Both the data and the class names of the model, such as LABEL_0, have the numbers.
        renamed = {name: by_number[n] for n, name in name_by_number.items() if n in by_number}
        number_by_name = {name: number for number, name in by_number.items()}
        record_finding(
            table, f"the model's classes are those of the same number: {_listed(renamed)}"
        )
        return LabelVocabulary(
            class_names,
            tuple(number_by_name[name] for name in class_names),
            column,
            renamed,
            labels.MODEL,
        )
    if not task.flags and task.columns.column(role).kind not in NUMBERS:
        folded = fold_onto(class_names, map(str, row_by_label)) if fold else {}
        return LabelVocabulary(class_names, class_names, column, folded, labels.MODEL)
    numbers = {
        number: row
        for cell, row in row_by_label.items()
        if (number := as_integer(cell)) is not None
    }
    if values is not None and class_names == tuple(map(str, values)):
        name_by_number = {}  # the model learned the classes as numbers, so names do not matter
    has_training_numbers = not name_by_number and values is not None
    if not name_by_number and values is not None:
        name_by_number = dict(zip(values, class_names, strict=True))
    if not name_by_number and by_number:
        name_by_number = by_number
        record_finding(
            table,
            f"numbers in {column!r} are those in the names of the model's classes: "
            f"{_listed(name_by_number)}",
        )
    elif not name_by_number and assume and all(n in range(len(class_names)) for n in numbers):
        name_by_number = dict(enumerate(class_names))
        record_finding(
            table,
            f"assumed: numbers in {column!r} count the model's classes in its order, "
            f"{_listed(name_by_number)}; nothing in the data says so. Where that is wrong, a "
            'labels.json beside the file says what they are: {"NAME": 0, …}',
        )
    if not name_by_number:
        name_by_number = {number: str(number) for number in numbers}
    unknown_numbers = [n for n in numbers if name_by_number.get(n) not in class_names]
    if unknown_numbers and not has_training_numbers:  # else it is out of range, refused when read
        raise DataError(
            "the labels are numbers without class names",
            where=f"{numbers[unknown_numbers[0]].where}, column {column!r}",
            found=unknown_numbers[0],
            wanted=f"one of {', '.join(map(repr, class_names[:8]))}",
            do="write the names, add a column label_name, or say in a labels.json beside the file "
            'which number each name has, such as {"NAME": 0, …}',
        )
    value_by_name = {name: number for number, name in name_by_number.items()}
    return LabelVocabulary(
        class_names,
        tuple(value_by_name.get(name, name) for name in class_names),
        column,
        {},
        labels.MODEL,
    )


def _numbers_in(names: Sequence[str]) -> dict[int, str]:
    """Return number -> class name for names such as LABEL_0 and "1 star"; empty if a name has no
    number, several numbers, or the number of another class."""
    digits = [re.findall(r"\d+", name) for name in names]
    numbers = [int(runs[0]) for runs in digits if len(runs) == 1]
    one_each = len(numbers) == len(names) == len(set(numbers))
    return dict(zip(numbers, names, strict=True)) if one_each else {}


def _listed(name_by_key: Mapping[Any, str]) -> str:
    listed = [f"{key} = {name!r}" for key, name in list(name_by_key.items())[:LISTED]]
    return ", ".join(listed) + (", …" if len(name_by_key) > LISTED else "")


def _called(table: Table, task: Task, column: str, rows: Sequence[Row]) -> Mapping[int, str]:
    """Class names by number, from a names file or a column; empty without either."""
    names = _names_from_file(table, task, column)
    if names:
        return names
    if "label_name" not in task.columns.roles:
        return {}
    pairs = [
        (as_integer(value_of(row, column)), value_of(row, task.columns["label_name"]))
        for row in rows
    ]
    return {number: str(name) for number, name in pairs if number is not None and name is not None}


def _names_from_file(table: Table, task: Task, column: str) -> Mapping[int, str]:
    """Return number -> class name for a column, from a file next to the data or their metadata, and
    record a finding. A file that the user did not name is ignored if its names do not fit."""
    names = table.names_of(column)
    if not names or not table.names_file:
        if table.names_file:
            named_columns = ", ".join(map(repr, table.names))
            record_finding(
                table, f"{table.names_file} is not used: it names the classes of {named_columns}"
            )
        return names
    labels_read = {cell for row in table.first for cell in readable_labels(row, task)}
    fits = all(as_integer(cell) in names or cell in names.values() for cell in labels_read)
    fits = fits and len(names) == (task.flags or len(names))
    message = f"classes are named by {table.names_file}"
    if table.loose and not fits:
        message = f"{table.names_file} is not used: it names other classes than {column!r} has"
    record_finding(table, message)
    return {} if table.loose and not fits else names


def record_finding(table: Table, content: Finding | str) -> None:
    """Add a finding to the counts of the first part, once; a text is about names of classes."""
    finding = Finding("names-of-classes", content) if isinstance(content, str) else content
    notes = table.counts.setdefault(next(iter(table.parts)), Counts()).notes
    if finding not in notes:
        notes.append(finding)


def readable_labels(row: Row, task: Task) -> list[Any]:
    """Return the labels of a row of valid types; other values are refused when the row is read."""
    try:
        return [cell for cell in label_cells(row, task) if type(cell) in (int, float, str, bool)]
    except DataError:
        return []


def learn_classes(table: Table, task: Task, fold: bool, reading: ReadingOptions) -> LabelVocabulary:
    """Learn the classes from the training rows, ignoring rows without a usable label."""
    columns = task.columns
    role = task.columns.layout.learned
    name = columns[role]
    if len(columns.roles[role]) > 1:
        if table.names_file:
            record_finding(table, f"{table.names_file} is not used: the columns name the classes")
        return LabelVocabulary(columns.roles[role], columns.roles[role], name)
    if task.named:
        return LabelVocabulary(task.named, task.named, name)
    numbers = columns.column(role).kind in NUMBERS
    names = _names_from_file(table, task, name)
    if task.flags:
        if names and len(names) != task.flags:
            raise DataError(
                "not as many names as flags",
                where=table.names_file or f"{table.first[0].file}, column {name!r}",
                found=f"{len(names)} names: {', '.join(names.values())}"[:80],
                wanted=f"{task.flags}, as each row of {name!r} has flags",
                do="name every class, in the order of the flags",
            )
        flag_numbers = tuple(range(task.flags))
        class_names = (
            tuple(names[n] for n in sorted(names)) if names else tuple(map(str, flag_numbers))
        )
        if not names:
            record_finding(
                table,
                f"the classes of {name!r} are named by their places, 0 to "
                f"{task.flags - 1}; a labels.json beside the file may name them",
            )
        return LabelVocabulary(class_names, flag_numbers, name)

    def read(row: Row) -> list[tuple[Any, Row]]:
        cells = list(label_cells(row, task))
        for cell in cells:
            label_of(cell, row, name, numbers, words=bool(names))
        return [(cell, row) for cell in cells]

    cells_by_row, _ = usable(table.first, read, reading)
    if not any(cells_by_row):
        raise DataError(
            "no row has a label",
            where=f"{table.first[0].file}, column {name!r}",
            found="empty cells only",
            wanted="labels",
            do="add labels, or name another column (--column label=…)",
        )
    return labels.learn(
        [cell for cells in cells_by_row for cell in cells],
        name,
        names=names,
        name_column=columns["label_name"] if "label_name" in columns.roles else None,
        numbers=numbers,
        fold=fold,
        also=task.columns.layout.meanings([cell for cells in cells_by_row for cell, _ in cells]),
    )
