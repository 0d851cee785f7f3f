"""What is learned from of the rows that programs for annotation export, when all of them are there.

Labels that were chosen are names of classes, if every row has one, else lists. Texts that nobody
annotated or accepted are rows to be answered, and none to learn from.
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
from maskwright.text.tables.marked_text import are_parts
from maskwright.text.tables.rows import Row

ACCEPTED, DECIDED = "accept", ("accept", "reject", "ignore")


def resolve_labels(parts: dict[str, list[Row]], counts: Mapping[str, Counts]) -> None:
    """Drop rows that nobody annotated or accepted from `parts`, and make chosen labels names or
    lists. Findings in `counts` name what was dropped and how labels are read.

    Raises:
        DataError: labels by numbers of which the names are not there; classes without a
            flag in some rows.
    """
    for part, rows in parts.items():
        parts[part] = _accepted(_annotated(rows, counts[part]), counts[part])
        if rows and not parts[part]:
            raise DataError(
                "nothing to learn from",
                where=rows[0].file,
                found=counts[part].notes[-1],
                wanted="texts with an annotation",
                do="annotate some, or accept some, and export once more",
            )
    every = [row for rows in parts.values() for row in rows]
    if not any(type(row.values) is ExportedRow for row in every):
        _refuse_numbers(every)
        return
    marks = {name for row in every for name, value in row.values.items() if are_parts(value)}
    chosen = {
        name for row in every for name, value in row.values.items() if type(value) is ChosenLabels
    }
    chosen -= marks
    one = {name for name in chosen if all(_is_one(row.values.get(name)) for row in every)}
    notes = next(iter(counts.values())).notes
    for name in sorted(chosen):
        _note_chosen(name, name in one, every, notes)
    for part, rows in parts.items():
        parts[part] = [
            replace(row, values=_resolved(row.values, marks, chosen, one))
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
    """Those that an annotator accepted, where every row has Prodigy's answer."""
    decisions = [row.values.get("answer") for row in rows]
    if not decisions or not all(type(one) is str and one in DECIDED for one in decisions):
        return rows
    kept = [row for row, one in zip(rows, decisions, strict=True) if one == ACCEPTED]
    if left := len(rows) - len(kept):
        what = f"{counted(left, 'row')} left out whose 'answer' is reject or ignore"
        counts.notes.append(Finding("not-accepted", what))
    return kept


def _is_one(value: Any) -> bool:
    return type(value) is str or value is None or (type(value) is ChosenLabels and len(value) == 1)


def _note_chosen(name: str, one: bool, every: Sequence[Row], notes: list[Finding]) -> None:
    if one:
        notes.append(
            Finding(
                "one-label-per-row",
                f"one label in every row of {name!r}: read as the names of classes",
                remedy="for several labels: --task multi-label",
            )
        )
        return
    values = [row.values.get(name) for row in every]
    if empty := sum(type(value) is ChosenLabels and not value for value in values):
        notes.append(
            Finding(
                "empty-labels",
                f"no label in {counted(empty, 'row')} of {name!r}: read as none of them",
                remedy="take out rows that nobody labelled",
            )
        )
    label_sets = {value.among for value in values if type(value) is ChosenLabels and value.among}
    if len(label_sets) > 1:
        common = frozenset.intersection(*label_sets)
        incomplete = sorted(map(str, frozenset.union(*label_sets) - common))
        raise DataError(
            "some rows have no flag for some classes",
            where=f"{every[0].file}, {name!r}",
            found=", ".join(incomplete[:8]),
            wanted="0 or 1 of every class in every row",
            do="write 0 where a class does not fit",
        )


def _resolved(
    values: Mapping[str, Any], marks: set[str], chosen: set[str], one: set[str]
) -> dict[str, Any]:
    made = dict(values)
    for name in marks:  # where nothing was marked, there is nothing
        made[name] = list(made.get(name) or ())
    for name in chosen & made.keys():
        value = made[name]
        listed = (
            list(value) if type(value) is ChosenLabels else [value] if type(value) is str else value
        )
        made[name] = listed[0] if name in one and listed else listed
    return made


def _refuse_numbers(every: Sequence[Row]) -> None:
    """Old exports of doccano have numbers of labels, whose names are in another file."""
    for row in every:
        marks = row.values.get("annotations")
        if (
            type(marks) is list
            and marks
            and all(
                type(each) is dict and type(each.get("label")) is int and "user" in each
                for each in marks
            )
        ):
            raise DataError(
                "the labels are numbers without names",
                where=row.where,
                found=f"label {marks[0]['label']}",
                wanted='names, such as "label": [[0, 4, "PER"]]',
                do="export once more, as JSONL with the texts of labels",
            )
