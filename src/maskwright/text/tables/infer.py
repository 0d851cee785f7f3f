"""Infer the task of a table from the roles of its columns and the values of its labels.

    columns -> layout, with the form of the labels -> the task type that declares both (`shapes.py`)

Integers with few distinct values are classes; fractions are regression targets; lists, or names
with a separator between them, are multi-label. A task given by the user overrides the inference.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.tables.cell_values import (
    BY_BLANK,
    BY_LETTER,
    SEPARATORS,
    as_integer,
    is_empty,
    is_no_label,
    list_of,
    refuse_list_of_numpy,
    spells_number,
)
from maskwright.text.tables.columns import (
    LISTS,
    MOSTLY,
    SCORES,
    Column,
    are_spaced_flags,
    columns_of_marks,
    flag_names,
    flags_in,
)
from maskwright.text.tables.layout import Columns, Label, Shape, Task
from maskwright.text.tables.roles import find_columns
from maskwright.text.tables.rows import Row, Table, cell_error, plain, value_of
from maskwright.text.tables.shapes import shape_for, shape_of

# Up to this many distinct integers are classes; in a column named like a score, up to FEW_SCORES.
FEW = 20
FEW_SCORES = 10
# In pairs, integers written with a decimal point are ratings beyond this many distinct values.
FEW_OF_PAIRS = 3
# Numbers 0 … n-1 without gaps are classes if each has at least this many rows on average.
OFTEN = 5
# The least share of cells that contain a separator.
MIN_SEPARATED = 0.1


def infer(
    table: Table,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    task: str | None = None,
    no_label: str | None = None,
) -> Task:
    """Infer the task of a table.

    Args:
        table: the rows; cells of a csv file that spell lists are parsed in place.
        columns: role -> column, for roles that must not be searched for.
        task: the name of a task given by the user; None to infer it.
        no_label: the value that stands for an unknown label, and is not a class.

    Raises:
        UsageError: an unknown task, role or column.
        DataError: no task fits, or the given task does not.
    """
    requested = None if task is None else shape_of(task)
    allowed_layouts = None if requested is None else (requested.layout,)
    selected = find_columns(table, columns, allowed_layouts)
    _refuse_unlisted(table, selected)
    if no_label is not None and len(names := selected.roles.get("label", ())) == 1:
        table = _without_unknown(table, names[0], no_label)
        selected = find_columns(table, columns, allowed_layouts)
    if not selected.layout.has_label_forms:
        shape = requested or shape_for(selected.layout, "")
        if shape is None:
            raise _no_task_error(table, selected, selected.layout.reason(selected))
        return Task(shape, selected.layout.reason(selected), selected)
    if requested is None:
        _refuse_unclear(table.first, selected)
    form, reason, separator = label_form(table.first, selected)
    if form == "number" and _are_named(table, selected):
        form, reason = "classes", f"the numbers in {selected['label']!r} have names"
    if requested is not None and (form != requested.label or not requested.inferred):
        _check_possible(table, selected, requested, form)
        reason, separator = f"it was given (otherwise {reason})", None
        if requested.label == "several":
            separator = _find_separator(table.first, selected["label"], 0.0) or SEPARATORS[0]
            if _are_digit_flags(_label_values(table.first, selected["label"])):
                separator = BY_LETTER
        form = requested.label
    shape = requested or shape_for(selected.layout, form)
    if shape is None:
        raise _no_task_error(table, selected, reason)
    inferred = Task(shape, reason, selected, separator)
    return _with_flags(inferred, table.first) if form == "several" else inferred


def _no_task_error(table: Table, columns: Columns, why: str) -> DataError:
    """Return the error for pairs with several labels each, or a layout without inferred task."""
    if "second" in columns.roles:
        return DataError(
            "no task learns several labels for a pair",
            where=f"{table.first[0].file}, column {columns['label']!r}",
            found=why,
            wanted="one label for each pair",
            do="keep one label, or join the two texts into one column",
        )
    return DataError(
        "no task is inferred from such a table",
        where=table.first[0].file,
        found=why,
        do="name the task (--task)",
    )


def _are_named(table: Table, columns: Columns) -> bool:
    """Whether every integer in the label column has a class name, from a file or the data."""
    names = table.names_of(columns["label"])
    cells = (value_of(row, columns["label"]) for row in table.first)
    return bool(names) and {as_integer(v) for v in cells if not is_empty(v)} <= names.keys()


def _with_flags(task: Task, rows: Sequence[Row]) -> Task:
    """Return the task with its settings for reading flags, if its labels are flags."""
    names, column = task.columns.roles["label"], task.columns.column("label")
    if len(names) > 1:
        mark_columns = columns_of_marks([task.columns.described[name] for name in names])
        signs = tuple(name for name in mark_columns if task.columns.described[name].kind == "whole")
        other_marks = set(mark_columns) - set(signs)
        empty = {name for name in names if task.columns.described[name].kind == "empty"}
        return replace(task, signs=signs, marks=tuple(other_marks | empty) if other_marks else ())
    if column.kind == "flags":
        return replace(task, named=flag_names(rows, column.name))
    if not (size := flags_in(rows, column.name, task.separator)):
        return task
    return replace(
        task, why=f"{column.name!r} holds {size} flags in each row, one for each class", flags=size
    )


def label_form(rows: Sequence[Row], columns: Columns) -> tuple[Label, str, str | None]:
    """Return (`classes`, `number` or `several`; the reason; the separator of labels in a cell)."""
    names = columns.roles["label"]
    if len(names) > 1:
        return "several", f"{len(names)} columns hold flags, one for each label", None
    column = columns.column("label")
    name = repr(column.name)
    if column.kind in LISTS:
        return "several", f"{name} holds a list of labels in each row", None
    if column.kind == "flags":
        return "several", f"{name} maps each class to 0 or 1", None
    if "label_name" in columns.roles:
        reason = f"{name} holds {column.distinct} values, which {columns['label_name']!r} names"
        return "classes", reason, None
    if column.kind == "boolean":
        return "classes", f"{name} holds true or false", None
    if column.kind == "whole":
        form, reason = _integer_form(rows, column)
        return form, reason, None
    if column.kind == "number":
        most_classes = FEW_SCORES if "text" in columns.roles else FEW_OF_PAIRS
        if column.integral and column.distinct <= most_classes and plain(column.name) not in SCORES:
            numbers = f"{column.distinct} different whole numbers, though written with a point"
            return "classes", f"{name} holds {numbers}", None
        notation = "written with a point" if column.integral else "with fractions"
        return "number", f"{name} holds numbers {notation}", None
    if are_spaced_flags(rows, column.name):
        return "several", f"{name} holds flags with blanks between", BY_BLANK
    separator = _find_separator(rows, column.name)
    if separator is not None:
        return "several", f"{name} holds names with {separator!r} between them", separator
    return "classes", f"{name} holds {column.distinct:,} different names", None


def _integer_form(rows: Sequence[Row], column: Column) -> tuple[Label, str]:
    """Return the form of labels that are integers (`classes` or `number`) and the reason."""
    name, distinct = repr(column.name), column.distinct
    most_classes = FEW_SCORES if plain(column.name) in SCORES else FEW
    if distinct <= most_classes:
        return "classes", f"{name} holds only {distinct} different whole numbers"
    cells = (as_integer(value_of(row, column.name)) for row in rows)
    numbers = {number for number in cells if number is not None}
    low, high = min(numbers), max(numbers)
    is_contiguous = low in (0, 1) and high - low + 1 == len(numbers)
    if is_contiguous and column.rows >= OFTEN * distinct and plain(column.name) not in SCORES:
        return "classes", (
            f"{name} holds the whole numbers {low} to {high} without gaps, "
            f"{column.rows // distinct} rows of each"
        )
    return "number", f"{name} holds {distinct:,} different whole numbers"


# ------------------------------------------------------------------------------ unclear labels
# Cells that can be read in two ways -> the pattern of all of them, and of what at least one has.
COMMAS = re.compile(r"\s*[-+]?(\d+(,\d+)?|\d{1,3}(,\d{3})*)\s*"), ","
UNIT = r"[%‰°$€£¥₹]"
UNITS = re.compile(rf"\s*([-+]?{UNIT}\s*)?[-+]?\d+([.,]\d+)*(\s*{UNIT})?\s*"), UNIT
DIGIT_FLAGS = re.compile(r"\s*[01]{2,}\s*"), r"^\s*0"
BRACKETS = re.compile(r"\s*(\w*(\(\s*)?[\[({].*[,|;].*[\])}]|\[[^\]]+\])\s*", re.DOTALL)
# Fewer rows do not tell whether a fraction among whole numbers is a mistake.
FEW_ROWS = 20
# What labels may be, in words for the user.
FORMS: dict[str, Label] = {
    "names": "classes",
    "several labels or flags in each cell": "several",
    "numbers": "number",
}
# (row, label) of each row that has a label.
Cells = Sequence[tuple[Row, Any]]


def _refuse_unlisted(table: Table, columns: Columns) -> None:
    """Raise DataError if only some cells of the label column spell lists."""
    names = columns.roles.get("label", ()) if columns.layout.has_label_forms else ()
    if len(names) != 1 or columns.column("label").in_cells:
        return
    for row in table.rows:
        refuse_list_of_numpy(row, names[0])
        cell = row.values.get(names[0])
        if is_empty(cell) or type(cell) is not str or cell.strip()[0] != "[":
            continue
        if row.in_table and list_of(cell) is not None:
            raise cell_error(
                "some labels are lists, and others are not",
                row,
                names[0],
                "a list in every row, or in none",
                'write each as a list, such as ["a"]; or names with | between them',
            )


def _label_values(rows: Sequence[Row], name: str) -> list[tuple[Row, Any]]:
    return [(row, v) for row in rows if not is_empty(v := value_of(row, name))]


def _refuse_unclear(rows: Sequence[Row], columns: Columns) -> None:
    """Refuse a column of labels that can be read in two ways."""
    if len(columns.roles["label"]) > 1:
        return
    column = columns.column("label")
    cells = _label_values(rows, column.name)
    readings, example = _unclear_form(column, cells, is_pair="text" not in columns.roles)
    if example is None:
        return
    value = example[1]
    text = str(value).strip()
    tasks = [
        f"{form} --task {shape.name}"
        for form, label in FORMS.items()
        if (shape := shape_for(columns.layout, label)) is not None
    ]
    raise cell_error(
        f"unclear labels: {readings}",
        example[0],
        column.name,
        "labels of one form: names, whole numbers, numbers with a decimal point, lists such as "
        '["a", "b"], or one flag (0 or 1) for each class',
        f"write them so; or say what they are: {'; '.join(tasks)}; where this one means that there "
        f"is none --read no_label={shlex.quote(text)}",
    )


def _unclear_form(
    column: Column, cells: Cells, is_pair: bool
) -> tuple[str, tuple[Row, Any] | None]:
    """Return what the labels of a column may be and an example; None if they are clear."""
    numbers = [(row, v) for row, v in cells if spells_number(v)]
    integers = {number for _, v in cells if (number := as_integer(v)) is not None}
    fractions = [(row, v) for row, v in numbers if as_integer(v) is None]
    if example := _all_of(COMMAS, cells):
        return "numbers with a comma, or two numbers", example
    if len({str(v) for _, v in cells}) > FEW and (example := _all_of(UNITS, cells)):
        return "numbers with a unit, or names", example
    if _are_digit_flags(cells):
        return "flags, one for each digit, or names", cells[0]
    if column.kind == "numbers":
        of_lists = (cell for cell in cells if type(cell[1]) is list)
        fraction = next((cell for cell in of_lists if None in map(as_integer, cell[1])), None)
        return "lists of fractions are neither classes nor flags", fraction
    if column.kind == "wholes" and not flags_in([row for row, _ in cells], column.name):
        lists = [cell for cell in cells if type(cell[1]) is list and cell[1]]
        repeated = [cell for cell in lists if len(set(cell[1])) < len(cell[1])]
        most = 2 * len(repeated) > len(lists)
        return "lists of numbers that repeat within a row are no set", repeated[0] if most else None
    if column.kind == "number" and fractions and not is_pair and plain(column.name) not in SCORES:
        are_few = len(fractions) == 1 or len(fractions) <= (1 - MOSTLY) * len(cells)
        few_classes = len(integers) <= FEW_SCORES and len(cells) >= FEW_ROWS
        few = fractions[0] if are_few and few_classes else None
        return "classes, or numbers, as a few fractions are among whole numbers", few
    if column.kind == "text":
        brackets = [cell for cell in cells if BRACKETS.fullmatch(str(cell[1]))]
        if 2 * len(brackets) > len(cells):
            return "lists without quotes, or names", brackets[0]
        distinct = {str(v).strip() for _, v in numbers}
        if 2 * len(numbers) >= len(cells) and (len(distinct) > FEW or fractions):
            return "numbers, or names", next(cell for cell in cells if not spells_number(cell[1]))
    return "", None


def _all_of(form: tuple[re.Pattern[str], str], cells: Cells) -> tuple[Row, Any] | None:
    """Return the first cell that has what the form requires of one, if all cells fit the form."""
    pattern, required = form
    example = next((cell for cell in cells if re.search(required, str(cell[1]))), None)
    return example if example and all(pattern.fullmatch(str(value)) for _, value in cells) else None


def _are_digit_flags(cells: Cells) -> bool:
    """Whether all cells are texts of the digits 0 and 1 of equal length, which may be flags."""
    lengths = {len(str(value).strip()) for _, value in cells}
    return len(lengths) == 1 and _all_of(DIGIT_FLAGS, cells) is not None


# ------------------------------------------------------------------------------ given tasks
def _without_unknown(table: Table, name: str, no_label: str) -> Table:
    """Return the table without the training rows labelled `no_label`, unless all of them are."""
    rows = [row for row in table.first if not is_no_label([no_label], value_of(row, name))]
    first_split = next(
        split for split, split_rows in table.parts.items() if split_rows is table.first
    )
    return replace(table, parts={**table.parts, first_split: rows}) if rows else table


def _find_separator(rows: Sequence[Row], name: str, least: float = MIN_SEPARATED) -> str | None:
    """Return the separator between several names in a cell, or None: at least the share `least` of
    the cells has it, and pieces recur in other cells. `least` is 0 if multi-label was requested."""
    cells = [v for row in rows if type(v := value_of(row, name)) is str and not is_empty(v)]
    for separator in SEPARATORS:
        split_cells = [[p.strip() for p in cell.split(separator)] for cell in cells]
        cells_with_separator = sum(len(pieces) > 1 for pieces in split_cells)
        piece_counts = Counter(
            p for split_cell in {tuple(pieces) for pieces in split_cells} for p in split_cell if p
        )
        # 'Business, Finance' and 'Sports, Games' are two names: no piece of them comes back.
        recurring = max(piece_counts.values(), default=0) > 1
        recurring &= least == 0 or len(piece_counts) <= len(set(cells))
        if cells_with_separator and cells_with_separator >= least * len(cells) and recurring:
            return separator
    return None


def _check_possible(table: Table, columns: Columns, requested: Shape, form: Label) -> None:
    """Raise DataError if labels of this `form` cannot be read as those of the requested task."""
    column, names = columns.column("label"), columns.roles["label"]
    if len(names) > 1 and requested.label != "several":
        raise DataError(
            f"{requested.name} has one column of labels",
            where=table.first[0].file,
            found=", ".join(map(repr, names)),
            wanted="one column",
            do=f"name one (--column label=…){_or_multi_label(columns, ', of columns of 0 and 1')}",
        )
    fitting_shape = shape_for(columns.layout, form)
    if requested.label == "number" and column.kind not in ("whole", "number"):
        raise DataError(
            f"{requested.name} needs numbers as labels",
            where=f"{table.first[0].file}, column {column.name!r}",
            found=f"{column.distinct:,} different values of the type {column.kind}",
            wanted="numbers",
            do=(f"choose the task {fitting_shape.name}, or " if fitting_shape else "choose ")
            + "the column with the numbers (--column label=…), or write them as 2.5",
        )
    if requested.label == "classes" and column.kind in (*LISTS, "flags"):
        raise DataError(
            f"{requested.name} needs one label in each row",
            where=f"{table.first[0].file}, column {column.name!r}",
            found="lists",
            wanted="one name or whole number",
            do=f"write one label in each row{_or_multi_label(columns)}",
        )


def _or_multi_label(columns: Columns, which: str = "") -> str:
    """Return the advice to choose the multi-label task, or "" if the layout has none."""
    multi_label = shape_for(columns.layout, "several")
    return "" if multi_label is None else f", or choose the task {multi_label.name}{which}"
