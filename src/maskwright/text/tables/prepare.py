"""Build examples from rows, checking every value; errors name the file, the line and a remedy.

The classes are learned from the training rows, so a label that only validation has is an error.
With the policy `skip`, bad rows are left out, counted and listed, up to a share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.terminal import counted
from maskwright.text.tables import splits
from maskwright.text.tables.cell_values import (
    ALIKE,
    group_name,
    is_empty,
    label_of,
    means_nothing,
    require_field,
)
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labelled_texts import (
    learn_classes,
    match_model_classes,
    readable_labels,
)
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Task
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import (
    ALL,
    Example,
    Row,
    Table,
    has_column,
    list_rejected,
    usable,
    value_of,
)
from maskwright.text.tables.shapes import COMMON, may_be_joined
from maskwright.text.tables.splits import SplitOptions

# Roles whose fields are checked when they are read: there may be fewer choices, and unanswerable
# questions have no answers.
CHECKED_LATER = (*COMMON, "choices", "answers")
# A field may be a misspelling of another if it occurs in less than this share of its rows.
RARE = 0.25
# Equal answers in all rows of a part are no coincidence if less likely than this: eight rows of a
# class that half of the training rows have may be a test set of that class.
UNLIKELY = 1e-6


def build(
    table: Table,
    task: Task,
    *,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    classes: Sequence[str] = (),
    values: Sequence[int] | None = None,
    assume: bool = False,
) -> Dataset:
    """Convert every row to an example; the classes are learned from the training rows.

    Args:
        read: whether bad rows raise or are left out, and which labels and tags are changed.
        classes: the class names of an existing model in their order; empty to learn them.
        values: the number of each class in the training data of that model; None if its labels
            were names.
        assume: whether numbers without a known relation to `classes` are taken as their indices,
            with a finding.

    Raises:
        DataError: a bad row, or too many of them with `skip`; invalid classes.
        StorageError: the list of rejected rows cannot be written.
    """
    vocabulary, changed_tags, unlabelled_rows = None, 0, 0
    layout = task.columns.layout
    no_label = [] if read.no_label is None else [read.no_label]
    if missing_values := {*layout.ignored, *no_label} - {*classes}:
        table, unlabelled_rows = _labelled(table, task, missing_values)
    table, findings = layout.prepare(table, task, classes)
    for finding in findings:
        table.note(finding)
    if read.repair_tags:
        if (repaired_table_and_count := layout.repair(table, task)) is None:
            raise UsageError(
                "only tags of words are repaired",
                where="--read repair_tags",
                found=task.name,
                wanted="rows of tokens and tags",
                do="leave it out",
            )
        table, changed_tags = repaired_table_and_count
    if task.shape.has_classes:
        if classes:
            vocabulary = match_model_classes(classes, values, table, task, read.fold_labels, assume)
        else:
            vocabulary = learn_classes(table, task, read.fold_labels, read.reading)

    def example_of(row: Row) -> tuple[Row, Example]:
        _require_fields(row, task.columns)
        return row, layout.read(row, task, vocabulary)

    examples_by_split: dict[str, list[Any]] = {}
    groups: dict[str, list[str]] = {}
    dropped_rows: list[tuple[str, str]] = []
    for split, rows in list(table.parts.items()):
        if rows is not table.first:
            hidden = hidden_by(rows, table.first, task.columns)
            if hidden is not None and table.without_labels(split, rows, shown_answer(hidden)):
                continue
            if hidden is not None and means_nothing(hidden):
                raise no_answers(split, rows, task.columns, hidden)
        rows_and_examples, bad_rows = usable(rows, example_of, read.reading)
        examples_by_split[split] = [example for _, example in rows_and_examples]
        if "group" in task.columns.roles:
            group_values = [value_of(row, task.columns["group"]) for row, _ in rows_and_examples]
            groups[split] = list(map(group_name, group_values))
        list_rejected(bad_rows, table.rejects)
        dropped_rows += [(error.where or "", error.what) for _, error in bad_rows]
        if not rows_and_examples:
            _refuse_empty(split, bad_rows)
        layout.require_sound(examples_by_split[split])
        if rows is table.first and not classes:
            _refuse_one_answer(examples_by_split[split], rows, task.columns)
    folded = _folded_count(table, task, vocabulary) if read.fold_labels else 0
    if folded and vocabulary is not None:
        joined = f"{counted(len(vocabulary.names), 'class', 'classes')} after spellings were joined"
        task = replace(task, why=f"{task.why}, {joined}")
    return Dataset(
        task,
        examples_by_split,
        vocabulary,
        dropped_rows,
        table.counts,
        groups,
        repaired=changed_tags,
        unlabelled=unlabelled_rows,
        folded=folded,
        rejects=table.rejects,
    )


def _require_fields(row: Row, columns: Columns) -> None:
    """Check that a row has the fields of `columns`. If several columns are joined to one text, some
    may be missing, unless the row has a rare unused field with a similar name: a misspelling."""
    for role, names in columns.roles.items():
        if role in CHECKED_LATER or role in columns.layout.optional:
            continue
        missing = [name for name in names if not has_column(name, row.values)]
        if missing and (not may_be_joined(role) or len(missing) == len(names)):
            require_field(row, role, missing[0])
        if not missing:
            continue
        used_columns = {name for column_names in columns.roles.values() for name in column_names}
        row_counts = {name: column.rows for name, column in columns.described.items()}
        for name in missing:
            unused_columns = [
                candidate
                for candidate in row.values
                if candidate not in used_columns
                and row_counts.get(candidate, 0) < RARE * row_counts.get(name, 0)
            ]
            if get_close_matches(name, unused_columns, n=1, cutoff=ALIKE):
                require_field(row, role, name)


def _refuse_empty(split: str, bad: Sequence[tuple[Row, DataError]]) -> None:
    if not bad:
        raise DataError(
            "the part has no rows",
            where=split,
            found="0 rows",
            wanted="at least one row",
            do="leave the part out",
        )
    row, error = bad[0]
    raise DataError(
        "all rows of the part were left out, as they are bad",
        where=row.file,
        found=f"{len(bad):,} bad rows; the first: {error.what}, {error.found} ({error.where})",
        wanted=error.wanted,
        do="correct the rows",
    )


def _folded_count(table: Table, task: Task, vocabulary: LabelVocabulary | None) -> int:
    """Return the number of labels whose spelling was joined with another (`fold_labels`)."""
    if vocabulary is None or not vocabulary.folded:
        return 0
    return sum(
        label_of(cell, row, vocabulary.column, vocabulary.has_numbers, words=True)
        in vocabulary.folded
        for row in table.rows
        for cell in readable_labels(row, task)
        if not is_empty(cell)
    )


def _labelled(table: Table, task: Task, no_label: Collection[str]) -> tuple[Table, int]:
    """Return the table without answers in `no_label`, and the number of rows left without any."""
    columns = task.columns
    filtered_rows = {
        split: [columns.layout.without(row, columns, no_label) for row in rows]
        for split, rows in table.parts.items()
    }
    labelled_rows = {
        split: [row for row in rows if row is not None] for split, rows in filtered_rows.items()
    }
    for split, rows in list(table.parts.items()):
        if rows and not labelled_rows[split]:
            placeholder = str(columns.layout.answers(rows[0], columns)[0])
            if not table.without_labels(split, rows, shown_answer(placeholder)):
                raise no_answers(split, rows, columns, placeholder)
            del labelled_rows[split]
    return replace(table, parts=labelled_rows), sum(
        row is None for rows in filtered_rows.values() for row in rows
    )


def hidden_by(rows: Sequence[Row], learned_from: Sequence[Row], columns: Columns) -> str | None:
    """Return the placeholder that all `rows` have if their answers are hidden, as in public test
    sets; None if the answers are not hidden.

    The placeholder is a single value: empty, a word for a missing value that does not occur in
    `learned_from`, or an answer that so many rows are unlikely to share by chance (`UNLIKELY`).
    """
    values = {_spelled(row, columns) for row in rows}
    if len(values) != 1:
        return None
    (value,) = values
    matching_rows = sum(_spelled(row, columns) == value for row in learned_from)
    if all(map(is_empty, value)) or (not matching_rows and all(map(means_nothing, value))):
        return value[0]
    share_of_value = (matching_rows + 1) / (len(learned_from) + 1)
    return value[0] if len(rows) > 1 and share_of_value ** len(rows) < UNLIKELY else None


def shown_answer(hidden: str) -> str:
    """Return the placeholder `hidden` as shown in messages."""
    return repr(hidden) if hidden else "nothing"


def _spelled(row: Row, columns: Columns) -> tuple[str, ...]:
    """Return the values of the answer of a row as stripped texts; one if all are equal."""
    values = columns.layout.answers(row, columns)
    texts = tuple("" if is_empty(value) else str(value).strip() for value in values)
    return texts if len(set(texts)) > 1 else (texts[:1] or ("",))


def no_answers(split: str, rows: Sequence[Row], columns: Columns, hidden: str) -> DataError:
    """Return the error for a part whose answers are all the placeholder `hidden` (`hidden_by`)."""
    return DataError(
        "the rows have no labels" if split == ALL else f"the part {split!r} has no labels",
        where=f"{rows[0].file}, column {columns[columns.layout.answer_role]!r}",
        found=f"{shown_answer(hidden)} in all {len(rows):,} rows",
        wanted="labels to compare with",
        do="name a part or a file with labels, or take the file out of the folder: a part can be "
        "drawn from the training rows",
    )


def _refuse_one_answer(examples: Sequence[Example], rows: Sequence[Row], columns: Columns) -> None:
    """Raise DataError if all training rows have the same answer, unless it is a text."""
    first_example = examples[0]
    is_one_text_answer = first_example.has_text_answer and first_example.repeated
    may_be_alone = len(examples) == 1 and not first_example.stratified
    if len({e.repeated for e in examples}) == 1 and not may_be_alone and not is_one_text_answer:
        role = columns.layout.answer_role
        raise DataError(
            "all labels are the same",
            where=f"{rows[0].file}, column {columns[role]!r}",
            found=f"only {shown_answer(_spelled(rows[0], columns)[0])} in "
            + counted(len(examples), "row"),
            wanted="at least two different answers",
            do=f"add rows with another, or name another column (--column {role}=…)",
        )


def prepare(
    data: Path | str | Sequence[Path | str],
    *,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    task: str | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    division: SplitOptions | None = splits.DEFAULT,
    rejects: Path | str | None = None,
) -> Dataset:
    """Load labelled files as a dataset with all parts; `task.lines()` describes the inference.

    Args:
        data, rejects: as for `files.load`.
        columns: role -> column, for roles that must not be guessed; `group` keeps rows together.
        task: name of the task; None to infer it.
        read: how the files are read, and which labels and tags are changed.
        division: how to sample parts that did not come as files; None: only the parts of the files.

    Raises:
        UsageError, DataError: as the steps do, with file, line and remedy.
    """
    table = load(data, header=read.header, reading=read.reading, rejects=rejects)
    dataset = build(table, infer(table, columns, task, read.no_label), read=read)
    return dataset if division is None else splits.split_dataset(dataset, division)
