"""Rows of a `.json` file that is one value, read whole: an array of objects, a table as pandas
writes it, SQuAD, or the export of an annotation program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError, Finding
from maskwright.base.storage.strict_json import parse
from maskwright.base.terminal import counted
from maskwright.text.corpus import jsonl
from maskwright.text.corpus.reading import Ledger
from maskwright.text.tables.columns import NAMES
from maskwright.text.tables.formats import exports
from maskwright.text.tables.formats.exports import ExportedRow
from maskwright.text.tables.rows import PARTS, plain

# Keys under which a JSON object may hold the rows.
WRAPPERS = ("data", "rows", "records", "items", "examples")


def is_one_value(text: str, *, lines: bool) -> bool:
    """Whether a file that begins with `text` is one JSON value and not JSON Lines: its first line
    is not a whole object, or holds all rows. With `lines`, a broken first line is a bad row."""
    first_line, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(jsonl.with_escapes(first_line))
    except DataError:
        is_begun = first_line.rstrip()[-1:] in tuple("{[,:") and not _is_whole(rest)
        return not lines or is_begun or first_line.strip() in ("[", "{") or _is_whole(first_line)
    if rest.strip():  # each line is a row, or a pair of a text and its marked spans
        return type(value) is not dict and not exports.is_pair(value)
    return not _is_row(value) or (type(value) is dict and _exported_items(value) is not None)


def _is_whole(text: str) -> bool:
    """Whether the first line of a text consists of complete JSON values."""
    try:
        return bool(parse(jsonl.with_escapes(text.partition("\n")[0]), many=True))
    except DataError:
        return False


def _is_row(value: Any) -> bool:
    """Whether an object alone in its file is one row: it has a text, a number or a word list."""
    if type(value) is not dict or type(value.get("data")) is list:
        return False
    tokens = [v for name, v in value.items() if plain(name) in NAMES["tokens"] and type(v) is list]
    keys = [key for v in (value, *value.values()) if type(v) is dict for key in v]
    return (
        any(type(v) not in (list, dict) for v in value.values())
        or any(all(type(word) is str for word in words) for words in tokens)
        or (all(type(v) is dict for v in value.values()) and not any(map(str.isdecimal, keys)))
    )


def items(text: str, file: str, ledger: Ledger) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, its number) of a `.json` file that is read whole.

    Raises:
        DataError: not JSON, or without rows; a bad item, when the policy is strict.
    """
    try:
        values = parse(jsonl.with_escapes(text), file, many=True)
    except DataError as error:
        raise error.advising(
            "correct the file: it is one value, of which no row can be left out; JSON Lines, a row "
            "on each line, can be read with on_bad='skip'"
        ) from None
    value = values[0] if len(values) == 1 else values
    try:  # an export must be valid as a whole; in other files a bad item is a bad row
        checked = jsonl.check_texts(value, ledger)
    except DataError:
        checked = None
    # Rows are counted by items instead of lines, as all items may be on one line.
    ledger.counts.rows -= text.count("\n") + (not text.endswith("\n"))
    exported = None if checked is None else _exported_rows(checked, file, ledger)
    if exported is not None:
        ledger.counts.rows += len(exported)
        for number, row in enumerate(exported, 1):
            yield row, getattr(row, "item", 0) or number
        return
    found_items = _items_in(value if checked is None else checked, file, ledger)
    if any("paragraphs" in item for item in found_items if type(item) is dict):
        checked_items = squad_rows({"data": found_items}, file)
    else:
        checked_items = iter(found_items)
    for number, item in enumerate(checked_items, 1):
        ledger.counts.rows += 1
        try:
            if isinstance(item, DataError):
                raise item
            if type(item) is not dict:
                raise DataError(
                    "the item is not an object",
                    found=repr(item)[:80],
                    wanted='an object such as {"text": "…", "label": "…"}',
                )
            yield jsonl.check_texts(item, ledger) if checked is None else item, number
        except DataError as error:
            where = "" if error.where else f"{file}, item {number}"
            ledger.reject(jsonl.with_place(error, where), file=file, line=number)


def _items_in(value: Any, file: str, ledger: Ledger) -> list[Any]:
    """Return the rows in a JSON value; each is an object if the row is valid."""
    rows = value if type(value) is list else None
    if type(value) is dict and value:
        names, data, values = value.get("columns"), value.get("data"), list(value.values())
        if type(names) is list and type(data) is list and set(map(_length, data)) == {len(names)}:
            rows = [dict(zip(map(str, names), cells, strict=True)) for cells in data]
        elif wrapped := [value[name] for name in WRAPPERS if type(value.get(name)) is list]:
            rows = wrapped[0]
        elif len(sizes := set(map(_length, values))) == 1 and sizes != {None}:
            rows = [dict(zip(value, cells, strict=True)) for cells in zip(*values, strict=True)]
        elif all(type(v) is dict for v in values):
            rows = _items_by_number(value)
        if rows is not None and rows is not data:
            message = f"{len(rows):,} rows made of the columns or rows of one object"
            ledger.counts.notes.append(Finding("rows-of-one-object", message, file))
    has_splits = type(value) is dict and bool({*PARTS, "dev"} & value.keys())
    if rows is None or has_splits or (rows and not any(type(item) is dict for item in rows)):
        fields = ", ".join(list(value)[:5]) if type(value) is dict else type(value[0]).__name__
        raise DataError(
            "the .json file is no table",
            where=file,
            found=f"{'an object with' if type(value) is dict else 'a list of'} {fields}",
            wanted='[{"text": "…", "label": "…"}, …], or JSON Lines',
            do="write each part into a file of its own in one folder: train.json, test.json"
            if has_splits
            else "write a list of objects, one for each row",
        )
    return rows


def _items_by_number(value: dict[str, Any]) -> list[Any] | None:
    """Return the rows of an object of objects as pandas writes tables, with row numbers as the
    outer or the inner keys; None for other objects."""
    inner = list(value.values())
    if all(map(str.isdecimal, value)):
        return inner
    keys = inner[0].keys()
    if keys and all(map(str.isdecimal, keys)) and all(mapping.keys() == keys for mapping in inner):
        return [{name: value[name][key] for name in value} for key in keys]
    return None


def _length(value: Any) -> int | None:
    return len(value) if type(value) is list else None


# ------------------------------------------------------------------------------ SQuAD
# SQuAD (Rajpurkar et al. 2016, 2018): {"data": [{"title", "paragraphs": [{"context", "qas": [{"id",
# "question", "answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}. Offsets are those
# of the text as it was, which is checked when rows become examples.
SQUAD_FIELDS = ("id", "title", "context", "question", "is_impossible", "plausible_answers")


def squad_rows(document: Any, where: str = "") -> Iterator[dict[str, Any] | DataError]:
    """Yield the questions of a parsed SQuAD document, 1.1 or 2.0, as flat rows in the order of the
    file, and a DataError in place of each bad question, paragraph or article:

        {"id": …, "title": …, "context": …, "question": …,
         "answers": {"text": […], "answer_start": […]}}

    A question without the field `answers`, as in data for prediction, has none in its row either.

    Raises:
        DataError: the document has no list of articles.
    """
    ids: set[str] = set()
    for number, row_or_fault in enumerate(_squad_questions(document, where), start=1):
        if isinstance(row_or_fault, DataError):
            yield row_or_fault
            continue
        try:
            yield _squad_row(*row_or_fault, number, ids)
        except DataError as error:
            yield error


def _squad_row(
    title: str, context: str, row: Any, where: str, number: int, ids: set[str]
) -> dict[str, Any]:
    """Convert a raw question to a flat row, and add its id to `ids`; DataError if it is bad."""
    if not isinstance(row, Mapping):
        expected = '{"question": "…", "answers": […]}'
        problem, shown = "a question that is no object", repr(row)[:80]
        raise DataError(problem, where=where, found=shown, wanted=expected)
    question_id = str(row.get("id", number))
    where_question = f"{where}, question {question_id}"
    if question_id in ids:
        problem, expected = "two questions of the same id", "another id for each question"
        raise DataError(problem, where=where, found=repr(question_id), wanted=expected)
    ids.add(question_id)
    impossible, answers = row.get("is_impossible"), row.get("answers", row.get("answer", []))
    labelled = bool({"answers", "answer"} & row.keys()) or impossible is True
    if type(answers) is dict:  # one answer, or columns of several
        values = [value if type(value) is list else [value] for value in answers.values()]
        if len(set(map(len, values))) > 1:
            raise _type_error("answers", list, answers, where_question)
        answers = [dict(zip(answers, cells, strict=True)) for cells in zip(*values, strict=True)]
    labelled &= type(answers) is not str  # an answer without offset is searched in the context
    if type(answers) is not list and labelled:
        raise _type_error("answers", list, answers, where_question)
    if (impossible is True and answers) or (impossible is False and labelled and not answers):
        raise DataError(
            "answers and is_impossible do not agree",
            where=where_question,
            found=f"{len(answers)} answers, is_impossible {impossible}",
            wanted="answers, or is_impossible true",
        )
    question = _field(row, "question", str, where_question)
    flat_row = {"id": question_id, "title": title, "context": context, "question": question}
    if not labelled:  # other fields are kept; invalid answers are reported when they are read
        return flat_row | {name: value for name, value in row.items() if name not in SQUAD_FIELDS}
    texts = [_field(gold, "text", str, where_question) for gold in answers]
    starts = [_field(gold, "answer_start", int, where_question) for gold in answers]
    return flat_row | {"answers": {"text": texts, "answer_start": starts}}


def _squad_questions(document: Any, where: str) -> Iterator[tuple[str, str, Any, str] | DataError]:
    """Yield (title, context, raw question, location) for each question, or a DataError."""
    for a, article in enumerate(_field(document, "data", list, where), 1):
        where_article = f"{where}, article {a}".removeprefix(", ")
        title = article.get("title", "") if isinstance(article, Mapping) else ""
        try:
            paragraphs = _field(article, "paragraphs", list, where_article)
        except DataError as error:
            yield error
            continue
        for p, paragraph in enumerate(paragraphs, 1):
            where_paragraph = f"{where_article}, paragraph {p}"
            try:
                context = _field(paragraph, "context", str, where_paragraph)
                questions = _field(paragraph, "qas", list, where_paragraph)
            except DataError as error:
                yield error
                continue
            for row in questions:
                yield str(title), context, row, where_paragraph


def _field(row: Any, name: str, expected: type, where: str) -> Any:
    if not isinstance(row, Mapping) or name not in row:
        shown = ", ".join(map(str, row)) if isinstance(row, Mapping) else repr(row)[:80]
        problem, form = f'the field "{name}" is missing', f'"{name}", as SQuAD has it'
        raise DataError(problem, where=where or None, found=shown or "no fields", wanted=form)
    if type(row[name]) is not expected:
        raise _type_error(name, expected, row[name], where)
    return row[name]


def _type_error(name: str, expected: type, value: Any, where: str) -> DataError:
    form = {str: "a text", list: "a list", int: "a whole number"}[expected]
    problem = f'the field "{name}" has another type'
    return DataError(problem, where=where, found=repr(value)[:80], wanted=form)


# ------------------------------------------------------------------------------ exports
def _exported_rows(value: Any, file: str, ledger: Ledger) -> list[dict[str, Any]] | None:
    """Return the rows of a value that is an export; None for other values."""
    entries = _exported_items(value)
    if entries is None:
        return None
    if all(map(exports.is_label_studio_task, entries)):
        return exports.rows_of_tasks(entries, file, ledger)
    if all(map(exports.is_document, entries)):
        return list(exports.sentences(entries, file, ledger))
    if all(entry is None or exports.is_pair(entry) for entry in entries):
        if blank := entries.count(None):
            message = f"passed over: {counted(blank, 'null')} among the texts"
            ledger.counts.notes.append(Finding("null-texts", message))
        numbered = enumerate(entries, 1)
        return [exports.row_of_pair(entry, number) for number, entry in numbered if entry]
    if any(type(entry) is not dict or "paragraphs" in entry for entry in entries):
        return None
    rows = [row_of_line(values) for values in entries]
    return rows if type(value) is dict or any(type(row) is ExportedRow for row in rows) else None


def _exported_items(value: Any) -> list[Any] | None:
    """Return the non-empty list of entries of an export, or None."""
    if exports.is_label_studio_task(value):
        return [value]
    if type(value) is dict and "classes" in value:  # pairs as of spaCy, below the names of classes
        value = value.get("annotations")
    return value if type(value) is list and value else None


def row_of_line(value: Any) -> Any:
    """Convert a line of JSON Lines to a row; it may be a spaCy pair of a text and its annotations.
    Other values are returned unchanged."""
    if exports.is_pair(value):
        return exports.row_of_pair(value)
    if type(value) is not dict:
        return value
    is_label_studio = exports.is_label_studio_row(value)
    return exports.row_of_answers(value) if is_label_studio else exports.row_of(value)


def is_exported_table(names: Sequence[str]) -> bool:
    """Whether a table with these columns is an export of Label Studio or doccano."""
    is_doccano = set(names) == {"id", "text", "label", "Comments"}
    return is_doccano or exports.is_label_studio_row(dict.fromkeys(names))


def row_of_exported_table(values: dict[str, str]) -> dict[str, Any]:
    """Convert a row of a table for which `is_exported_table` holds."""
    if exports.is_label_studio_row(values):
        return exports.row_of_label_studio_table(values)
    return exports.row_of_doccano_table(values)
