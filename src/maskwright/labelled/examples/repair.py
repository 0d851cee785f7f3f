"""Tags that begin a span with I-, rewritten as IOB2 has them: faults of annotation, and files in
IOB1, such as those of CoNLL-2003, where B- stands only between two spans of a kind that touch. And
tags of the kind O, which are outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from maskwright.errors import UsageError
from maskwright.labelled.columns.contents import value_of
from maskwright.labelled.columns.infer import Task
from maskwright.labelled.formats import tags
from maskwright.labelled.formats.rows import Row
from maskwright.labelled.formats.table import Table
from maskwright.labelled.formats.tag_spelling import Spelling, spelling_of


def repaired(table: Table, task: Task) -> tuple[Table, int]:
    """The same with the spans of `task`'s tags as IOB2 writes them, and how many tags changed; the
    words that belong to a span, and its kind, stay as they are.

    Raises:
        UsageError: a task without tags, or tags that are numbers.
        DataError: a tag that is none of a span.
    """
    if task.kind != "tagging":
        raise UsageError(
            "only tags of words are repaired",
            where="--read repair_tags",
            found=task.kind,
            wanted="tagging",
            do="leave it out",
        )
    name, changed = task.columns["tags"], 0
    spelling = spelling_of(_tags(table, name)) or Spelling()
    parts: dict[str, list[Row]] = {}
    for part, rows in table.parts.items():
        parts[part] = []
        for row in rows:
            given = value_of(row, name)
            made = row
            if type(given) is list and given:
                if not all(type(tag) is str for tag in given):
                    raise UsageError(
                        "only names of tags say where a span begins",
                        where=f"{row.where}, column {name!r}",
                        found=given[:5],
                        wanted="tags such as B-LOC",
                        do="leave it out",
                    )
                read = [spelling.read(tag) for tag in given]
                legal, here = tags.repair(read, "IOB2", row.where)
                changed += here
                legal = [spelling.write(tag) for tag in legal]
                made = replace(row, values={**row.values, name: legal}) if here else row
            parts[part].append(made)
    return replace(table, parts=parts), changed


def without_empty(
    table: Table, task: Task, known: Collection[str] = ()
) -> tuple[Table, Counter[str]]:
    """The same with O for tags of the kind O, as I-O, and how often each stood there. Those that a
    model has as classes (`known`) stay."""
    name = task.columns["tags"]
    spelling = spelling_of(_tags(table, name))
    empty = spelling.empty - set(known) if spelling is not None else frozenset[str]()
    counts: Counter[str] = Counter()
    if spelling is None or not empty:
        return table, counts
    parts: dict[str, list[Row]] = {}
    for part, rows in table.parts.items():
        parts[part] = []
        for row in rows:
            given = value_of(row, name)
            made = row
            if type(given) is list and (odd := [tag for tag in given if _is_in(tag, empty)]):
                counts.update(odd)
                legal = [spelling.outside if _is_in(tag, empty) else tag for tag in given]
                made = replace(row, values={**row.values, name: legal})
            parts[part].append(made)
    return replace(table, parts=parts), counts


def _is_in(tag: Any, tags: Collection[str]) -> bool:
    return type(tag) is str and tag in tags


def _tags(table: Table, name: str) -> set[str]:
    """Every tag of all parts that is a text."""
    rows = (row for part in table.parts.values() for row in part)
    lists = (value for row in rows if type(value := value_of(row, name)) is list)
    return {tag for some in lists for tag in some if type(tag) is str}
