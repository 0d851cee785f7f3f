"""Select and convert the rows of annotation exports for training, when all have been read.

Chosen labels become names of classes if every row has exactly one, else lists. Texts that were not
annotated or not accepted are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.text.corpus.ledger import Counts
from maskwright.text.tables.formats.annotation_rows import ChosenLabels, ExportedRow
from maskwright.text.tables.marked_text import are_marked_spans
from maskwright.text.tables.rows import Row

ACCEPTED, DECIDED = "accept", ("accept", "reject", "ignore")


def resolve_labels(rows_by_split: dict[str, list[Row]], counts: Mapping[str, Counts]) -> None:
    """Drop rows that were not annotated or accepted, and convert chosen labels to names or lists.

    Adds findings on dropped rows and on how labels are read to `counts`.

    Raises:
        DataError: labels are numbers without names; some rows lack a flag for some classes.
    """
    for split, rows in rows_by_split.items():
        rows_by_split[split] = _accepted(_annotated(rows, counts[split]), counts[split])
        if rows and not rows_by_split[split]:
            raise DataError(
                "nothing to learn from",
                where=rows[0].file,
                found=counts[split].notes[-1],
                wanted="texts with an annotation",
                do="annotate some, or accept some, and export once more",
            )
    all_rows = [row for rows in rows_by_split.values() for row in rows]
    if not any(type(row.values) is ExportedRow for row in all_rows):
        _refuse_numbers(all_rows)
        return
    span_columns = {
        name for row in all_rows for name, value in row.values.items() if are_marked_spans(value)
    }
    label_columns = {
        name
        for row in all_rows
        for name, value in row.values.items()
        if type(value) is ChosenLabels
    }
    label_columns -= span_columns
    single_label = {
        name for name in label_columns if all(_is_one(row.values.get(name)) for row in all_rows)
    }
    notes = next(iter(counts.values())).notes
    for name in sorted(label_columns):
        _note_chosen(name, name in single_label, all_rows, notes)
    for split, rows in rows_by_split.items():
        rows_by_split[split] = [
            replace(row, values=_resolved(row.values, span_columns, label_columns, single_label))
            if type(row.values) is ExportedRow
            else row
            for row in rows
        ]


def _annotated(rows: list[Row], counts: Counts) -> list[Row]:
    reasons = Counter(row.values.left_out for row in rows if type(row.values) is ExportedRow)
    del reasons[""]
    for reason, number in reasons.items():
        counts.notes.append(
            Finding("not-annotated", f"{counted(number, 'text')} left out: {reason}")
        )
    return [row for row in rows if not (type(row.values) is ExportedRow and row.values.left_out)]


def _accepted(rows: list[Row], counts: Counts) -> list[Row]:
    """Return the rows that an annotator accepted, if every row has the `answer` of Prodigy."""
    decisions = [row.values.get("answer") for row in rows]
    if not decisions or not all(
        type(decision) is str and decision in DECIDED for decision in decisions
    ):
        return rows
    accepted = [row for row, decision in zip(rows, decisions, strict=True) if decision == ACCEPTED]
    if rejected := len(rows) - len(accepted):
        message = f"{counted(rejected, 'row')} left out whose 'answer' is reject or ignore"
        counts.notes.append(Finding("not-accepted", message))
    return accepted


def _is_one(value: Any) -> bool:
    return type(value) is str or value is None or (type(value) is ChosenLabels and len(value) == 1)


def _note_chosen(name: str, is_single: bool, rows: Sequence[Row], notes: list[Finding]) -> None:
    """Add findings on how the chosen labels in column `name` are read; refuse missing flags."""
    if is_single:
        notes.append(
            Finding(
                "one-label-per-row",
                f"one label in every row of {name!r}: read as the names of classes",
                remedy="for several labels: --task multi-label",
            )
        )
        return
    values = [row.values.get(name) for row in rows]
    if empty := sum(type(value) is ChosenLabels and not value for value in values):
        notes.append(
            Finding(
                "empty-labels",
                f"no label in {counted(empty, 'row')} of {name!r}: read as none of them",
                remedy="take out rows that nobody labelled",
            )
        )
    choices = {value.among for value in values if type(value) is ChosenLabels and value.among}
    if len(choices) > 1:
        always_present = frozenset.intersection(*choices)
        missing_somewhere = sorted(map(str, frozenset.union(*choices) - always_present))
        raise DataError(
            "some rows have no flag for some classes",
            where=f"{rows[0].file}, {name!r}",
            found=", ".join(missing_somewhere[:8]),
            wanted="0 or 1 of every class in every row",
            do="write 0 where a class does not fit",
        )


def _resolved(
    values: Mapping[str, Any],
    span_columns: set[str],
    label_columns: set[str],
    single_label: set[str],
) -> dict[str, Any]:
    resolved = dict(values)
    for name in span_columns:  # a missing value means that no span was marked
        resolved[name] = list(resolved.get(name) or ())
    for name in label_columns & resolved.keys():
        value = resolved[name]
        labels = (
            list(value) if type(value) is ChosenLabels else [value] if type(value) is str else value
        )
        resolved[name] = labels[0] if name in single_label and labels else labels
    return resolved


def _refuse_numbers(rows: Sequence[Row]) -> None:
    """Raise DataError for old doccano exports, whose labels are numbers named in another file."""
    for row in rows:
        marks = row.values.get("annotations")
        if (
            type(marks) is list
            and marks
            and all(
                type(mark) is dict and type(mark.get("label")) is int and "user" in mark
                for mark in marks
            )
        ):
            raise DataError(
                "the labels are numbers without names",
                where=row.where,
                found=f"label {marks[0]['label']}",
                wanted='names, such as "label": [[0, 4, "PER"]]',
                do="export once more, as JSONL with the texts of labels",
            )
