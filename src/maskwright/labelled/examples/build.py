"""Rows to examples: every value checked on the way, and refused with its file, line and remedy.

The classes are learned from the training rows, so a label that only validation has is an error. By
the policy `skip`, bad rows are left out, counted and listed, up to a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from maskwright.corpus.reading import Reading
from maskwright.errors import DataError, UsageError
from maskwright.labelled.columns.contents import is_empty, value_of
from maskwright.labelled.columns.infer import Task, is_no_label
from maskwright.labelled.examples import classes as classes_of
from maskwright.labelled.examples.classes import record_finding
from maskwright.labelled.examples.examples import Examples
from maskwright.labelled.examples.labels import Vocabulary
from maskwright.labelled.examples.one_row import reader
from maskwright.labelled.formats.bad_rows import list_rejected, usable
from maskwright.labelled.formats.rows import DEFAULT_READING, Row
from maskwright.labelled.formats.table import Table
from maskwright.labelled.formats.whole_number import as_integer


def build(
    table: Table,
    task: Task,
    *,
    fold_labels: bool = False,
    repair_tags: bool = False,
    no_label: str | None = None,
    reading: Reading = DEFAULT_READING,
    classes: Sequence[str] = (),
    values: Sequence[int] | None = None,
    assume: bool = False,
) -> Examples:
    """Every row as an example; the classes are those of the training rows.

    Args:
        table: the rows.
        task: as inferred.
        fold_labels: join labels that differ only by case or blanks.
        repair_tags: let spans of tags begin with B- where they begin with I-.
        no_label: what stands where a label is not known; such rows are left out.
        reading: whether bad rows stop it or are left out (`on_bad`), and how many may be bad.
        classes: the names of the classes in their order, where a model has them already.
        values: the number of each class in the data that the model learned from, where these had
            numbers.
        assume: whether numbers that nothing connects with `classes` are taken in their order; this
            is noted.

    Raises:
        DataError: a bad row, or with `skip` too many of them; bad classes.
        StorageError: the list of rejected rows cannot be written.
    """
    known, changed, unlabelled = None, 0, 0
    if no_label is not None:
        table, unlabelled = _labelled(table, task, no_label)
    layout = task.columns.layout
    table, notes = layout.prepare(table, task, classes)
    for message in notes:
        record_finding(table, message)
    if repair_tags:
        if (repaired := layout.repair(table, task)) is None:
            raise UsageError(
                "only tags of words are repaired",
                where="--read repair_tags",
                found=task.name,
                wanted="rows of tokens and tags",
                do="leave it out",
            )
        table, changed = repaired
    if task.shape.has_classes:
        if classes:
            known = classes_of.given(classes, values, table, task, fold_labels, assume)
        else:
            known = classes_of.learned(table, task, fold_labels, reading)
    read = reader(task, known)
    parts: dict[str, list[Any]] = {}
    groups: dict[str, list[str]] = {}
    dropped: list[tuple[str, str]] = []
    for part, rows in list(table.parts.items()):
        if rows is not table.first and not _is_labelled(table, part, rows, task, known):
            continue
        made, bad = usable(rows, lambda row: (row, read(row)), reading)
        parts[part] = [example for _, example in made]
        if "group" in task.columns.roles:
            names = [value_of(row, task.columns["group"]) for row, _ in made]
            groups[part] = ["" if is_empty(name) else str(name) for name in names]
        list_rejected(bad, table.rejects.get(part))
        dropped += [(error.where or "", error.what) for _, error in bad]
        if not made:
            _refuse_empty(part, bad)
        layout.require_sound(parts[part])
    return Examples(
        task,
        parts,
        known,
        dropped,
        table.counts,
        groups,
        repaired=changed,
        unlabelled=unlabelled,
        folded=_joined(table, task, known) if fold_labels else 0,
        rejects=next(iter(table.rejects.values()), None),
    )


def _refuse_empty(part: str, bad: Sequence[tuple[Row, DataError]]) -> None:
    if not bad:
        raise DataError(
            "the part has no rows",
            where=part,
            found="0 rows",
            wanted="at least one row",
            do="leave the part out",
        )
    row, first = bad[0]
    raise DataError(
        "all rows of the part were left out, as they are bad",
        where=row.file,
        found=f"{len(bad):,} bad rows; the first: {first.what}, {first.found} ({first.where})",
        wanted=first.wanted,
        do="correct the rows",
    )


def _joined(table: Table, task: Task, known: Vocabulary | None) -> int:
    """How many labels stand there in a spelling that was joined with another."""
    if known is None or not known.folded:
        return 0
    rows = (row for part in table.parts.values() for row in part)
    return sum(str(cell) in known.folded for row in rows for cell in classes_of.readable(row, task))


def _labelled(table: Table, task: Task, no_label: str) -> tuple[Table, int]:
    """The rows whose label is not `no_label`, in none of its columns, and how many others there
    are."""
    names = task.columns.roles.get("label", ())
    if not names:
        raise UsageError(
            "the task has no column of labels",
            where="--read no_label",
            found=task.name,
            do="leave it out",
        )
    parts = {
        part: [
            row
            for row in rows
            if not any(is_no_label(no_label, value_of(row, name)) for name in names)
        ]
        for part, rows in table.parts.items()
    }
    for part, rows in list(table.parts.items()):
        if rows and not parts[part]:
            reason = f"{no_label} in place of a label in all {len(rows):,} rows"
            if table.without_labels(part, reason):
                del parts[part]
                continue
            raise DataError(
                "no row of the part has a label",
                where=part,
                found=f"{no_label} in all {len(rows):,} rows",
                do="move the file out of the folder",
            )
    left = sum(len(rows) - len(parts[part]) for part, rows in table.parts.items())
    return replace(table, parts=parts), left


def _is_labelled(
    table: Table, part: str, rows: Sequence[Row], task: Task, known: Vocabulary | None
) -> bool:
    """Test parts of public sets often come without labels, or with -1 in every row."""
    names = task.columns.roles.get("label", ())
    if len(names) != 1 or (known and -1 in known.places):
        return True
    values = [value_of(row, names[0]) for row in rows]
    if all(is_empty(v) or (known is not None and as_integer(v) == -1) for v in values):
        reason = f"{values[0]!r} in place of a label in all {len(rows):,} rows"
        if table.without_labels(part, reason):
            return False
        raise DataError(
            f"the part {part!r} has no labels",
            where=f"{rows[0].file}, column {names[0]!r}",
            found=f"{values[0]!r} in all {len(rows):,} rows",
            wanted="labels to compare with",
            do="move the file out of the folder; the part can be drawn from the training rows",
        )
    return True
