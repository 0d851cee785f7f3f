"""Rows to examples: every value checked on the way, and refused with its file, line and remedy.

The classes are learned from the training rows, so a label that only validation has is an error.
Characters of answers are counted as Python counts them, and the context must hold the answer at
that place. By the policy `skip`, bad rows are left out, counted and listed, up to a share.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from maskwright.corpus.reading import Reading
from maskwright.errors import DataError, StorageError
from maskwright.tasks import labels
from maskwright.tasks.contents import is_empty, value_of
from maskwright.tasks.examples import (
    Answered,
    Choice,
    Example,
    Examples,
    Match,
    Pair,
    Rewrite,
    Single,
    Tagged,
    Target,
)
from maskwright.tasks.infer import KINDS, Task, whole
from maskwright.tasks.labels import Vocabulary
from maskwright.tasks.repair import repaired
from maskwright.tasks.table import DEFAULT, Row, Table

LETTERS = string.ascii_uppercase
TRUE = {"1", "1.0", "true"}


def build(
    table: Table,
    task: Task,
    *,
    fold_labels: bool = False,
    repair_tags: bool = False,
    reading: Reading = DEFAULT,
    classes: Sequence[str] = (),
    values: Sequence[int] | None = None,
) -> Examples:
    """Every row as an example; the classes are those of the training rows.

    Args:
        table: the rows.
        task: as inferred.
        fold_labels: join labels that differ only by case or blanks.
        repair_tags: let spans of tags begin with B- where they begin with I-.
        reading: whether bad rows stop it or are left out (`on_bad`), and how many may be bad.
        classes: the names of the classes in their order, where a model has them already.
        values: the number of each class in the data that the model learned from, where these had
            numbers.

    Raises:
        DataError: a bad row, or with `skip` too many of them; bad classes.
        StorageError: the list of rejected rows cannot be written.
    """
    known, changed = None, 0
    if repair_tags:
        table, changed = repaired(table, task)
    if _has_classes(task):
        if classes:
            known = _given(classes, values, table, task, fold_labels)
        else:
            known = _classes(table, task, fold_labels, reading)
    read = _reader(task, known)
    parts: dict[str, list[Any]] = {}
    groups: dict[str, list[str]] = {}
    dropped: list[tuple[str, str]] = []
    for part, rows in table.parts.items():
        if rows is not table.first:
            _check_labelled(part, rows, task, known)
        made, bad = _usable(rows, lambda row: (row, read(row)), reading)
        parts[part] = [example for _, example in made]
        if "group" in task.columns.roles:
            groups[part] = [str(value_of(row, task.columns["group"])) for row, _ in made]
        _list(bad, table.rejects.get(part))
        dropped += [(error.where or "", error.what) for _, error in bad]
        if not made:
            raise DataError("the part has no rows", where=part, found="0 rows",
                            wanted="at least one row", do="leave the part out")  # fmt: skip
    return Examples(task, parts, known, dropped, table.counts, groups, repaired=changed)


def _check_labelled(part: str, rows: Sequence[Row], task: Task, known: Vocabulary | None) -> None:
    """Test parts of public sets often come without labels, or with -1 in every row."""
    names = task.columns.roles.get("label", ())
    if len(names) != 1 or task.kind == "multi-label" or (known and -1 in known.places):
        return
    values = [value_of(row, names[0]) for row in rows]
    if all(is_empty(v) or (known is not None and whole(v) == -1) for v in values):
        raise DataError(
            f"the part {part!r} has no labels",
            where=f"{rows[0].file}, column {names[0]!r}",
            found=f"{values[0]!r} in all {len(rows):,} rows",
            wanted="labels to compare with",
            do="leave this part out; another can be drawn from the training rows",
        )


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
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {first.what} ({first.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows, or raise it (--read max_bad_fraction=0.1)",
        )
    return found, bad


def _list(bad: Sequence[tuple[Row, DataError]], path: Path | None) -> None:
    """Add rows to the list of rejects that the reading of the file began."""
    if path is None or not bad:
        return
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            for row, error in bad:
                entry = {"file": row.file, row.unit: row.number, "reason": error.what,
                         "found": error.found, "wanted": error.wanted}  # fmt: skip
                file.write(json.dumps(entry) + "\n")
    except OSError as failure:
        raise StorageError("the list of rejected rows could not be written", where=path,
                           found=failure.strerror) from failure  # fmt: skip


def cells(row: Row, task: Task) -> Iterator[Any]:
    """The labels of a row: one, several, or one for each token."""
    role = "tags" if task.kind == "tagging" else "label"
    names = task.columns.roles[role]
    if len(names) > 1:  # a column of 0 and 1 for each label
        for name in names:
            if _flag(value_of(row, name), row, name):
                yield name
        return
    value = value_of(row, names[0])
    if task.kind not in ("multi-label", "tagging"):
        if not is_empty(value):
            yield value
        return
    if value is None and task.kind == "tagging":
        raise _missing(row, names[0], role, "a list of tags")
    if type(value) is str and task.separator is not None:
        value = [piece.strip() for piece in value.split(task.separator) if piece.strip()]
    yield from value if type(value) is list else [] if is_empty(value) else [value]


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
        folded = labels.fold_onto(plain, map(str, met)) if fold else {}
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
            labels.spelled(cell, row, name, numbers, words=bool(names))
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


# ------------------------------------------------------------------------------ one row
def _reader(task: Task, known: Vocabulary | None) -> Callable[[Row], Example]:
    columns, kind = task.columns, task.kind

    def target(row: Row) -> Target:
        if known is None:
            return labels.number(value_of(row, columns["label"]), row, columns["label"])
        if kind == "multi-label":
            return tuple(sorted({known.index(cell, row) for cell in cells(row, task)}))
        return known.index(value_of(row, columns["label"]), row)

    def single(row: Row) -> Example:
        return Single(text_of(row, columns["text"]), target(row), row.where)

    def pair(row: Row) -> Example:
        first, second = (text_of(row, columns[role]) for role in ("first", "second"))
        return Pair(first, second, target(row), row.where)

    def tagged(row: Row) -> Example:
        assert known is not None
        return _tagged(row, columns["tokens"], columns["tags"], list(cells(row, task)), known)

    def answered(row: Row) -> Example:
        question, context = (text_of(row, columns[role]) for role in ("question", "context"))
        return Answered(question, context, _answers(row, columns["answers"], context), row.where)

    def choice(row: Row) -> Example:
        options = options_of(row, columns.roles["choices"])
        question = text_of(row, columns["question"])
        return Choice(question, options, _right(row, columns["label"], options), row.where)

    def rewrite(row: Row) -> Example:
        source, target = (text_of(row, columns[role]) for role in ("source", "target"))
        return Rewrite(source, target, row.where, _others(row, columns.roles.get("references")))

    def match(row: Row) -> Example:
        anchor, positive = (text_of(row, columns[role]) for role in ("anchor", "positive"))
        negatives = tuple(text_of(row, name) for name in columns.roles.get("negative", ()))
        return Match(anchor, positive, row.where, negatives)

    return {
        "single": single,
        "pair": pair,
        "tagging": tagged,
        "question-answering": answered,
        "multiple-choice": choice,
        "sequence": rewrite,
        "matches": match,
    }[columns.shape]


def text_of(row: Row, name: str) -> str:
    """The text in a column of `row`; numbers are texts as they are written.

    Raises:
        DataError: nothing, another kind of value, or blanks only.
    """
    value = value_of(row, name)
    if type(value) in (int, float):
        value = str(value)
    if type(value) is not str:
        raise _missing(row, name, "text", "a text")
    if is_empty(value):
        raise DataError(
            "the text is empty",
            where=f"{row.where}, column {name!r}",
            found=repr(value),
            wanted="a text",
            do="write one, or take the row out (--read on_bad=skip drops and counts it)",
        )
    return value


def _missing(row: Row, name: str, role: str, wanted: str) -> DataError:
    value = value_of(row, name)
    return DataError(
        f"the {role} is missing" if value is None else f"the {role} is of another type",
        where=f"{row.where}, column {name!r}",
        found="nothing" if value is None else repr(value),
        wanted=wanted,
        do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
    )


def _others(row: Row, names: Sequence[str] | None) -> tuple[str, ...]:
    """The texts in a column of lists of them."""
    if names is None:
        return ()
    value = value_of(row, names[0])
    if type(value) is not list or not value or not all(type(each) is str for each in value):
        raise _missing(row, names[0], "list of references", "a list of texts")
    return tuple(value)


def _flag(value: Any, row: Row, name: str) -> bool:
    said = str(value).strip().lower()
    if said not in TRUE and said not in ("0", "0.0", "false"):
        raise _missing(row, name, "label", "0 or 1")
    return said in TRUE


def _tagged(row: Row, name: str, tags_name: str, tags: list[Any], known: Vocabulary) -> Tagged:
    tokens = value_of(row, name)
    if type(tokens) is not list or not tokens or not all(type(t) is str for t in tokens):
        raise _missing(row, name, "list of tokens", "a list of texts")
    if len(tokens) != len(tags):
        raise DataError(
            "tokens and tags differ in number",
            where=f"{row.where}, columns {name!r} and {tags_name!r}",
            found=f"{len(tokens)} tokens and {len(tags)} tags",
            wanted="one tag for each token",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    numbers = tuple(known.index(tag, row) for tag in tags)
    _check_spans([known.names[n] for n in numbers], tokens, row, tags_name, known)
    return Tagged(tuple(tokens), numbers, row.where)


def _check_spans(
    tags: list[str], tokens: list[str], row: Row, name: str, known: Vocabulary
) -> None:
    """`I-x` follows `B-x` or `I-x`, where the tags are of that scheme."""
    if not _is_iob(known):
        return
    before = labels.OUTSIDE
    for place, tag in enumerate(tags):
        if tag[:2] == "I-" and before[2:] != tag[2:]:
            raise DataError(
                "a span begins with I-",
                where=f"{row.where}, column {name!r}, token {place + 1}",
                found=f"{tag!r} of {tokens[place]!r} after {before!r}",
                wanted=f"{'B' + tag[1:]!r}, as IOB2 writes the first token of a span",
                do="correct the row, take it out (--read on_bad=skip drops and counts it), or let "
                "all spans begin with B- (--read repair_tags=true, for files in IOB1, too)",
            )
        before = tag


def _is_iob(known: Vocabulary) -> bool:
    kinds = {name[:2] for name in known.names if name != labels.OUTSIDE}
    return "B-" in kinds and kinds <= {"B-", "I-"}


def _answers(row: Row, name: str, context: str) -> tuple[tuple[str, int], ...]:
    """The answers, each at its place. Without places the answer must occur just once."""
    value = value_of(row, name)
    starts: list[Any] = []
    if type(value) is dict:
        texts, starts = value.get("text", []), value.get("answer_start", [])
    elif type(value) is list and value and type(value[0]) is dict:
        texts, starts = [v.get("text") for v in value], [v.get("answer_start") for v in value]
    else:
        texts = value if type(value) is list else [] if is_empty(value) else [value]
        start = value_of(row, "answer_start")
        starts = start if type(start) is list else [] if is_empty(start) else [start]
    if type(texts) is str:
        texts, starts = [texts], [starts]
    if type(texts) is not list or not all(type(t) is str for t in texts):
        raise _missing(row, name, "answer", '{"text": ["…"], "answer_start": [0]}')
    if starts and len(starts) != len(texts):
        raise _missing(row, name, "place of an answer", "as many answer_start as text")
    found = [whole(start) for start in starts] if starts else [None] * len(texts)
    return tuple(
        (text, _place(text, start, context, row, name))
        for text, start in zip(texts, found, strict=True)
    )


def _place(text: str, start: int | None, context: str, row: Row, name: str) -> int:
    if start is not None and start >= 0 and text and context[start : start + len(text)] == text:
        return start
    count = context.count(text) if text else 0
    if start is None and count == 1:
        return context.index(text)
    there = "" if start is None else context[max(0, start) : max(0, start) + len(text)]
    if count == 1:
        do = f"it stands there once, at character {context.index(text)}: correct answer_start"
    elif count:
        places = [match.start() for match in re.finditer(re.escape(text), context)]
        do = f"it stands there {count} times, at {', '.join(map(str, places[:5]))}: say which"
    else:
        do = "correct the answer, or take the row out (--read on_bad=skip drops and counts it)"
    raise DataError(
        "the answer is not in the context at its place",
        where=f"{row.where}, column {name!r}",
        found=f"{text!r}, at character {start}: {there!r}" if start is not None else repr(text),
        wanted="context[start : start + len(answer)] == answer, in characters",
        do=do,
    )


def options_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """The choices in a column of lists, or in a column each, of which the last may be empty.

    Raises:
        DataError: fewer than two, or no texts.
    """
    if len(names) > 1:
        filled = [n for n, name in enumerate(names) if not is_empty(value_of(row, name))]
        count = max(filled, default=-1) + 1
        if count < 2:
            raise _missing(row, names[min(count, 1)], "choice", "at least two")
        return tuple(text_of(row, name) for name in names[:count])
    value = value_of(row, names[0])
    if type(value) is dict:
        value = value.get("text")
    if type(value) is not list or len(value) < 2 or not all(type(v) is str for v in value):
        raise _missing(row, names[0], "list of choices", "a list of at least two texts")
    return tuple(value)


def _right(row: Row, name: str, options: Sequence[str]) -> int:
    """The right choice by its place, counted from 0, by its letter, or by its words."""
    value = value_of(row, name)
    place = whole(value)
    if type(value) is str:
        known = Counter(options)
        letter = value.strip().upper()
        if known[value] == 1:
            own = options.index(value)
            if place is not None and place != own and 0 <= place < len(options):
                raise DataError(
                    "the label means two choices of this row",
                    where=f"{row.where}, column {name!r}",
                    found=f"{value!r}: choice {place} is {options[place]!r}, choice {own} is it",
                    wanted="a place, counted from 0, or the words of a choice",
                    do="write letters, A for the first choice, in all rows",
                )
            place = own
        elif place is None and len(letter) == 1 and letter in LETTERS:
            place = LETTERS.index(letter)
    if place is None or not 0 <= place < len(options):
        raise DataError(
            "the label is no choice of this row",
            where=f"{row.where}, column {name!r}",
            found=repr(value),
            wanted=f"0 to {len(options) - 1}, a letter from A on, or the choice itself",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    return place
