"""Rows of annotation programs: Label Studio, doccano, Prodigy, and spaCy's JSON.

    Label Studio   {"id": 1, "data": {"text": …}, "annotations": [{"result": [
    JSON               {"from_name": "label", "type": "labels",
                        "value": {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}}]}]}
    JSON_MIN       {"text": …, "label": [{"start": 0, "end": 4, "labels": ["PER"]}], "annotator": 1}
    CSV            the same in cells
    spaCy, a pair  ["Anna sleeps", {"entities": [[0, 4, "PER"]], "cats": {"A": 1, "B": 0}}]
    spaCy 2        {"id": 0, "paragraphs": [{"sentences": [
                        {"tokens": [{"orth": "Anna", "ner": "U-PER"}, …]}]}]}

Their values become columns where rows are read. When all rows are there, `resolve_labels` selects
those to learn from: chosen labels become names of classes if every row has exactly one, else lists;
texts that were not annotated or not accepted are dropped.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskwright.base.errors import DataError, Finding
from maskwright.base.storage.strict_json import parse
from maskwright.base.terminal import counted
from maskwright.text.corpus.reading import Counts, Ledger
from maskwright.text.tables.cell_values import is_flag_mapping
from maskwright.text.tables.marked_text import are_marked_spans
from maskwright.text.tables.rows import Row

ACCEPTED, DECIDED = "accept", ("accept", "reject", "ignore")
UNKNOWN_TAGS = ("", "-", None)
TAG_COLUMNS = {"ner": "ner_tags", "tag": "pos_tags"}


class ExportedRow(dict[str, Any]):
    """A row of an export, before `resolve_labels` processes all rows together.

    Attributes:
        left_out: why the row cannot be used for training; "" if it can.
        item: the number of its entry in the file, counted from 1; 0 if equal to the row's number.
    """

    left_out: str = ""
    item: int = 0


class ChosenLabels(list[Any]):
    """The labels that an annotator chose for a row.

    Attributes:
        among: the available labels if the export lists them, else None.
    """

    def __init__(self, labels: Iterable[Any] = (), among: frozenset[str] | None = None) -> None:
        super().__init__(labels)
        self.among = among


def row_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the row with program-specific values converted to columns."""
    chosen: dict[str, Any] = {}
    flags: Any = values.get("cats")
    if is_flag_mapping(flags):
        chosen["cats"] = ChosenLabels((name for name in flags if flags[name]), frozenset(flags))
    elif _are_texts(flags):
        chosen["cats"] = ChosenLabels(flags)
    is_prodigy = "_input_hash" in values
    if is_prodigy and type(values.get("accept")) is list and "options" in values:
        chosen["accept"] = ChosenLabels(values["accept"])
    if "Comments" in values and _are_texts(values.get("label")):  # doccano
        chosen["label"] = ChosenLabels(values["label"])
    return ExportedRow({**values, **chosen}) if chosen or is_prodigy else values


def row_of_doccano_table(values: dict[str, str]) -> dict[str, Any]:
    """Convert a row of doccano's csv, whose labels have # between them."""
    row = ExportedRow(values)
    if all(pieces := [piece.strip() for piece in values["label"].split("#")]):
        row["label"] = ChosenLabels(pieces)
    return row


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(element) is str for element in value)


# ------------------------------------------------------------------------------ Label Studio
# Type of result -> the key of its value that holds the answer.
VALUES = {
    "labels": "labels",
    "choices": "choices",
    "rating": "rating",
    "number": "number",
    "textarea": "text",
}
# Types of results whose offsets do not count characters of a text.
OTHER_PLACES = ("hypertextlabels", "paragraphlabels", "timeserieslabels")
BOOKS = ("annotation_id", "annotator")


def is_label_studio_task(value: Any) -> bool:
    """Whether a value is a task of the full export, or an annotation that contains its task, as
    written to cloud storage."""
    if type(value) is not dict:
        return False
    if type(value.get("result")) is list and type(value.get("task")) is dict:
        return type(value["task"].get("data")) is dict
    if type(value.get("data")) is not dict:
        return False
    return type(value.get("annotations")) is list


def is_label_studio_row(values: Mapping[str, Any]) -> bool:
    """Whether a row is from the JSON_MIN or CSV export."""
    return all(name in values for name in BOOKS)


def rows_of_tasks(tasks: list[Any], file: str, ledger: Ledger) -> list[dict[str, Any]]:
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
        annotations = task["annotations"]
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
        valid = [a for a in annotations if not a.get("was_cancelled")]
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


def row_of_answers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of the JSON_MIN export to the values of the full export."""
    return ExportedRow({name: _value(value) for name, value in values.items()})


def row_of_label_studio_table(values: Mapping[str, str]) -> dict[str, Any]:
    """Convert a row of the CSV export, whose cells may hold JSON."""
    cells: dict[str, Any] = dict(values)
    for name, cell in values.items():
        if cell.startswith(("[{", '{"')):
            with contextlib.suppress(DataError):  # a text that begins so
                cells[name] = parse(cell)
    return row_of_answers(cells)


def _value(value: Any) -> Any:
    only = value[0] if type(value) is list and len(value) == 1 else None
    if type(only) is dict and (keys := only.keys() & {"rating", "number"}):
        return value if "start" in only else only[keys.pop()]
    if type(value) is dict and type(value.get("choices")) is list:
        return ChosenLabels(value["choices"])
    if type(value) is dict and value.keys() == {"text"}:
        return _unwrap(value["text"])
    return value


# ------------------------------------------------------------------------------ spaCy
def is_pair(value: Any) -> bool:
    """Whether a value is a text with its annotations."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str:
        return False
    return type(value[1]) is dict or value[1] == [] or are_marked_spans(value[1])


def row_of_pair(value: Sequence[Any], number: int = 0) -> dict[str, Any]:
    """Convert a pair of a text and its annotations to a row; `number` is that of its entry."""
    text, spans = value
    row = ExportedRow({"text": text, **(spans if type(spans) is dict else {"entities": spans})})
    row = ExportedRow(row_of(row))
    row.item = number
    return row


def is_document(value: Any) -> bool:
    """Whether a value is a document of spaCy 2, and not an article of SQuAD."""
    paragraphs = value.get("paragraphs") if type(value) is dict else None
    return (
        type(paragraphs) is list
        and bool(paragraphs)
        and all(type(p) is dict and type(p.get("sentences")) is list for p in paragraphs)
    )


def sentences(
    documents: Sequence[Mapping[str, Any]], file: str, ledger: Ledger
) -> Iterator[dict[str, Any]]:
    """Yield a row for each sentence.

    Raises:
        DataError: a word without text; an unknown tag, when the policy is strict.
    """
    for number, document in enumerate(documents, 1):
        for paragraph_number, paragraph in enumerate(document["paragraphs"], 1):
            where = f"{file}, item {number}, paragraph {paragraph_number}"
            tokenized = [_words(sentence, where) for sentence in paragraph["sentences"]]
            # Rows of a paragraph have the same columns; a word without a tag gets None.
            keys = {key for words in tokenized for word in words for key in word}
            for words in tokenized:
                row = ExportedRow({"tokens": [word["orth"] for word in words]})
                row.item = number
                for key, column in TAG_COLUMNS.items():
                    if key in keys:
                        row[column] = [word.get(key) for word in words]
                try:
                    _refuse_unknown_entity(row, where)
                except DataError as error:
                    ledger.reject(error, file=file, line=number)
                    continue
                yield row


def _words(sentence: Any, where: str) -> list[dict[str, Any]]:
    words = sentence.get("tokens") if type(sentence) is dict else None
    if type(words) is not list or not all(
        type(word) is dict and type(word.get("orth")) is str for word in words
    ):
        raise DataError(
            "a sentence without words",
            where=where,
            found=repr(words)[:80],
            wanted='"tokens": [{"orth": "Anna", "ner": "U-PER"}]',
            do="write it so, or JSON lines with text and entities",
        )
    return words


def _refuse_unknown_entity(row: Mapping[str, Any], where: str) -> None:
    for word, tag in zip(row["tokens"], row.get(TAG_COLUMNS["ner"], ()), strict=False):
        if tag in UNKNOWN_TAGS:
            raise DataError(
                "the entity tag of a word is unknown",
                where=where,
                found=repr(word),
                wanted="a tag such as O or U-PER",
                do="write O where it is none, or take the sentence out (--read "
                "on_bad=skip drops and counts it)",
            )


# ------------------------------------------------------------------------------ all rows
def resolve_labels(rows_by_split: dict[str, list[Row]], counts: Mapping[str, Counts]) -> None:
    """Drop rows that were not annotated or accepted, and convert chosen labels to names or lists.

    Adds findings on dropped rows and on how labels are read to `counts`.

    Raises:
        DataError: no row is annotated; some rows lack a flag for some classes.
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
        return
    cells = [(name, value) for row in all_rows for name, value in row.values.items()]
    span_columns = {name for name, value in cells if are_marked_spans(value)}
    label_columns = {name for name, value in cells if type(value) is ChosenLabels} - span_columns
    single_label = {
        name for name in label_columns if all(_is_one(row.values.get(name)) for row in all_rows)
    }
    notes = next(iter(counts.values())).notes
    for name in sorted(label_columns):
        _note_chosen(name, name in single_label, all_rows, notes)

    def resolved(row: Row) -> Row:
        if type(row.values) is not ExportedRow:
            return row
        values = dict(row.values)
        for name in span_columns:  # a missing value means that no span was marked
            values[name] = list(values.get(name) or ())
        for name in label_columns & values.keys():
            value = values[name]
            labels = [value] if type(value) is str else value
            labels = list(labels) if type(labels) is ChosenLabels else labels
            values[name] = labels[0] if name in single_label and labels else labels
        return replace(row, values=values)

    for split, rows in rows_by_split.items():
        rows_by_split[split] = list(map(resolved, rows))


def _annotated(rows: list[Row], counts: Counts) -> list[Row]:
    reasons = [getattr(row.values, "left_out", "") for row in rows]
    for reason, number in Counter(filter(None, reasons)).items():
        message = f"{counted(number, 'text')} left out: {reason}"
        counts.notes.append(Finding("not-annotated", message))
    return [row for row, reason in zip(rows, reasons, strict=True) if not reason]


def _accepted(rows: list[Row], counts: Counts) -> list[Row]:
    """Return the rows that an annotator accepted, if every row has the `answer` of Prodigy."""
    decisions = [row.values.get("answer") for row in rows]
    if not decisions or not all(type(d) is str and d in DECIDED for d in decisions):
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
        message = f"one label in every row of {name!r}: read as the names of classes"
        remedy = "for several labels: --task multi-label"
        notes.append(Finding("one-label-per-row", message, remedy=remedy))
        return
    chosen = [value for row in rows if type(value := row.values.get(name)) is ChosenLabels]
    if empty := sum(not labels for labels in chosen):
        message = f"no label in {counted(empty, 'row')} of {name!r}: read as none of them"
        remedy = "take out rows that nobody labelled"
        notes.append(Finding("empty-labels", message, remedy=remedy))
    choices = {labels.among for labels in chosen if labels.among}
    if len(choices) > 1:
        sometimes = frozenset.union(*choices) - frozenset.intersection(*choices)
        raise DataError(
            "some rows have no flag for some classes",
            where=f"{rows[0].file}, {name!r}",
            found=", ".join(sorted(map(str, sometimes))[:8]),
            wanted="0 or 1 of every class in every row",
            do="write 0 where a class does not fit",
        )
