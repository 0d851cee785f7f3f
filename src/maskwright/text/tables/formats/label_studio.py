"""Exports of Label Studio: a task for each text, with one annotation for each annotator.

    JSON        {"id": 1, "data": {"text": …}, "annotations": [{"result": [
                    {"from_name": "label", "type": "labels",
                     "value": {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}}]}]}
    JSON_MIN    {"text": …, "label": [{"start": 0, "end": 4, "labels": ["PER"]}], "annotator": 1, …}
    CSV         the same in cells

All are converted to rows as in JSON_MIN: one row for each annotation, one column for each question.
(HumanSignal, label-studio-converter.)
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.ledger import Ledger
from maskwright.text.tables.formats.exports import ChosenLabels, ExportedRow

# Type of result -> the key of its value that holds the answer.
VALUES = {
    "labels": "labels",
    "choices": "choices",
    "rating": "rating",
    "number": "number",
    "textarea": "text",
    "pairwise": "selected",
}
# Types of results whose offsets do not count characters of a text.
OTHER_PLACES = ("hypertextlabels", "paragraphlabels", "timeserieslabels")
BOOKS = ("annotation_id", "annotator")


def is_task(value: Any) -> bool:
    """Whether a value is a task of the full export, or an annotation that contains its task, as
    written to cloud storage."""
    if type(value) is not dict:
        return False
    if type(value.get("result")) is list and type(value.get("task")) is dict:
        return type(value["task"].get("data")) is dict
    if type(value.get("data")) is not dict:
        return False
    return type(value.get("annotations", value.get("completions"))) is list


def is_row(values: Mapping[str, Any]) -> bool:
    """Whether a row is from the JSON_MIN or CSV export."""
    return all(name in values for name in BOOKS)


def rows(tasks: list[Any], file: str, ledger: Ledger) -> list[dict[str, Any]]:
    """Return a row for each annotation that was not cancelled (if some of a task are marked as
    ground truth, only for these); a task without annotations gives a row of its data.

    Raises:
        DataError: an annotation of another form, or spans without character offsets.
    """
    exported_rows: list[dict[str, Any]] = []
    unread: Counter[str] = Counter()
    multiply_annotated = with_truth = 0
    for number, task in enumerate(tasks, 1):
        where = f"{file}, item {number}"
        if "result" in task:
            task = {**task["task"], "annotations": [task]}
        annotations = task.get("annotations", task.get("completions"))
        if not all(
            type(candidate) is dict and type(candidate.get("result")) is list
            for candidate in annotations
        ):
            raise DataError(
                "no annotation of Label Studio",
                where=where,
                found=repr(annotations)[:80],
                wanted='objects with a list "result"',
                do="export the project as JSON or JSON-MIN",
            )
        valid = [a for a in annotations if not a.get("was_cancelled") and not a.get("skipped")]
        ground_truth = [a for a in valid if a.get("ground_truth") is True]
        with_truth += bool(ground_truth) and len(ground_truth) < len(valid)
        valid = ground_truth or valid
        multiply_annotated += len(valid) > 1
        task_row = ExportedRow(task["data"])
        task_row.setdefault("id", task.get("id"))
        if not valid:
            task_row.left_out, task_row.item = _reason_unlabelled(task, annotations), number
            exported_rows.append(task_row)
        for annotation in valid:
            annotated = ExportedRow({**task_row, **_answers(annotation["result"], unread, where)})
            annotated.item = number
            exported_rows.append(annotated)
    notes = ledger.counts.notes
    if multiply_annotated:
        message = f"{counted(multiply_annotated, 'text')} with several annotations: a row for each"
        notes.append(Finding("several-annotations", message))
    if with_truth:
        message = f"of {counted(with_truth, 'text')} only the annotation marked as true is read"
        notes.append(Finding("annotation-marked-true", message))
    for result_type, count in unread.items():
        message = f"not read: {counted(count, 'result')} of the type {result_type}"
        notes.append(Finding("results-not-read", message))
    return exported_rows


def _reason_unlabelled(task: Mapping[str, Any], annotations: list[Any]) -> str:
    if annotations:
        return "its annotation was cancelled"
    return "predictions, and no annotation" if task.get("predictions") else "no annotation"


def _answers(results: list[Any], unread: Counter[str], where: str) -> dict[str, Any]:
    """Return the answers of an annotation by question; count skipped results in `unread`."""
    answers: dict[str, Any] = {}
    for result in results:
        result_type, name = str(result.get("type")), result.get("from_name")
        value = result.get("value") if type(result.get("value")) is dict else {}
        if result_type in OTHER_PLACES:
            raise DataError(
                "the marks are no character spans",
                where=where,
                found=result_type,
                wanted="labels of a plain text",
                do="annotate as Text, and not as HyperText or Paragraphs",
            )
        answer = value.get(VALUES.get(result_type, ""))
        # A rating or choice for a span is not a label of the text.
        of_span = "start" in value and result_type != "labels"
        if answer is None or type(name) is not str or of_span:
            unread[f"{result_type} of a part" if of_span else result_type] += 1
        elif result_type == "labels":
            answers.setdefault(name, []).append(value)
        elif result_type == "choices":
            answers[name] = ChosenLabels([*answers.get(name, ()), *answer])
        else:
            answers[name] = _unwrap(answer)
    return answers


def _unwrap(answer: Any) -> Any:
    return answer[0] if type(answer) is list and len(answer) == 1 else answer


def row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of the JSON_MIN export to the values of the full export."""
    return ExportedRow({name: _value(value) for name, value in values.items()})


def of_table(values: Mapping[str, str]) -> dict[str, Any]:
    """Convert a row of the CSV export, whose cells may hold JSON."""
    cells: dict[str, Any] = dict(values)
    for name, cell in values.items():
        if cell.startswith(("[{", '{"')):
            with contextlib.suppress(DataError):  # a text that begins so
                cells[name] = parse(cell)
    return row(cells)


def _value(value: Any) -> Any:
    only = value[0] if type(value) is list and len(value) == 1 else None
    if type(only) is dict and (keys := only.keys() & {"rating", "number", "selected"}):
        return value if "start" in only else only[keys.pop()]
    if type(value) is dict and type(value.get("choices")) is list:
        return ChosenLabels(value["choices"])
    if type(value) is dict and value.keys() == {"text"}:
        return _unwrap(value["text"])
    return value
