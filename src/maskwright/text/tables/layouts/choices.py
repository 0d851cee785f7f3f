"""Layout of a question with choices, in one column of lists or one column each, and the right one.

{"question": "…", "choices": ["…", "…"], "label": 1}
{"question": "…", "choices": {"text": ["…", "…"], "label": ["A", "B"]}, "answerKey": "B"}
{"article": "…", "question": "…", "options": ["…", "…"], "answer": "B"}
"""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.text.tables.cell_values import (
    as_integer,
    is_empty,
    joined,
    missing,
    text_in,
    text_of,
)
from maskwright.text.tables.examples import ChoiceExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Layout, Task
from maskwright.text.tables.role_search import NUMBERED, TEXTLIKE, ColumnSearch
from maskwright.text.tables.rows import Row, Table, value_of

LETTERS = string.ascii_uppercase
MIN_ROWS = 5  # rows; with fewer, a 0 may be missing by chance

# Names of the column with the right choice.
ANSWERING = (
    *("label", "answer", "answerkey", "correct", "correctoption", "correctanswer", "gold"),
    *("target",),
)


class ChoicesLayout(Layout):
    """A question, at least two choices, and the right one."""

    name = "choices"
    roles = ("question", "choices", "label")
    multi_column = ("choices",)
    joined = ("question",)
    lists = ("choices",)
    rank = 30

    def find(self, search: ColumnSearch) -> None:
        search.by_name("choices", lambda c: c.kind in ("texts", "object"))
        if "choices" not in search.roles:
            columns_by_prefix: dict[str, list[str]] = {}
            for column in search.free():
                match = NUMBERED.fullmatch(column.name.lower())
                if match and column.kind in TEXTLIKE:
                    columns_by_prefix.setdefault(match[1], []).append(column.name)
            letters = [search.by_plain.get(letter) for letter in "abcdefgh"]
            lettered = list(itertools.takewhile(lambda name: name is not None, letters))
            if len(lettered) > 2:
                columns_by_prefix["letters"] = [name for name in lettered if name is not None]
            longest_series = max(columns_by_prefix.values(), key=len, default=[])
            if len(longest_series) >= 2:
                order = sorted(longest_series, key=lambda name: (len(name), name))
                search.take("choices", order, "by their numbered names")
        if "choices" in search.roles:
            search.by_name("context", lambda c: c.kind == "text" and c.words >= 2)
            search.by_name("question", lambda c: c.kind == "text")
            if "question" not in search.roles and "context" in search.roles:
                search.take("question", search.roles.pop("context"), search.why.pop("context"))
            for spelling in ANSWERING:
                name = search.by_plain.get(spelling)
                if "label" not in search.roles and name in {c.name for c in search.free()}:
                    assert name is not None
                    search.take("label", [name], "by its name")

    def reason(self, columns: Columns) -> str:
        return "each row has a question and several choices"

    def prepare(
        self, table: Table, task: Task, classes: Sequence[str]
    ) -> tuple[Table, Iterator[Finding]]:
        require_from_zero(itertools.chain.from_iterable(table.parts.values()), task.columns)
        return table, iter(())

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> ChoiceExample:
        columns = task.columns
        options = options_of(row, columns.roles["choices"])
        right = right_of(row, columns["label"], options, keys_of(row, columns.roles["choices"]))
        context_columns = columns.roles.get("context", ())
        context = text_in(row, context_columns) if context_columns else ""
        return ChoiceExample(question_of(row, columns.roles), options, right, row.where, context)


def question_of(row: Row, columns: Mapping[str, Sequence[str]]) -> str:
    """Return the question of a row, preceded by the text it refers to, if there is one.

    Raises:
        DataError: one of them is not a text.
    """
    text_roles = [role for role in ("context", "question") if role in columns]
    return joined(text_in(row, columns[role]) for role in text_roles)


def keys_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the choices of a row as in {"text": […], "label": ["A", "B"]}, or ()."""
    value = value_of(row, names[0]) if len(names) == 1 else None
    keys = value.get("label") if type(value) is dict else None
    return tuple(str(key).strip() for key in keys) if type(keys) is list else ()


def options_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """Return the choices from one column of lists, or one column each (the last may be empty).

    Raises:
        DataError: fewer than two choices, or values that are not texts.
    """
    if len(names) > 1:
        filled = [n for n, name in enumerate(names) if not is_empty(value_of(row, name))]
        count = max(filled, default=-1) + 1
        if count < 2:
            raise missing(row, names[min(count, 1)], "choice", "at least two")
        return tuple(text_of(row, name) for name in names[:count])
    value = value_of(row, names[0])
    if type(value) is dict:
        value = value.get("text")
    texts = [v for v in value if type(v) is str and not is_empty(v)] if type(value) is list else []
    if len(texts) < 2 or texts != value:
        raise missing(row, names[0], "list of choices", "a list of at least two texts")
    return tuple(value)


def right_of(row: Row, name: str, options: Sequence[str], keys: Sequence[str]) -> int:
    """Return the index of the right choice, given as its name in `keys`, its index from 0, its
    letter, or its text."""
    value = value_of(row, name)
    if len(set(keys)) == len(options) and str(value).strip() in keys:
        return keys.index(str(value).strip())
    index = as_integer(value)
    if type(value) is str:
        option_counts = Counter(options)
        letter = value.strip().upper()
        if option_counts[value] == 1:
            exact = options.index(value)
            if index is not None and index != exact and 0 <= index < len(options):
                raise DataError(
                    "the label means two choices of this row",
                    where=f"{row.where}, column {name!r}",
                    found=f"{value!r}: choice {index} is {options[index]!r}, choice {exact} is it",
                    wanted="a place, counted from 0, or the words of a choice",
                    do="write letters, A for the first choice, in all rows",
                )
            index = exact
        elif index is None and len(letter) == 1 and letter in LETTERS:
            index = LETTERS.index(letter)
    if index is None or not 0 <= index < len(options):
        raise DataError(
            "the label is no choice of this row",
            where=f"{row.where}, column {name!r}",
            found=repr(value),
            wanted=f"0 to {len(options) - 1}, a letter from A on, or the choice itself",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    return index


def require_from_zero(rows: Iterable[Row], columns: Columns) -> None:
    """Check that indices of choices do not count from 1, which would name the choice after the
    right one: none is 0, and one equals the number of choices.

    Raises:
        DataError: they seem to count from 1.
    """
    name, choices = columns["label"], columns.roles["choices"]
    row_beyond, count = None, 0
    for row in rows:
        value = value_of(row, name)
        index = as_integer(value)
        if index is None or str(value).strip() in keys_of(row, choices):
            continue
        if index < 1:
            return
        try:
            options = options_of(row, choices)
        except DataError:  # reported when the row is read
            continue
        row_beyond = row_beyond or (row if index == len(options) and value not in options else None)
        count += 1
    if row_beyond is not None and count >= MIN_ROWS:
        raise DataError(
            "the right choices seem to be counted from 1",
            where=f"{row_beyond.where}, column {name!r}",
            found=f"{value_of(row_beyond, name)!r}, and nowhere a 0",
            wanted="places counted from 0, letters from A on, or the choices themselves",
            do="take one from each, or write letters: A for 1",
        )


CHOICES = ChoicesLayout()
