"""One row as an example: every value checked, and refused with its file, line and remedy.

Characters of answers are counted as Python counts them, and the context must hold the answer at
that place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from maskwright.counted import counted
from maskwright.errors import DataError, near
from maskwright.labelled.columns import fields, flags
from maskwright.labelled.columns.columns import Columns
from maskwright.labelled.columns.contents import is_empty, value_of
from maskwright.labelled.columns.infer import Task
from maskwright.labelled.columns.spellings import plain
from maskwright.labelled.examples import labels
from maskwright.labelled.examples.cell import missing, text_in, text_of
from maskwright.labelled.examples.choices import keys_of, options_of, question_of, right_of
from maskwright.labelled.examples.examples import (
    Answered,
    Choice,
    Example,
    Match,
    Pair,
    Rewrite,
    Single,
    Tagged,
    Target,
)
from maskwright.labelled.examples.labels import Vocabulary
from maskwright.labelled.examples.one_label import number
from maskwright.labelled.formats import as_given
from maskwright.labelled.formats.marked_text import marked
from maskwright.labelled.formats.miscounted import cause_of_place
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.formats.tag_spelling import spelling_of
from maskwright.labelled.formats.whole_number import whole

TRUE, FALSE = {"1", "1.0", "true"}, {"0", "0.0", "false"}
NONE = '{"text": [], "answer_start": []}'
UNANSWERABLE = ("isimpossible", "impossible", "unanswerable")


def reader(task: Task, known: Vocabulary | None) -> Callable[[Row], Example]:
    """What makes an example of a row; it raises DataError where a row is bad."""
    columns, kind = task.columns, task.kind

    def target(row: Row) -> Target:
        if known is None:
            return number(value_of(row, columns["label"]), row, columns["label"])
        if kind == "multi-label":
            return tuple(sorted({known.index(cell, row) for cell in cells(row, task)}))
        return known.index(value_of(row, columns["label"]), row)

    def single(row: Row) -> Example:
        return Single(text_in(row, columns.roles["text"]), target(row), row.where)

    def pair(row: Row) -> Example:
        first, second = (text_in(row, columns.roles[role]) for role in ("first", "second"))
        return Pair(first, second, target(row), row.where)

    def tagged(row: Row) -> Example:
        assert known is not None
        if (text := _marked_text(row, columns)) is not None:
            found = marked(text, value_of(row, columns["tags"]), row.where)
            numbers = tuple(known.index(tag, row) for tag in found.tags)
            return Tagged(found.words, numbers, row.where, text, found.widened, found.miscounted)
        return _tagged(row, columns["tokens"], columns["tags"], list(cells(row, task)), known)

    def answered(row: Row) -> Example:
        question = text_in(row, columns.roles["question"])
        text_in(row, columns.roles["context"])  # nothing that is read is refused as such
        context = text_in(row.as_given(), columns.roles["context"])
        answers = _answers(row, columns["answers"], context)
        impossible = _impossible(row)
        if impossible is not None and impossible == bool(answers):
            raise DataError(
                "the answers and the mark of an unanswerable question contradict each other",
                where=row.where,
                found=f"{counted(len(answers), 'answer')}, marked as "
                f"{'unanswerable' if impossible else 'answerable'}",
                wanted="answers, or that mark",
                do="correct one of the two, or take the row out (--read on_bad=skip drops and "
                "counts it)",
            )
        return Answered(question, context, answers, row.where)

    def choice(row: Row) -> Example:
        options = options_of(row, columns.roles["choices"])
        right = right_of(row, columns["label"], options, keys_of(row, columns.roles["choices"]))
        about = columns.roles.get("context", ())
        context = text_in(row, about) if about else ""
        return Choice(question_of(row, columns.roles), options, right, row.where, context)

    def rewrite(row: Row) -> Example:
        source, target = (text_in(row, columns.roles[role]) for role in ("source", "target"))
        return Rewrite(source, target, row.where, _others(row, columns.roles.get("references")))

    def match(row: Row) -> Example:
        anchor, positive = (text_in(row, columns.roles[role]) for role in ("anchor", "positive"))
        negatives = tuple(text_of(row, name) for name in columns.roles.get("negative", ()))
        return Match(anchor, positive, row.where, negatives)

    make = {
        "single": single,
        "pair": pair,
        "tagging": tagged,
        "question-answering": answered,
        "multiple-choice": choice,
        "sequence": rewrite,
        "matches": match,
    }[columns.shape]

    def read(row: Row) -> Example:
        fields.require(row, columns)
        return make(row)

    return read


def _marked_text(row: Row, columns: Columns) -> str | None:
    """The text of a row in which parts are marked; None of words with tags."""
    if columns.column("tags").kind != "parts":
        return None
    text_of(row, columns["tokens"])  # nothing that is read is refused as such
    return text_of(row.as_given(), columns["tokens"])


def _others(row: Row, names: Sequence[str] | None) -> tuple[str, ...]:
    """The texts in a column of lists of them."""
    if names is None:
        return ()
    value = value_of(row, names[0])
    if type(value) is not list or not value or not all(type(each) is str for each in value):
        raise missing(row, names[0], "list of references", "a list of texts")
    return tuple(value)


def _tagged(row: Row, name: str, tags_name: str, tags: list[Any], known: Vocabulary) -> Tagged:
    tokens = value_of(row, name)
    if type(tokens) is not list or not tokens or not all(type(t) is str for t in tokens):
        raise missing(row, name, "list of tokens", "a list of texts")
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
    spelling = spelling_of(known.names)
    prefixes = {spelling.read(name)[:2] for name in known.names} if spelling else set()
    if spelling is None or "B-" not in prefixes or not prefixes <= {"B-", "I-", "O"}:
        return
    before, before_read = labels.OUTSIDE, labels.OUTSIDE
    for place, tag in enumerate(tags):
        read = spelling.read(tag)
        if read[:2] == "I-" and before_read[2:] != read[2:]:
            raise DataError(
                "a span begins with I-",
                where=f"{row.where}, column {name!r}, token {place + 1}",
                found=f"{tag!r} of {tokens[place]!r} after {before!r}",
                wanted=f"{spelling.write('B' + read[1:])!r}, as IOB2 writes the first token of a "
                "span",
                do="correct the row, take it out (--read on_bad=skip drops and counts it), or let "
                "all spans begin with B- (--read repair_tags=true, for files in IOB1, too)",
            )
        before, before_read = tag, read


def _answers(row: Row, name: str, context: str) -> tuple[tuple[str, int], ...]:
    """The answers, each at its place. Without places the answer must occur just once."""
    value = value_of(row, name)
    starts: list[Any] = []
    if value is None and _impossible(row):
        return ()
    fields.require_field(row, "answers", name, NONE)
    if value is None:
        raise DataError(
            "null in the place of answers",
            where=f"{row.where}, column {name!r}",
            found="null",
            wanted="answers",
            do=f"where there is none, write {NONE}; or take the row out (--read on_bad=skip drops "
            "and counts it)",
        )
    if type(value) is dict:
        if "text" not in value:
            raise DataError(
                "an answer without a text",
                where=f"{row.where}, column {name!r}",
                found=f"the fields {', '.join(value) or '(none)'}",
                wanted="'text'",
                do=f"rename the field ({near('text', value)}), or take the row out (--read "
                "on_bad=skip drops and counts it)",
            )
        texts, starts = value["text"], value.get("answer_start", [])
    elif type(value) is list and value and all(type(each) is dict for each in value):
        texts, starts = [v.get("text") for v in value], [v.get("answer_start") for v in value]
    else:
        texts = value if type(value) is list else [] if is_empty(value) else [value]
        start = value_of(row, "answer_start")
        starts = start if type(start) is list else [] if is_empty(start) else [start]
    if type(texts) is str:
        texts, starts = [texts], [starts]
    if type(texts) is not list or not all(type(t) is str for t in texts):
        raise missing(row, name, "answer", '{"text": ["…"], "answer_start": [0]}')
    if type(starts) is not list or (starts and len(starts) != len(texts)):
        raise missing(row, name, "place of an answer", "as many answer_start as text")
    found = [whole(start) for start in starts] if starts else [None] * len(texts)
    return tuple(
        _placed(text, start, context, row, name) for text, start in zip(texts, found, strict=True)
    )


def _impossible(row: Row) -> bool | None:
    """Whether the row is marked as a question without an answer; None where nothing is said."""
    name = next((name for name in row.values if plain(name) in UNANSWERABLE), None)
    said = "" if name is None else str(row.values[name]).strip().lower()
    return True if said in TRUE else False if said in FALSE else None


def _placed(text: str, start: int | None, context: str, row: Row, name: str) -> tuple[str, int]:
    """(the answer as it stands in the context, where it begins)."""
    if start is not None and start >= 0 and text and context[start : start + len(text)] == text:
        return text, start
    count = context.count(text) if text else 0
    if start is None and count == 1:
        return text, context.index(text)
    if start is not None and (slice_ := as_given.slice_of(context, text, start)) is not None:
        return context[slice_], slice_.start
    there = "" if start is None else context[max(0, start) : max(0, start) + len(text)]
    cause = cause_of_place(context, text, start) if start is not None else None
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
        do=f"{do}; {cause}" if cause else do,
    )


def cells(row: Row, task: Task) -> Iterator[Any]:
    """The labels of a row: one, several, or one for each token."""
    role = "tags" if task.kind == "tagging" else "label"
    names = task.columns.roles[role]
    for name in names:
        fields.require_field(row, role, name, "[]" if task.kind == "multi-label" else "")
    if len(names) > 1:  # a column of flags for each label
        for name in names:
            marks, signs = name in task.marks, name in task.signs
            if flags.in_column(value_of(row, name), row, name, marks=marks, signs=signs):
                yield name
        return
    value = value_of(row, names[0])
    if task.named:
        yield from flags.named(value, row, names[0], task.named)
        return
    if task.flags:
        listed = flags.pieces(value, task.separator)
        yield from flags.places(listed, row, names[0], task.flags)
        return
    if task.kind == "tagging" and (text := _marked_text(row, task.columns)) is not None:
        yield from marked(text, value, f"{row.where}, column {names[0]!r}").tags
        return
    if task.kind not in ("multi-label", "tagging"):
        if not is_empty(value):
            yield value
        return
    if value is None and task.kind == "tagging":
        raise missing(row, names[0], role, "a list of tags")
    value = flags.pieces(value, task.separator)
    yield from value if type(value) is list else [] if is_empty(value) else [value]
