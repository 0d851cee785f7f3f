"""Assign roles to columns: by their names first, by their contents if names do not decide.

The first layout that fits the names wins, the most specific first; each defines how it is tried
(`Layout.find`). Every role can be given instead; `group`, whose rows stay together when parts are
sampled, is never guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from maskwright.base.errors import DataError, UsageError, near, unknown
from maskwright.base.terminal import counted
from maskwright.text.tables.columns import (
    ANSWERED,
    IDS,
    MATCHES,
    NAMES,
    PAIRS,
    QUESTION_CONTEXTS,
    QUESTIONS,
    RATINGS,
    SEQUENCES,
    TEXTLIKE,
    Column,
    ColumnSearch,
    columns_of_flags,
    columns_of_marks,
    describe,
    read_lists,
)
from maskwright.text.tables.layout import Columns, Layout
from maskwright.text.tables.rows import Table, plain
from maskwright.text.tables.shapes import (
    COMMON,
    as_names,
    layouts,
    may_be_list,
    option,
    roles,
    shapes,
)


def find_columns(
    table: Table,
    given: Mapping[str, str | Sequence[str]] | None = None,
    allowed_layouts: Iterable[Layout] | None = None,
) -> Columns:
    """Return the columns of the first layout that fits.

    Args:
        table: the rows; cells of a csv file that spell lists are parsed in place (`read_lists`).
        given: role -> column or columns; other roles are searched for.
        allowed_layouts: the layouts to try; None for all.

    Raises:
        UsageError: an unknown role or column, or no layout has all the roles given.
        DataError: no layout fits, or a part lacks a column that another has.
    """
    requested = as_names(given)
    list_columns = read_lists(table, _texts(table, requested))
    statistics = describe(table.first, list_columns)
    _check_given(requested, statistics)
    if "group" in requested and requested["group"][0] in requested.get("label", ()):
        raise _label_as_group_error(requested["group"][0])
    candidate_layouts = layouts() if allowed_layouts is None else tuple(allowed_layouts)
    optional = {*COMMON, *roles(lambda layout: layout.optional)}
    tried = [layout for layout in candidate_layouts if set(requested) <= {*layout.roles, *optional}]
    if not tried:
        fitting = [
            name
            for name, shape in shapes().items()
            if set(requested) <= {*shape.layout.roles, *optional}
        ]
        raise UsageError(
            "no task has all these columns",
            found=", ".join(requested),
            wanted="; ".join(
                f"{layout.name}: {', '.join(layout.roles)}" for layout in candidate_layouts
            ),
            do="name only columns of one task (--column)"
            + (f", or another task: --task {' or '.join(fitting)}" if fitting else ""),
        )
    partial_matches: list[tuple[Layout, dict[str, tuple[str, ...]]]] = []
    for by_content in (False, True):
        for layout in tried:
            search = ColumnSearch(table.first, statistics, requested, by_content, len(tried) == 1)
            columns = _try_layout(layout, search)
            if columns is None:
                missing = [role for role in layout.roles if role not in search.roles]
                if len(missing) == 1 and len(search.roles) > 1 and not by_content:
                    partial_matches.append((layout, search.roles))
                continue
            columns = layout.complete(table, columns)
            _refuse_lost(table, columns, requested)
            if "label" not in requested:  # a column named by the user is a label column
                _refuse_row_as_header(table, columns)
            _check_parts(table, columns)
            return columns
    if group := requested.pop("group", None):
        for by_content, layout in itertools.product((False, True), tried):
            search = ColumnSearch(table.first, statistics, requested, by_content, len(tried) == 1)
            columns = _try_layout(layout, search)
            if columns is not None and columns.roles.get("label") == group:
                raise _label_as_group_error(group[0])
    raise _unclear_roles_error(table, statistics, tried, partial_matches)


def _try_layout(layout: Layout, search: ColumnSearch) -> Columns | None:
    """Return the columns of `layout`, or None if a required role has no column."""
    search.spellings = layout.spellings
    layout.find(search)
    if not all(role in search.roles for role in layout.roles):
        return None
    order = [*layout.roles, *(role for role in search.roles if role not in layout.roles)]
    return Columns(
        layout=layout,
        roles={role: search.roles[role] for role in order},
        why={role: search.why[role] for role in order},
        described=search.described,
    )


# ------------------------------------------------------------------------------ checks and refusals
def _check_given(requested: Mapping[str, tuple[str, ...]], described: Mapping[str, Column]) -> None:
    """Raise UsageError for unknown roles or columns given by the user."""
    known_roles = (*roles(), *COMMON, *roles(lambda layout: layout.optional))
    multi_column = roles(lambda layout: (*layout.multi_column, *layout.joined))
    for role, names in requested.items():
        if role not in known_roles:
            advice = "correct the role: --column ROLE=NAME"
            raise unknown("no such role of a column", role, known_roles, do=advice)
        if len(names) > 1 and role not in multi_column:
            raise UsageError(
                f"one column holds the {role}",
                where="--column",
                found=f"{role}={', '.join(names)}",
                wanted=f"one of them ({', '.join(multi_column)} may be several)",
                do="join them into one column",
            )
        for name in names:
            if name not in described:
                raise UsageError(
                    "the column is missing",
                    where=f"{role}={name}",
                    found=f"the columns {', '.join(described)}",
                    wanted=near(name, described),
                    do=f"name the column that holds the {role}",
                )


def _texts(table: Table, requested: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the columns that hold texts by the requested roles or by their names."""
    role_of = {name: role for role, names in requested.items() for name in names}
    list_names, text_names = set[str](), set[str]()
    for layout in layouts():
        for role in layout.lists:
            list_names.update(layout.spellings.get(role) or NAMES.get(role, (role,)))
        for role, spellings in layout.spellings.items():
            text_names.update(spellings if role in layout.joined else ())
    text_names.update(*PAIRS, *SEQUENCES, *MATCHES)
    text_names.update(NAMES["question"], NAMES["context"], NAMES["text"])
    names_present = {plain(name) for name in table.columns}
    targets = {
        target
        for source, target in SEQUENCES
        if {source, target} <= names_present and source != "text" and target != "answer"
    }
    return {
        name
        for name in table.columns
        if (
            not may_be_list(role_of[name])
            if name in role_of
            else plain(name) in (text_names - list_names) | targets
        )
    }


def _label_as_group_error(name: str) -> UsageError:
    """Return the error for a `group` column that is the label: all parts need rows of a label."""
    return UsageError(
        "rows cannot be grouped by their label",
        where=option("group", name),
        found=f"{name!r}, which is the only label",
        wanted="a column of what rows have in common, such as an author",
        do=f"name another column, or leave {option('group', name)} out",
    )


def _refuse_row_as_header(table: Table, columns: Columns) -> None:
    """Raise DataError if the header is a row of data: its label occurs as a value below it."""
    names = columns.roles.get("label", ())
    file = table.first[0].file
    if len(names) != 1 or not table.first[0].in_table:
        return
    repetitions = sum(row.values.get(names[0]) == names[0] for row in table.first)
    if repetitions:
        raise DataError(
            "the first row looks like data, not like the names of columns",
            where=file,
            found=f"{names[0]!r}, which is the label of {counted(repetitions, 'row')}, too",
            wanted="a header row, such as text,label",
            do="add a header row, or name the columns (--read header=NAME,NAME…)",
        )


def _refuse_lost(table: Table, columns: Columns, requested: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse to drop columns that belong to the text silently: the context or the answer of a
    question, or, if targets are generated, a column that rates them."""
    text_roles = [role for role in ("text", "first", "second", "source") if role in columns.roles]
    if not text_roles or set(text_roles) & set(requested):
        return
    unused = [columns.described[name] for name in columns.left_out if columns.described[name].rows]
    numeric = ("whole", "number", "boolean")
    ratings = [
        c.name for c in unused if plain(c.name) in RATINGS and (c.has_classes or c.kind in numeric)
    ]
    to_leave_out = " ".join(option(role, n) for role, names in columns.roles.items() for n in names)
    if "target" in columns.roles and ratings:
        pair_options = f"{option('first', columns['source'])} {option('second', columns['target'])}"
        raise DataError(
            "a column that may judge the texts is not read",
            where=table.first[0].file,
            found=f"{ratings[0]!r} next to {columns['target']!r}",
            wanted="columns whose roles are clear",
            do=f"to learn to write, whatever it says: {to_leave_out}; to learn it: {pair_options} "
            f"{option('label', ratings[0])}",
        )
    question = next((role for role in text_roles if plain(columns[role]) in QUESTIONS), None)
    dropped = [c.name for c in unused if plain(c.name) in QUESTION_CONTEXTS]
    if "text" in columns.roles:
        pairs = [c.name for c in unused if (plain(columns["text"]), plain(c.name)) in ANSWERED]
        likely = [c.name for c in unused if c.kind == "text" and not c.has_classes and c.words > 1]
        dropped += pairs + [c.name for c in unused if question and c.is_prose]
        dropped += likely if len(likely) > 2 else []
        question = question or ("text" if pairs else None)
    if question is None or not dropped:
        return
    joined_advice = f"to read it behind the other: {to_leave_out} {option(question, dropped[0])}; "
    is_text = columns.described[dropped[0]].kind in TEXTLIKE
    raise DataError(
        "a column that may belong to the question is not read",
        where=table.first[0].file,
        found=f"{' and '.join(map(repr, dict.fromkeys(dropped)))} next to {columns[question]!r}",
        wanted="columns whose roles are clear",
        do=f"to leave it out: {to_leave_out}; {joined_advice if is_text else ''}or say what each "
        "column is, such as --column context=NAME --column question=NAME --column answers=NAME",
    )


def _check_parts(table: Table, columns: Columns) -> None:
    """Raise DataError if a part lacks a column; drop a test part without answers."""
    for split, rows in list(table.parts.items()):
        for role, names in columns.roles.items():
            for name in names if role != "label_name" and split in table.parts else ():
                outer = name.partition(".")[0]
                if rows and not any({name, outer} & row.values.keys() for row in rows):
                    names_here = sorted({n for row in rows for n in row.values})
                    similar_names = get_close_matches(name, set(names_here) - set(table.columns))
                    is_hidden = role == columns.layout.answer_role and not similar_names
                    if is_hidden and table.without_labels(split, rows, f"no column {name!r}"):
                        break
                    raise DataError(
                        f"the part {split!r} has no column {name!r}",
                        where=rows[0].file,
                        found=f"the columns {', '.join(names_here)}",
                        wanted=f"{name!r}, which holds the {role} in {table.first[0].file}",
                        do=f"rename the column ({near(name, names_here)}), or move the file out of "
                        "the folder",
                    )


def _unclear_roles_error(
    table: Table,
    described: Mapping[str, Column],
    tried: Sequence[Layout],
    partly: Sequence[tuple[Layout, dict[str, tuple[str, ...]]]],
) -> DataError:
    """Return the error if no layout fits, with the options that say what the columns are; `partly`
    are layouts that lack one role."""
    candidates = [c for c in described.values() if plain(c.name) not in IDS]
    texts = [c.name for c in described.values() if c.kind == "text" and c.words >= 2]
    flags = list(dict.fromkeys([*columns_of_flags(candidates), *columns_of_marks(candidates)]))
    labels = [c.name for c in candidates if c.has_classes and c.name not in texts]
    names_present = {plain(name) for name in described}
    if names_present & {"word", "token"} and names_present & {"tag", "ner", "nertag", "label"}:
        do = "rows seem to be single words: add a column sentence_id with the number of each "
        do += "word's sentence, make a .conll file, or write lists, a sentence in each row"
    elif partly:
        layout, assigned = partly[0]
        (role,) = (role for role in layout.roles if role not in assigned)
        used_columns = {name for names in assigned.values() for name in names}
        kinds = {"label": ("number", "whole", "text", "boolean"), "tags": ("texts", "wholes")}
        unused = [
            c.name
            for c in candidates
            if c.name not in used_columns and c.kind in kinds.get(role, (c.kind,))
        ]
        shown = " and ".join(f"{names[0]!r} ({which})" for which, names in assigned.items())
        do = f"{shown} found; add a column with the {role}, or say which it is: "
        do += " or ".join(option(role, name) for name in unused[:3]) or option(role, "NAME")
    elif len(tried) == 1 and not tried[0].has_label_forms:
        do = f"say which columns they are: {' '.join(option(r, 'NAME') for r in tried[0].roles)}; "
        do += "or choose another task, or none"
    elif len(texts) > 1 and len(tried) > 1:
        first_text, second_text = texts[:2]

        def options(role: str, second_role: str) -> str:
            return f"{option(role, first_text)} {option(second_role, second_text)}"

        do = f"say what the texts are: {option('text', first_text)}; or both as one text: "
        do += (
            f"{options('text', 'text')}; or pairs: {options('first', 'second')}; or a text to read "
        )
        do += f"and one to write: {options('source', 'target')}"
    elif texts and len(flags) > 1:
        do = f"where each is a label of its own: {' '.join(option('label', n) for n in flags)}; "
        do += f"where one of them is the label: {option('label', flags[0])}"
    elif labels:
        do = f"say which column is the label: {option('label', labels[0])}"
        do += f" (or {', '.join(labels[1:4])})" if len(labels) > 1 else ""
    elif texts:
        others = [
            c.name for c in candidates if c.name not in texts and c.kind not in ("object", "mixed")
        ]
        do = f"say which column is the label: {option('label', others[0])}; or " if others else ""
        do += "add a column with labels; for text without labels use pretraining"
    elif any(isinstance(value, list | dict) for value in table.first[0].values.values()):
        do = "write what is within objects as columns of their own, such as "
        do += '{"text": "…", "label": "…"} in each line'
    else:
        do = "say what the columns are, such as --column text=NAME --column label=NAME"
    return DataError(
        "the roles of the columns are unclear",
        where=table.first[0].file,
        found=", ".join(
            f"{c.name} ({c.kind}, {c.distinct:,} different)" for c in list(described.values())[:12]
        ),
        wanted="; ".join(" + ".join(layout.roles) for layout in tried),
        do=do,
    )
