"""Columns that a task would leave out although they seem to belong to it: the user decides."""

from __future__ import annotations

from collections.abc import Mapping

from maskwright.base.errors import DataError
from maskwright.text.tables.column_contents import Column
from maskwright.text.tables.columns import Columns, option
from maskwright.text.tables.files import Table
from maskwright.text.tables.role_search import TEXTLIKE
from maskwright.text.tables.spellings import NAMES, SEQUENCES, plain

# What a text called so is about, and what it is about, often stand in columns of their own.
ASKING = {"question", "query", "prompt", "instruction", "questionstem", "stem"}
QUESTION_CONTEXTS = {
    *(*NAMES["context"], *NAMES["choices"], "story", "storytext", "background", "input", "text"),
}
# What is answered, summed up, and so on; a title is no answer.
ANSWERED = {(plain(one), plain(two)) for one, two in SEQUENCES if one != "text" and two != "title"}
# Names of columns that rate an answer or a translation.
JUDGING = {
    *("label", "labels", "goldlabel", "gold", "score", "rating", "grade", "quality", "verdict"),
    *("issafe", "safe", "iscorrect", "correct", "correctness", "helpfulness", "preference"),
}


def refuse_half(table: Table, columns: Columns, wanted: Mapping[str, tuple[str, ...]]) -> None:
    """Where a question is read, what it is about and what is answered are not left out without a
    word of the user; nor, where answers are learned, what judges them.

    Raises:
        DataError: such a column would be left out.
    """
    texts = [role for role in ("text", "first", "second", "source") if role in columns.roles]
    if not texts or set(texts) & set(wanted):
        return
    options = " ".join(
        option(role, name) for role, names in columns.roles.items() for name in names
    )
    left = [columns.described[name] for name in columns.left_out if columns.described[name].rows]
    judging = [c.name for c in left if plain(c.name) in JUDGING and _tells_classes(c)]
    if "target" in columns.roles and judging:
        both = f"{option('first', columns['source'])} {option('second', columns['target'])}"
        raise DataError(
            "a column that may judge the texts is not read",
            where=table.first[0].file,
            found=f"{judging[0]!r} next to {columns['target']!r}",
            wanted="columns whose roles are clear",
            do=f"to learn to write, whatever it says: {options}; to learn it: {both} "
            f"{option('label', judging[0])}",
        )
    asking = next((role for role in texts if plain(columns[role]) in ASKING), None)
    rest = [c.name for c in left if plain(c.name) in QUESTION_CONTEXTS]
    if "text" in columns.roles:
        paired = [c.name for c in left if (plain(columns["text"]), plain(c.name)) in ANSWERED]
        answers = [c.name for c in left if c.kind == "text" and not c.has_classes and c.words > 1]
        rest += paired + [c.name for c in left if asking and c.is_prose]
        rest += answers if len(answers) > 2 else []
        asking = asking or ("text" if paired else None)
    if asking is None or not rest:
        return
    rest = list(dict.fromkeys(rest))
    behind = f"to read it behind the other: {options} {option(asking, rest[0])}; "
    raise DataError(
        "a column that may belong to the question is not read",
        where=table.first[0].file,
        found=f"{' and '.join(map(repr, rest))} next to {columns[asking]!r}",
        wanted="columns whose roles are clear",
        do=f"to leave it out: {options}; "
        + (behind if columns.described[rest[0]].kind in TEXTLIKE else "")
        + "or say what each column is, such as --column context=NAME --column question=NAME "
        "--column answers=NAME",
    )


def _tells_classes(column: Column) -> bool:
    return column.has_classes or column.kind in ("whole", "number", "boolean")
