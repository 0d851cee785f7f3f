"""Infer the roles of the columns of a table, and the task from the values of its labels.

    columns -> layout, with the form of the labels -> the task type that declares both (`shapes.py`)

Columns get their roles by their names first, by their contents if names do not decide. The first
layout that fits the names wins, the most specific first; each defines how it is tried
(`Layout.find`). Every role can be given instead; `group`, whose rows stay together when parts are
sampled, is never guessed.

Integers with few distinct values are classes; fractions are regression targets; lists, or names
with a separator between them, are multi-label. A task given by the user overrides the inference.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from maskwright.base.errors import DataError, UsageError, near, unknown
from maskwright.base.terminal import counted
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
    ANSWERED,
    IDS,
    LISTS,
    MATCHES,
    MOSTLY,
    NAMES,
    PAIRS,
    QUESTION_CONTEXTS,
    QUESTIONS,
    RATINGS,
    SCORES,
    SEQUENCES,
    TEXTLIKE,
    Column,
    ColumnSearch,
    are_spaced_flags,
    columns_of_flags,
    columns_of_marks,
    describe,
    flag_names,
    flags_in,
    read_lists,
)
from maskwright.text.tables.layout import Columns, Label, Layout, Shape, Task
from maskwright.text.tables.rows import ALL, TRAIN, Row, Table, cell_error, plain, value_of
from maskwright.text.tables.shapes import (
    COMMON,
    as_names,
    layouts,
    may_be_list,
    option,
    roles,
    shape_for,
    shape_of,
    shapes,
)

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
    first_part = TRAIN if TRAIN in table.parts else ALL
    return replace(table, parts={**table.parts, first_part: rows}) if rows else table


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


# ------------------------------------------------------------------------------ roles of columns
def find_columns(
    table: Table,
    given: Mapping[str, str | Sequence[str]] | None = None,
    allowed_layouts: Iterable[Layout] | None = None,
) -> Columns:
    """Return the columns of the first layout that fits.

    Args:
        table: the rows; cells of a csv file that spell lists are parsed in place (`read_lists`).
        given: role -> column or columns; other roles are searched for.
        allowed_layouts: the layouts to try; None for all.

    Raises:
        UsageError: an unknown role or column, or no layout has all the roles given.
        DataError: no layout fits, or a part lacks a column that another has.
    """
    requested = as_names(given)
    list_columns = read_lists(table, _texts(table, requested))
    statistics = describe(table.first, list_columns)
    _check_given(requested, statistics)
    if "group" in requested and requested["group"][0] in requested.get("label", ()):
        raise _label_as_group_error(requested["group"][0])
    candidate_layouts = layouts() if allowed_layouts is None else tuple(allowed_layouts)
    optional = {*COMMON, *roles(lambda layout: layout.optional)}
    tried = [layout for layout in candidate_layouts if set(requested) <= {*layout.roles, *optional}]
    if not tried:
        fitting = [
            name
            for name, shape in shapes().items()
            if set(requested) <= {*shape.layout.roles, *optional}
        ]
        raise UsageError(
            "no task has all these columns",
            found=", ".join(requested),
            wanted="; ".join(
                f"{layout.name}: {', '.join(layout.roles)}" for layout in candidate_layouts
            ),
            do="name only columns of one task (--column)"
            + (f", or another task: --task {' or '.join(fitting)}" if fitting else ""),
        )

    def attempts() -> Iterator[tuple[Layout, ColumnSearch, Columns | None]]:
        for by_content, layout in itertools.product((False, True), tried):
            search = ColumnSearch(table.first, statistics, requested, by_content, len(tried) == 1)
            yield layout, search, _try_layout(layout, search)

    partial_matches: list[tuple[Layout, dict[str, tuple[str, ...]]]] = []
    for layout, search, columns in attempts():
        if columns is not None:
            columns = layout.complete(table, columns)
            _refuse_lost(table, columns, requested)
            if "label" not in requested:  # a column named by the user is a label column
                _refuse_row_as_header(table, columns)
            _check_parts(table, columns)
            return columns
        missing = [role for role in layout.roles if role not in search.roles]
        if len(missing) == 1 and len(search.roles) > 1 and not search.by_content:
            partial_matches.append((layout, search.roles))
    group = requested.pop("group", None)
    if group and any(c is not None and c.roles.get("label") == group for _, _, c in attempts()):
        raise _label_as_group_error(group[0])
    raise _unclear_roles_error(table, statistics, tried, partial_matches)


def _try_layout(layout: Layout, search: ColumnSearch) -> Columns | None:
    """Return the columns of `layout`, or None if a required role has no column."""
    search.spellings = layout.spellings
    layout.find(search)
    if not all(role in search.roles for role in layout.roles):
        return None
    order = [*layout.roles, *(role for role in search.roles if role not in layout.roles)]
    return Columns(
        layout=layout,
        roles={role: search.roles[role] for role in order},
        why={role: search.why[role] for role in order},
        described=search.described,
    )


# ------------------------------------------------------------------------------ checks and refusals
def _check_given(requested: Mapping[str, tuple[str, ...]], described: Mapping[str, Column]) -> None:
    """Raise UsageError for unknown roles or columns given by the user."""
    known_roles = (*roles(), *COMMON, *roles(lambda layout: layout.optional))
    multi_column = roles(lambda layout: (*layout.multi_column, *layout.joined))
    role_of: dict[str, str] = {}
    for role, names in requested.items():
        if role not in known_roles:
            advice = "correct the role: --column ROLE=NAME"
            raise unknown("no such role of a column", role, known_roles, do=advice)
        if len(names) > 1 and role not in multi_column:
            raise UsageError(
                f"one column holds the {role}",
                where="--column",
                found=f"{role}={', '.join(names)}",
                wanted=f"one of them ({', '.join(multi_column)} may be several)",
                do="join them into one column",
            )
        for name in names:
            if name not in described:
                raise UsageError(
                    "the column is missing",
                    where=f"{role}={name}",
                    found=f"the columns {', '.join(described)}",
                    wanted=near(name, described),
                    do=f"name the column that holds the {role}",
                )
            if role != "group" and role_of.setdefault(name, role) != role:
                raise UsageError(
                    "one column has two roles",
                    where="--column",
                    found=f"{role_of[name]}={name}, {role}={name}",
                    wanted="a column for each role",
                    do=f"name the column that holds the {role}",
                )


def _texts(table: Table, requested: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the columns that hold texts by the requested roles or by their names."""
    role_of = {name: role for role, names in requested.items() for name in names}
    list_names, text_names = set[str](), set[str]()
    for layout in layouts():
        for role in layout.lists:
            list_names.update(layout.spellings.get(role) or NAMES.get(role, (role,)))
        for role, spellings in layout.spellings.items():
            text_names.update(spellings if role in layout.joined else ())
    text_names.update(*PAIRS, *SEQUENCES, *MATCHES)
    text_names.update(NAMES["question"], NAMES["context"], NAMES["text"])
    names_present = {plain(name) for name in table.columns}
    targets = {
        target
        for source, target in SEQUENCES
        if {source, target} <= names_present and source != "text" and target != "answer"
    }
    return {
        name
        for name in table.columns
        if (
            not may_be_list(role_of[name])
            if name in role_of
            else plain(name) in (text_names - list_names) | targets
        )
    }


def _label_as_group_error(name: str) -> UsageError:
    """Return the error for a `group` column that is the label: all parts need rows of a label."""
    return UsageError(
        "rows cannot be grouped by their label",
        where=option("group", name),
        found=f"{name!r}, which is the only label",
        wanted="a column of what rows have in common, such as an author",
        do=f"name another column, or leave {option('group', name)} out",
    )


def _refuse_row_as_header(table: Table, columns: Columns) -> None:
    """Raise DataError if the header is a row of data: its label occurs as a value below it."""
    names = columns.roles.get("label", ())
    file = table.first[0].file
    if len(names) != 1 or not table.first[0].in_table:
        return
    repetitions = sum(row.values.get(names[0]) == names[0] for row in table.first)
    if repetitions:
        raise DataError(
            "the first row looks like data, not like the names of columns",
            where=file,
            found=f"{names[0]!r}, which is the label of {counted(repetitions, 'row')}, too",
            wanted="a header row, such as text,label",
            do="add a header row, or name the columns (--read header=NAME,NAME…)",
        )


def _refuse_lost(table: Table, columns: Columns, requested: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse to drop columns that belong to the text silently: the context or the answer of a
    question, or, if targets are generated, a column that rates them."""
    text_roles = [role for role in ("text", "first", "second", "source") if role in columns.roles]
    if not text_roles or set(text_roles) & set(requested):
        return
    unused = [columns.described[name] for name in columns.left_out if columns.described[name].rows]
    numeric = ("whole", "number", "boolean")
    ratings = [
        c.name for c in unused if plain(c.name) in RATINGS and (c.has_classes or c.kind in numeric)
    ]
    to_leave_out = " ".join(option(role, n) for role, names in columns.roles.items() for n in names)
    if "target" in columns.roles and ratings:
        pair_options = f"{option('first', columns['source'])} {option('second', columns['target'])}"
        raise DataError(
            "a column that may judge the texts is not read",
            where=table.first[0].file,
            found=f"{ratings[0]!r} next to {columns['target']!r}",
            wanted="columns whose roles are clear",
            do=f"to learn to write, whatever it says: {to_leave_out}; to learn it: {pair_options} "
            f"{option('label', ratings[0])}",
        )
    question = next((role for role in text_roles if plain(columns[role]) in QUESTIONS), None)
    dropped = [c.name for c in unused if plain(c.name) in QUESTION_CONTEXTS]
    if "text" in columns.roles:
        pairs = [c.name for c in unused if (plain(columns["text"]), plain(c.name)) in ANSWERED]
        likely = [c.name for c in unused if c.kind == "text" and not c.has_classes and c.words > 1]
        dropped += pairs + [c.name for c in unused if question and c.is_prose]
        dropped += likely if len(likely) > 2 else []
        question = question or ("text" if pairs else None)
    if question is None or not dropped:
        return
    joined_advice = f"to read it behind the other: {to_leave_out} {option(question, dropped[0])}; "
    is_text = columns.described[dropped[0]].kind in TEXTLIKE
    raise DataError(
        "a column that may belong to the question is not read",
        where=table.first[0].file,
        found=f"{' and '.join(map(repr, dict.fromkeys(dropped)))} next to {columns[question]!r}",
        wanted="columns whose roles are clear",
        do=f"to leave it out: {to_leave_out}; {joined_advice if is_text else ''}or say what each "
        "column is, such as --column context=NAME --column question=NAME --column answers=NAME",
    )


def _check_parts(table: Table, columns: Columns) -> None:
    """Raise DataError if a part lacks a column; drop a test part without answers."""
    for split, rows in list(table.parts.items()):
        for role, names in columns.roles.items():
            for name in names if role != "label_name" and split in table.parts else ():
                outer = name.partition(".")[0]
                if rows and not any({name, outer} & row.values.keys() for row in rows):
                    names_here = sorted({n for row in rows for n in row.values})
                    similar_names = get_close_matches(name, set(names_here) - set(table.columns))
                    is_hidden = role == columns.layout.answer_role and not similar_names
                    if is_hidden and table.without_labels(split, rows, f"no column {name!r}"):
                        break
                    raise DataError(
                        f"the part {split!r} has no column {name!r}",
                        where=rows[0].file,
                        found=f"the columns {', '.join(names_here)}",
                        wanted=f"{name!r}, which holds the {role} in {table.first[0].file}",
                        do=f"rename the column ({near(name, names_here)}), or move the file out of "
                        "the folder",
                    )


def _unclear_roles_error(
    table: Table,
    described: Mapping[str, Column],
    tried: Sequence[Layout],
    partly: Sequence[tuple[Layout, dict[str, tuple[str, ...]]]],
) -> DataError:
    """Return the error if no layout fits, with the options that say what the columns are; `partly`
    are layouts that lack one role."""
    candidates = [c for c in described.values() if plain(c.name) not in IDS]
    texts = [c.name for c in described.values() if c.kind == "text" and c.words >= 2]
    flags = list(dict.fromkeys([*columns_of_flags(candidates), *columns_of_marks(candidates)]))
    others = [c for c in candidates if c.name not in texts and c.kind not in ("object", "mixed")]
    labels = [c.name for c in sorted(others, key=lambda c: not c.has_classes)]
    names_present = {plain(name) for name in described}
    if names_present == {"tokens"}:
        do = "write the tag of each word behind it, with a tab or a blank between"
    elif names_present & {*NAMES["tokens"]} and names_present & {*NAMES["tags"]}:
        do = (
            "write a list of words and a list of tags into each row; where a row is a single word, "
        )
        do += "add a column sentence_id with the number of its sentence, or make a .conll file"
    elif partly:
        layout, assigned = partly[0]
        (role,) = (role for role in layout.roles if role not in assigned)
        used_columns = {name for names in assigned.values() for name in names}
        unused = [c.name for c in candidates if c.name not in used_columns]
        shown = " and ".join(f"{names[0]!r} ({which})" for which, names in assigned.items())
        do = f"{shown} found; add a column with the {role}, or say which it is: "
        do += " or ".join(option(role, name) for name in unused[:3]) or option(role, "NAME")
    elif len(tried) == 1 and not tried[0].has_label_forms:
        do = f"say which columns they are: {' '.join(option(r, 'NAME') for r in tried[0].roles)}; "
        do += "or choose another task, or none"
    elif len(texts) > 1 and len(tried) > 1:
        as_one, as_pair, as_source = (
            f"{option(role, texts[0])} {option(second_role, texts[1])}"
            for role, second_role in (("text", "text"), ("first", "second"), ("source", "target"))
        )
        do = f"say what the texts are: {option('text', texts[0])}; or both as one text: {as_one}; "
        do += f"or pairs: {as_pair}; or a text to read and one to write: {as_source}"
    elif texts and len(flags) > 1:
        do = f"where each is a label of its own: {' '.join(option('label', n) for n in flags)}; "
        do += f"where one of them is the label: {option('label', flags[0])}"
    elif labels and not any(c.kind == "text" and c.name != labels[0] for c in candidates):
        do = "write a text, or the path of an image, into each row of a column; not a list or bytes"
    elif labels:
        do = f"say which column is the label: {option('label', labels[0])}"
        do += f" (or {', '.join(labels[1:4])})" if len(labels) > 1 else ""
    elif len(texts) == len(candidates):
        do = "add a column with labels; for text without labels use pretraining"
    else:
        do = "say what the columns are, such as --column text=NAME --column label=NAME; what is "
        do += "within objects needs columns of its own"
    return DataError(
        "the roles of the columns are unclear",
        where=table.first[0].file,
        found=", ".join(
            f"{c.name} ({c.kind}, {c.distinct:,} different)" for c in list(described.values())[:12]
        ),
        wanted="; ".join(" + ".join(layout.roles) for layout in tried),
        do=do,
    )
