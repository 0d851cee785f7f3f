"""Tags that begin a span with I-, rewritten as IOB2 has them: faults of annotation, and files in
IOB1, such as those of CoNLL-2003, where B- stands only between two spans of a kind that touch."""

from __future__ import annotations

from dataclasses import replace

from maskwright.errors import UsageError
from maskwright.tasks import tags
from maskwright.tasks.contents import value_of
from maskwright.tasks.infer import Task
from maskwright.tasks.rows import Row
from maskwright.tasks.table import Table


def repaired(table: Table, task: Task) -> tuple[Table, int]:
    """The same with the spans of `task`'s tags as IOB2 writes them, and how many tags changed; the
    words that belong to a span, and its kind, stay as they are.

    Raises:
        UsageError: a task without tags, or tags that are numbers.
        DataError: a tag that is none of a span.
    """
    if task.kind != "tagging":
        raise UsageError("only tags of words are repaired", where="--read repair_tags",
                         found=task.kind, wanted="tagging", do="leave it out")  # fmt: skip
    name, changed = task.columns["tags"], 0
    parts: dict[str, list[Row]] = {}
    for part, rows in table.parts.items():
        parts[part] = []
        for row in rows:
            given = value_of(row, name)
            made = row
            if type(given) is list and given:
                if not all(type(tag) is str for tag in given):
                    raise UsageError("only names of tags say where a span begins",
                                     where=f"{row.where}, column {name!r}", found=given[:5],
                                     wanted="tags such as B-LOC", do="leave it out")  # fmt: skip
                legal, here = tags.repair(given, "IOB2", row.where)
                changed += here
                made = replace(row, values={**row.values, name: legal}) if here else row
            parts[part].append(made)
    return replace(table, parts=parts), changed
