"""Rows to examples: every value checked on the way, and refused with its file, line and remedy.

The classes are learned from the training rows, so a label that only validation has is an error. By
the policy `skip`, bad rows are left out, counted and listed, up to a share.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.corpus.reading import Reading
from maskwright.errors import DataError, UsageError
from maskwright.one_file import new_text
from maskwright.tasks import labels
from maskwright.tasks.choices import require_from_zero
from maskwright.tasks.contents import is_empty, value_of
from maskwright.tasks.examples import Examples
from maskwright.tasks.infer import KINDS, Task, is_said, whole
from maskwright.tasks.labels import Vocabulary
from maskwright.tasks.near_labels import fold_onto
from maskwright.tasks.one_label import spelled
from maskwright.tasks.one_row import cells, reader
from maskwright.tasks.repair import repaired
from maskwright.tasks.rows import DEFAULT_READING, Row
from maskwright.tasks.table import Table


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

    Raises:
        DataError: a bad row, or with `skip` too many of them; bad classes.
        StorageError: the list of rejected rows cannot be written.
    """
    known, changed, unlabelled = None, 0, 0
    if no_label is not None:
        table, unlabelled = _labelled(table, task, no_label)
    if repair_tags:
        table, changed = repaired(table, task)
    if _has_classes(task):
        if classes:
            known = _given(classes, values, table, task, fold_labels)
        else:
            known = _classes(table, task, fold_labels, reading)
    if task.kind == "multiple-choice":
        require_from_zero(itertools.chain.from_iterable(table.parts.values()), task.columns)
    read = reader(task, known)
    parts: dict[str, list[Any]] = {}
    groups: dict[str, list[str]] = {}
    dropped: list[tuple[str, str]] = []
    for part, rows in list(table.parts.items()):
        if rows is not table.first and not _is_labelled(table, part, rows, task, known):
            continue
        made, bad = _usable(rows, lambda row: (row, read(row)), reading)
        parts[part] = [example for _, example in made]
        if "group" in task.columns.roles:
            names = [value_of(row, task.columns["group"]) for row, _ in made]
            groups[part] = ["" if is_empty(name) else str(name) for name in names]
        _list(bad, table.rejects.get(part))
        dropped += [(error.where or "", error.what) for _, error in bad]
        if not made:
            _refuse_empty(part, bad)
    return Examples(
        task, parts, known, dropped, table.counts, groups, repaired=changed,
        unlabelled=unlabelled, folded=_joined(table, task, known),
        rejects=next(iter(table.rejects.values()), None),
    )  # fmt: skip


def _refuse_empty(part: str, bad: Sequence[tuple[Row, DataError]]) -> None:
    if not bad:
        raise DataError("the part has no rows", where=part, found="0 rows",
                        wanted="at least one row", do="leave the part out")  # fmt: skip
    row, first = bad[0]
    raise DataError("all rows of the part were left out, as they are bad", where=row.file,
                    found=f"{len(bad):,} bad rows; the first: {first.what}, {first.found} "
                    f"({first.where})", wanted=first.wanted, do="correct the rows")  # fmt: skip


def _joined(table: Table, task: Task, known: Vocabulary | None) -> int:
    """How many labels stand there in a spelling that was joined with another."""
    if known is None or not known.folded:
        return 0
    rows = (row for part in table.parts.values() for row in part)
    return sum(str(cell) in known.folded for row in rows for cell in _readable(row, task))


def _labelled(table: Table, task: Task, no_label: str) -> tuple[Table, int]:
    """The rows whose label is not `no_label`, and how many others there are."""
    names = task.columns.roles.get("label", ())
    if len(names) != 1:
        raise UsageError("the task has no column of labels", where="--read no_label",
                         found=task.kind, do="leave it out")  # fmt: skip
    parts = {
        part: [row for row in rows if not is_said(no_label, value_of(row, names[0]))]
        for part, rows in table.parts.items()
    }
    for part, rows in list(table.parts.items()):
        if rows and not parts[part]:
            said = f"{no_label} in place of a label in all {len(rows):,} rows"
            if table.without_labels(part, said):
                del parts[part]
                continue
            raise DataError("no row of the part has a label", where=part,
                            found=f"{no_label} in all {len(rows):,} rows",
                            do="move the file out of the folder")  # fmt: skip
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
    if all(is_empty(v) or (known is not None and whole(v) == -1) for v in values):
        said = f"{values[0]!r} in place of a label in all {len(rows):,} rows"
        if table.without_labels(part, said):
            return False
        raise DataError(
            f"the part {part!r} has no labels",
            where=f"{rows[0].file}, column {names[0]!r}",
            found=f"{values[0]!r} in all {len(rows):,} rows",
            wanted="labels to compare with",
            do="move the file out of the folder; the part can be drawn from the training rows",
        )
    return True


def _usable(
    rows: Sequence[Row], read: Callable[[Row], Any], reading: Reading
) -> tuple[list[Any], list[tuple[Row, DataError]]]:
    """What `read` makes of the rows, and those it refused, by the policy."""
    found: list[Any] = []
    bad: list[tuple[Row, DataError]] = []
    for row in rows:
        try:
            found.append(read(row))
        except DataError as error:
            if reading.on_bad == "strict":
                raise
            bad.append((row, error))
    if len(bad) > reading.max_bad_fraction * len(rows):
        first = bad[0][1]
        enough = next(n / 100 for n in range(1, 101) if len(bad) <= n / 100 * len(rows))
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {first.what} ({first.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows"
            + (
                "" if len(bad) == len(rows) else f", or raise it (--read max_bad_fraction={enough})"
            ),
        )
    return found, bad


def _list(bad: Sequence[tuple[Row, DataError]], path: Path | None) -> None:
    """Add rows to the list of rejects that the reading of the file began."""
    if path is None or not bad:
        return
    begun = path.read_text(encoding="utf-8")
    with new_text(path) as file:
        file.write(begun)
        for row, error in bad:
            entry = {"file": row.file, row.unit: row.number, "reason": error.what,
                     "found": error.found, "wanted": error.wanted}  # fmt: skip
            file.write(json.dumps(entry) + "\n")


# ------------------------------------------------------------------------------ classes
def _has_classes(task: Task) -> bool:
    return task.kind == "tagging" or KINDS[task.kind][1] in ("classes", "several")


def _given(
    classes: Sequence[str], values: Sequence[int] | None, table: Table, task: Task, fold: bool
) -> Vocabulary:
    """The classes of a model as they stand in other data: by their names, or as numbers that the
    data name, or those of the data it learned from.

    Raises:
        DataError: numbers that nothing connects with the names.
    """
    role = "tags" if task.kind == "tagging" else "label"
    column = task.columns[role]
    plain = tuple(classes)
    rows = [row for part in table.parts.values() for row in part]
    met = {cell: row for row in rows for cell in _readable(row, task)}
    if task.columns.column(role).kind not in ("whole", "number", "wholes"):
        folded = fold_onto(plain, map(str, met)) if fold else {}
        return Vocabulary(plain, plain, column, folded)
    numbers = {number: row for cell, row in met.items() if (number := whole(cell)) is not None}
    called = _called(table, task, column, rows)
    if not called and values is not None:
        called = dict(zip(values, plain, strict=True))
    if not called:
        called = {number: str(number) for number in numbers}
        if strange := [n for n, name in called.items() if name not in plain]:
            raise DataError(
                "numbers that nothing connects with the classes",
                where=f"{numbers[strange[0]].where}, column {column!r}",
                found=strange[0],
                wanted=f"one of {', '.join(map(repr, plain[:8]))}",
                do="write the names, add a column label_name, or put them in their order into a "
                "labels.json beside the file",
            )
    own = {name: number for number, name in called.items()}
    return Vocabulary(plain, tuple(own.get(name, name) for name in plain), column)


def _called(table: Table, task: Task, column: str, rows: Sequence[Row]) -> dict[int, str]:
    """The names of numbers, where something beside or in the data tells them."""
    names = _names_beside(table, task, column)
    if names:
        return dict(enumerate(names))
    if "label_name" not in task.columns.roles:
        return {}
    told = [(whole(value_of(row, column)), value_of(row, task.columns["label_name"]))
            for row in rows]  # fmt: skip
    return {number: str(name) for number, name in told if number is not None and name is not None}


def _names_beside(table: Table, task: Task, column: str) -> Sequence[str]:
    names = table.names.get(column, ())
    return names or (table.names.get("label", ()) if task.kind == "tagging" else ())


def _readable(row: Row, task: Task) -> list[Any]:
    """The labels of a row that are one; what else stands there is refused where it is read."""
    try:
        return [cell for cell in cells(row, task) if type(cell) in (int, float, str, bool)]
    except DataError:
        return []


def _classes(table: Table, task: Task, fold: bool, reading: Reading) -> Vocabulary:
    """The classes of the training rows; rows without a usable label have no say."""
    columns = task.columns
    role = "tags" if task.kind == "tagging" else "label"
    name = columns[role]
    if len(columns.roles[role]) > 1:
        return Vocabulary(columns.roles[role], columns.roles[role], name)
    numbers = columns.column(role).kind in ("whole", "number", "wholes")
    names = _names_beside(table, task, name)

    def read(row: Row) -> list[tuple[Any, Row]]:
        found = list(cells(row, task))
        for cell in found:
            spelled(cell, row, name, numbers, words=bool(names))
        return [(cell, row) for cell in found]

    found, _ = _usable(table.first, read, reading)
    if not any(found):
        raise DataError("no row has a label", where=f"{table.first[0].file}, column {name!r}",
                        found="empty cells only", wanted="labels")  # fmt: skip
    return labels.learn(
        [cell for some in found for cell in some],
        name,
        names=names,
        name_column=columns["label_name"] if "label_name" in columns.roles else None,
        numbers=numbers,
        fold=fold,
    )
