"""Texts with a label: the layouts of their rows, and the classes of a task.

The classes are learned from the training rows, named by a file, or matched with those of a model.

The layouts have a text, or two, and the label: a class, several classes, or a number. Several task
types share them; a layout of a single task type is in its file (`learn/tasks/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables import labels
from maskwright.text.tables.cell_values import (
    as_integer,
    is_empty,
    is_flag_set,
    label_of,
    number_of,
    require_field,
    set_flags,
    split_cell,
)
from maskwright.text.tables.columns import PAIRS, TEXTLIKE, ColumnSearch
from maskwright.text.tables.labels import LabelVocabulary, fold_onto
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.rows import (
    Names,
    PairExample,
    Row,
    Table,
    Target,
    TextExample,
    usable,
    value_of,
)

# ------------------------------------------------------------------------------ classes
LISTED = 8
# Kinds of columns whose labels are integers.
NUMBERS = ("whole", "number", "wholes", "numbers", "booleans")


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
            if is_flag_set(value_of(row, name), row, name, marks=marks, signs=signs):
                yield name
        return
    value = value_of(row, names[0])
    if task.named:
        yield from set_flags(value, row, names[0], task.named)
    elif task.flags:
        yield from set_flags(split_cell(value, task.separator), row, names[0], task.flags)
    elif multi_label and type(split := split_cell(value, task.separator)) is list:
        yield from split
    elif not is_empty(value):
        yield value


def readable_labels(row: Row, task: Task) -> list[Any]:
    """Return the labels of a row of valid types; other values are refused when the row is read."""
    try:
        return [cell for cell in label_cells(row, task) if type(cell) in (int, float, str, bool)]
    except DataError:
        return []


def learn_classes(table: Table, task: Task, fold: bool, reading: ReadingOptions) -> LabelVocabulary:
    """Learn the classes from the training rows, ignoring rows without a usable label."""
    columns, role = task.columns, task.columns.layout.learned
    name = columns[role]
    if len(columns.roles[role]) > 1:
        if table.names_file:
            table.note(f"{table.names_file} is not used: the columns name the classes")
        return LabelVocabulary(columns.roles[role], columns.roles[role], name)
    if task.named:
        return LabelVocabulary(task.named, task.named, name)
    numbers = columns.column(role).kind in NUMBERS
    names = _names_from_file(table, task, name)
    if task.flags:
        return _classes_of_flags(table, task.flags, name, names)

    def read(row: Row) -> list[tuple[Any, Row]]:
        cells = list(label_cells(row, task))
        for cell in cells:
            label_of(cell, row, name, numbers, words=bool(names))
        return [(cell, row) for cell in cells]

    cells_by_row, _ = usable(table.first, read, reading)
    labelled_cells = [cell for cells in cells_by_row for cell in cells]
    if not labelled_cells:
        raise DataError(
            "no row has a label",
            where=f"{table.first[0].file}, column {name!r}",
            found="empty cells only",
            wanted="labels",
            do="add labels, or name another column (--column label=…)",
        )
    return labels.learn(
        labelled_cells,
        name,
        names=names,
        name_column=columns["label_name"] if "label_name" in columns.roles else None,
        numbers=numbers,
        fold=fold,
        further_meanings=columns.layout.meanings([cell for cell, _ in labelled_cells]),
    )


def _classes_of_flags(table: Table, count: int, column: str, names: Names) -> LabelVocabulary:
    if names and len(names) != count:
        raise DataError(
            "not as many names as flags",
            where=table.names_file or f"{table.first[0].file}, column {column!r}",
            found=f"{len(names)} names: {', '.join(names.values())}"[:80],
            wanted=f"{count}, as each row of {column!r} has flags",
            do="name every class, in the order of the flags",
        )
    if not names:
        table.note(
            f"the classes of {column!r} are named by their places, 0 to {count - 1}; a labels.json "
            "beside the file may name them"
        )
    class_names = [names[n] for n in sorted(names)] if names else map(str, range(count))
    return LabelVocabulary(tuple(class_names), tuple(range(count)), column)


def _names_from_file(table: Table, task: Task, column: str) -> Names:
    """Return number -> class name for a column, from a file next to the data or their metadata, and
    record a finding. A file that the user did not name is ignored if its names do not fit."""
    names, file = table.names_of(column), table.names_file
    if not names and file:
        named_columns = ", ".join(map(repr, table.names))
        table.note(f"{file} is not used: it names the classes of {named_columns}")
    if not names or not file:
        return names
    labels_read = {cell for row in table.first for cell in readable_labels(row, task)}
    fits = all(as_integer(cell) in names or cell in names.values() for cell in labels_read)
    if table.loose and not (fits and len(names) == (task.flags or len(names))):
        table.note(f"{file} is not used: it names other classes than {column!r} has")
        return {}
    table.note(f"classes are named by {file}")
    return names


# ------------------------------------------------------------------------------ of a model
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
    column, class_names = task.columns[role], tuple(classes)
    if task.flags and task.flags != len(class_names):
        raise DataError(
            "not as many flags as the model has classes",
            where=f"{table.first[0].where}, column {column!r}",
            found=f"{task.flags} flags in each row",
            wanted=f"{len(class_names)}: {', '.join(class_names[:LISTED])}",
            do="write a flag for each class of the model, or the names of the classes",
        )
    row_by_label = {cell: row for row in table.rows for cell in readable_labels(row, task)}
    name_by_number = _names_in_data(table, task, column)
    by_number = _numbers_in(class_names) if assume else {}
    if by_number and name_by_number and set(class_names).isdisjoint(name_by_number.values()):
        # Both the data and the class names of the model, such as LABEL_0, have the numbers.
        renamed = {name: by_number[n] for n, name in name_by_number.items() if n in by_number}
        number_by_name = {name: number for number, name in by_number.items()}
        table.note(f"the model's classes are those of the same number: {_listed(renamed)}")
        class_numbers = tuple(number_by_name[name] for name in class_names)
        return LabelVocabulary(class_names, class_numbers, column, renamed, labels.MODEL)
    if not task.flags and task.columns.column(role).kind not in NUMBERS:
        folded = fold_onto(class_names, map(str, row_by_label)) if fold else {}
        return LabelVocabulary(class_names, class_names, column, folded, labels.MODEL)
    rows_of_labels = ((as_integer(cell), row) for cell, row in row_by_label.items())
    row_by_number = {number: row for number, row in rows_of_labels if number is not None}
    if values is not None and class_names == tuple(map(str, values)):
        name_by_number = {}  # the model learned the classes as numbers, so names do not matter
    from_training = not name_by_number and values is not None
    if not name_by_number and values is not None:
        name_by_number = dict(zip(values, class_names, strict=True))
    elif not name_by_number:
        numbers = by_number, row_by_number
        name_by_number = _assumed_names(table, column, class_names, *numbers, assume)
    unknown = [n for n in row_by_number if name_by_number.get(n) not in class_names]
    if unknown and not from_training:  # else it is out of range, refused when read
        raise DataError(
            "the labels are numbers without class names",
            where=f"{row_by_number[unknown[0]].where}, column {column!r}",
            found=unknown[0],
            wanted=f"one of {', '.join(map(repr, class_names[:LISTED]))}",
            do="write the names, add a column label_name, or say in a labels.json beside the file "
            'which number each name has, such as {"NAME": 0, …}',
        )
    value_by_name = {name: number for number, name in name_by_number.items()}
    class_values = tuple(value_by_name.get(name, name) for name in class_names)
    return LabelVocabulary(class_names, class_values, column, {}, labels.MODEL)


def _assumed_names(
    table: Table,
    column: str,
    class_names: tuple[str, ...],
    by_number: dict[int, str],
    numbers: Mapping[int, Row],
    assume: bool,
) -> dict[int, str]:
    """Return number -> class name for the `numbers` in a `column` that nothing in the data names:
    `by_number`, the numbers in the class names, if any; with `assume` the order of the classes
    (both add a finding); else each number is its own name."""
    if by_number:
        message = f"numbers in {column!r} are those in the names of the model's classes: "
        table.note(message + _listed(by_number))
        return by_number
    if assume and all(n in range(len(class_names)) for n in numbers):
        by_order = dict(enumerate(class_names))
        table.note(
            f"assumed: numbers in {column!r} count the model's classes in its order, "
            f"{_listed(by_order)}; nothing in the data says so. Where that is wrong, a "
            'labels.json beside the file says what they are: {"NAME": 0, …}'
        )
        return by_order
    return {number: str(number) for number in numbers}


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


def _names_in_data(table: Table, task: Task, column: str) -> dict[int, str]:
    """Return class names by number, from a names file or a column; empty without either."""
    if names := _names_from_file(table, task, column):
        return names
    if "label_name" not in task.columns.roles:
        return {}
    name_column = task.columns["label_name"]
    pairs = [(as_integer(value_of(row, column)), value_of(row, name_column)) for row in table.rows]
    return {number: str(name) for number, name in pairs if number is not None and name is not None}


# ------------------------------------------------------------------------------ layouts
# A column has the longest texts if all others have less than this share of its words.
ALIKE = 0.5


class TextLayout(Layout):
    """{"text": "…", "label": "good"}"""

    name = "text"
    roles = ("text", "label")
    multi_column = ("label",)
    joined = ("text",)
    lists = ("label",)
    rank = 50
    has_label_forms = True

    def find(self, search: ColumnSearch) -> None:
        # With these exact names the text column may even consist of numbers.
        exact = "text" in search.by_plain and not {"label", "labels"}.isdisjoint(search.by_plain)
        if exact and "text" not in search.roles:
            name = search.by_plain["text"]
            if name in {c.name for c in search.free() if c.kind in TEXTLIKE}:
                search.take("text", [name], "by its name")
        search.by_name(
            "text",
            lambda c: (
                c.kind == "text"
                and not (c.has_classes and c.words < 1.5)
                and not search.is_group(c)
            ),
        )
        if "text" not in search.roles and search.by_content:
            if not search.roles.get("label"):
                search.by_name("label", lambda c: c.scalar and not c.is_prose)
            texts = [c for c in search.free() if c.kind == "text" and c.words >= 2]
            texts = [c for c in texts if not search.is_group(c)] or texts
            texts.sort(key=lambda c: -c.words)
            # If a second column has similar length, the user has to decide.
            if texts and all(c.words < ALIKE * texts[0].words for c in texts[1:]):
                why = f"the longest texts, {texts[0].words:.0f} words on average"
                search.take("text", [texts[0].name], why)
        if "text" in search.roles:
            search.label()
            search.label_name()

    def reason(self, columns: Columns) -> str:
        return "each row has a text and a label"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> TextExample:
        (text,) = self.inputs(row, task.columns.roles)
        return TextExample(text, target_of(row, task, vocabulary), row.where)


class PairLayout(Layout):
    """{"first": "…", "second": "…", "label": "entailment"}"""

    name = "pair"
    roles = ("first", "second", "label")
    multi_column = ("label",)
    joined = ("first", "second")
    lists = ("label",)
    rank = 40
    has_label_forms = True

    def find(self, search: ColumnSearch) -> None:
        answer = search.by_plain.get("answer")  # of a yes/no question about a passage
        has_verdict = answer is not None and search.described[answer].has_classes
        about_context = has_verdict and "label" not in search.by_plain
        search.two(("first", "second"), [("question", "context")] * about_context + [*PAIRS])
        if "first" in search.roles and "second" in search.roles:
            search.label()
            is_free = answer in {column.name for column in search.free()}
            if has_verdict and is_free and "label" not in search.roles:
                search.take("label", [str(answer)], "by its name")
            search.label_name()

    def reason(self, columns: Columns) -> str:
        return "each row has two texts and a label"

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> PairExample:
        first_text, second_text = self.inputs(row, task.columns.roles)
        return PairExample(first_text, second_text, target_of(row, task, vocabulary), row.where)


TEXT, PAIR = TextLayout(), PairLayout()
