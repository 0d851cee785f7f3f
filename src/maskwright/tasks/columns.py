"""Which column is what: by its name first, by its content where names say nothing.

A shape is a set of roles that belong together; the first that fits the names wins, in this order:

    tagging             tokens, tags              question-answering  question, context, answers
    multiple-choice     question, choices, label  pair                first, second, label
    single              text, label               sequence            source, target
    matches             anchor, positive

Whatever is chosen is said with its reason (`Columns.lines`), and every role can be given instead;
`group`, what must not be torn apart when parts are drawn, is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from maskwright.errors import DataError, UsageError, near
from maskwright.tasks.contents import MANY_ROWS, Column, describe, is_empty, value_of
from maskwright.tasks.list_cells import TABLE_FILE, list_of, read_lists, refuse_list_of_numpy
from maskwright.tasks.spellings import (
    MATCHES,
    NAMES,
    NEGATIVE,
    NUMBERED,
    PAIRS,
    SEQUENCES,
    plain,
)
from maskwright.tasks.table import Row, Table

SHAPES: dict[str, tuple[str, ...]] = {
    "tagging": ("tokens", "tags"),
    "question-answering": ("question", "context", "answers"),
    "multiple-choice": ("question", "choices", "label"),
    "pair": ("first", "second", "label"),
    "single": ("text", "label"),
    "sequence": ("source", "target"),
    "matches": ("anchor", "positive"),
}
# The names of classes that are numbers; what must not be torn apart when parts are drawn; lists of
# all texts that would be right where one is to be written; texts that nearly belong to an anchor.
OPTIONAL = ("label_name", "group", "references", "negative")
# Roles that several columns may fill together.
SEVERAL = ("label", "choices", "negative")
# Of two columns of texts, one is the longer when the other has less than this share of its words.
ALIKE = 0.5
# Short texts may happen to spell numbers.
TEXTLIKE = ("text", "whole", "number")
ROLES = tuple(dict.fromkeys(role for roles in SHAPES.values() for role in roles))
# Roles whose values may be lists; columns that are called as others are texts, whatever they hold.
LISTS = ("tokens", "tags", "choices", "answers", "label", "references")
CALLED_LISTS = {spelling for role in LISTS for spelling in NAMES.get(role, (role,))}
CALLED_TEXTS = {
    spelling
    for spellings in (
        *(NAMES["question"], NAMES["context"], NAMES["text"]), *PAIRS, *SEQUENCES, *MATCHES,
    )
    for spelling in spellings
} - CALLED_LISTS  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """The columns of a shape, by role, and why each was taken.

    Attributes:
        shape: a name in `SHAPES`.
        roles: role -> names of columns; several for `choices`, and for labels of one column each.
        why: role -> reason.
        described: every column of the table.
    """

    shape: str
    roles: dict[str, tuple[str, ...]]
    why: dict[str, str]
    described: dict[str, Column]

    def __getitem__(self, role: str) -> str:
        return self.roles[role][0]

    def column(self, role: str) -> Column:
        return self.described[self[role]]

    @property
    def left_out(self) -> list[str]:
        used = {name.split(".")[0] for names in self.roles.values() for name in names}
        return [name for name in self.described if name not in used and "." not in name]

    def lines(self) -> list[str]:
        """One line for each role, and one for what is not used."""
        said = [
            f"using column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} as {role} "
            f"({self.why[role]}{'; its cells hold lists' if self._in_cells(names) else ''})"
            for role, names in self.roles.items()
        ]
        if self.left_out:
            said.append(f"not used: {', '.join(map(repr, self.left_out))}")
        return said

    def _in_cells(self, names: Sequence[str]) -> bool:
        return any(name in self.described and self.described[name].in_cells for name in names)


def find(
    table: Table,
    given: Mapping[str, str | Sequence[str]] | None = None,
    shapes: Iterable[str] = SHAPES,
) -> Columns:
    """The columns of the first shape that fits.

    Args:
        table: the rows; cells of a csv that spell lists become lists (`list_cells.read_lists`).
        given: role -> column, or columns; what is not given is searched for.
        shapes: those to try.

    Raises:
        UsageError: an unknown role or column, or no shape that has all the roles given.
        DataError: no shape fits, a part lacks a column that another has, or some labels only are
            lists.
    """
    wanted = {role: _as_names(names) for role, names in (given or {}).items()}
    lists = read_lists(table, _texts(table, wanted))
    described = describe(table.first, lists)
    _check_given(wanted, described)
    tried = [s for s in shapes if set(wanted) <= {*SHAPES[s], *OPTIONAL}]
    if not tried:
        raise UsageError(
            "no task has all these columns",
            found=", ".join(wanted),
            wanted="; ".join(f"{s}: {', '.join(SHAPES[s])}" for s in shapes),
        )
    for by_content in (False, True):
        for shape in tried:
            found = _Search(table.first, described, wanted, by_content).search(shape)
            if found is not None:
                if "references" not in found.roles:
                    found = _with_references(table, found)
                _check_parts(table, found)
                _refuse_some_lists(table, found)
                return found
    raise _nothing_fits(table, described, tried)


# ------------------------------------------------------------------------------ the search
class _Search:
    """One attempt: roles are filled one after the other, and a column has one role only."""

    def __init__(
        self,
        rows: Sequence[Row],
        described: dict[str, Column],
        given: Mapping[str, tuple[str, ...]],
        by_content: bool,
    ) -> None:
        self.rows, self.described, self.by_content = rows, described, by_content
        self.roles = dict(given)
        self.why = dict.fromkeys(given, "as you said")
        self.by_plain: dict[str, str] = {}
        for name in described:
            self.by_plain.setdefault(plain(name), name)

    def search(self, shape: str) -> Columns | None:
        fill: dict[str, Callable[[], None]] = {
            "tagging": self._tagging,
            "question-answering": self._question_answering,
            "multiple-choice": self._multiple_choice,
            "pair": self._pair,
            "single": self._single,
            "sequence": self._sequence,
            "matches": self._matches,
        }
        fill[shape]()
        if not all(role in self.roles for role in SHAPES[shape]):
            return None
        order = [*SHAPES[shape], *(r for r in self.roles if r not in SHAPES[shape])]
        return Columns(
            shape=shape,
            roles={role: self.roles[role] for role in order},
            why={role: self.why[role] for role in order},
            described=self.described,
        )

    def _free(self) -> list[Column]:
        used = {name for names in self.roles.values() for name in names}
        return [c for c in self.described.values() if c.name not in used]

    def _take(self, role: str, names: Sequence[str], why: str) -> None:
        self.roles[role], self.why[role] = tuple(names), why

    def _by_name(self, role: str, fits: Callable[[Column], bool]) -> None:
        if role in self.roles:
            return
        free = {c.name for c in self._free() if fits(c)}
        for spelling in NAMES[role]:
            name = self.by_plain.get(spelling)
            if name in free:
                self._take(role, [name], "by its name")
                return

    def _two(self, roles: tuple[str, str], couples: Iterable[tuple[str, str]]) -> None:
        """Two columns whose names belong together."""
        free = {c.name for c in self._free() if c.kind in TEXTLIKE}
        for couple in couples:
            names = [self.by_plain.get(spelling) for spelling in couple]
            pairs = list(zip(roles, names, strict=True))
            if all(self.roles.get(r) == (n,) or (r not in self.roles and n in free)
                   for r, n in pairs):  # fmt: skip
                for role, name in pairs:
                    if role not in self.roles and name is not None:
                        self._take(role, [name], f"by the names {names[0]} and {names[1]}")
                return

    def _label(self) -> None:
        self._by_name("label", lambda c: not c.is_prose and c.kind not in ("object", "mixed"))
        if "label" in self.roles or not self.by_content:
            return
        free = self._free()
        flags = [c.name for c in free if c.distinct <= 2 and self._zeros_and_ones(c)]
        if len(flags) > 2:
            self._take("label", flags, "each holds 0 and 1 only: a label of its own")
            return
        likely = [c for c in free if c.has_classes]
        if len(likely) == 1:
            why = f"the only column with few values: {likely[0].distinct}"
            self._take("label", [likely[0].name], why)
        fractions = [c for c in free if c.kind == "number" and not c.integral]
        if not likely and len(fractions) == 1:
            self._take("label", [fractions[0].name], "the only column with fractions")

    def _label_name(self) -> None:
        """`label_name` beside `label` names its classes."""
        if "label" not in self.roles or "label_name" in self.roles:
            return
        label = self.roles["label"][0]
        if self.described[label].kind not in ("whole", "number", "boolean"):
            return
        for end in ("name", "text", "str", "string"):
            name = self.by_plain.get(plain(label) + end)
            if name is not None and self.described[name].kind == "text":
                self._take("label_name", [name], f"it names the values of {label!r}")
                return

    def _zeros_and_ones(self, column: Column) -> bool:
        values = {str(value_of(row, column.name)).strip().lower() for row in self.rows}
        return column.kind in ("whole", "boolean") and values <= {"0", "1", "true", "false"}

    # -------------------------------------------------------------------------- shape by shape
    def _tagging(self) -> None:
        self._by_name("tokens", lambda c: c.kind == "texts")
        self._by_name("tags", lambda c: c.kind in ("texts", "wholes"))
        if "tokens" in self.roles and "tags" not in self.roles and self.by_content:
            size = _lengths(self.rows, self.roles["tokens"][0])
            alike = [c.name for c in self._free() if c.kind in ("texts", "wholes")]
            alike = [name for name in alike if _lengths(self.rows, name) == size]
            if len(alike) == 1:
                self._take("tags", alike, "as many in each row as there are tokens")

    def _question_answering(self) -> None:
        self._by_name("answers", lambda c: c.kind in ("object", "texts", "text"))
        self._by_name("context", lambda c: c.kind in TEXTLIKE)
        if "context" in self.roles and "answers" in self.roles:
            self._by_name("question", lambda c: c.kind in TEXTLIKE)

    def _multiple_choice(self) -> None:
        self._by_name("choices", lambda c: c.kind in ("texts", "object"))
        if "choices" not in self.roles:
            numbered: dict[str, list[str]] = {}
            for column in self._free():
                match = NUMBERED.fullmatch(column.name.lower())
                if match and column.kind in TEXTLIKE:
                    numbered.setdefault(match[1], []).append(column.name)
            most = max(numbered.values(), key=len, default=[])
            if len(most) >= 2:
                order = sorted(most, key=lambda name: (len(name), name))
                self._take("choices", order, "by their numbered names")
        if "choices" in self.roles:
            self._by_name("question", lambda c: c.kind == "text")
            for spelling in ("label", "answer", "answerkey", "correct", "gold", "target"):
                name = self.by_plain.get(spelling)
                if "label" not in self.roles and name in {c.name for c in self._free()}:
                    assert name is not None
                    self._take("label", [name], "by its name")

    def _pair(self) -> None:
        self._two(("first", "second"), PAIRS)
        if "first" in self.roles and "second" in self.roles:
            self._label()
            answer = self.by_plain.get("answer")  # yes or no to a question about a passage
            if "label" not in self.roles and answer and self.described[answer].has_classes:
                self._take("label", [answer], "by its name")
            self._label_name()

    def _single(self) -> None:
        # Who calls them so means it, even if the texts spell numbers.
        exact = "text" in self.by_plain and not {"label", "labels"}.isdisjoint(self.by_plain)
        if exact and "text" not in self.roles:
            name = self.by_plain["text"]
            if name in {c.name for c in self._free() if c.kind in TEXTLIKE}:
                self._take("text", [name], "by its name")
        self._by_name("text", lambda c: c.kind == "text" and not (c.has_classes and c.words < 1.5))
        if "text" not in self.roles and self.by_content:
            label = self.roles.get("label", ())
            if not label:
                self._by_name("label", lambda c: c.scalar and not c.is_prose)
            texts = [c for c in self._free() if c.kind == "text" and c.words >= 2]
            texts.sort(key=lambda c: -c.words)
            # A second column of much the same length may belong to the task: that is asked about.
            if texts and all(c.words < ALIKE * texts[0].words for c in texts[1:]):
                why = f"the longest texts, {texts[0].words:.0f} words on average"
                self._take("text", [texts[0].name], why)
        if "text" in self.roles:
            self._label()
            self._label_name()

    def _matches(self) -> None:
        self._two(("anchor", "positive"), MATCHES)
        near = [c.name for c in self._free() if NEGATIVE.fullmatch(plain(c.name))]
        if near and "negative" not in self.roles:
            ordered = sorted(near, key=lambda name: (len(name), name))
            self._take("negative", ordered, "by the name" + "s" * (len(near) > 1))

    def _sequence(self) -> None:
        self._two(("source", "target"), SEQUENCES)
        sides = [name for name in self.described if name.startswith("translation.")]
        if len(sides) == 2 and not {"source", "target"} & set(self.roles):
            self._take("source", sides[:1], "the first language of 'translation'")
            self._take("target", sides[1:], "the second language of 'translation'")
        if "target" in self.roles and self.why["target"] != "as you said":
            target = self.described[self.roles["target"][0]]
            if target.rows >= MANY_ROWS and target.distinct <= target.rows / 10:
                del self.roles["target"]  # few values that come back: classes, no texts to write


def _lengths(rows: Sequence[Row], name: str) -> list[int]:
    values = [value_of(row, name) for row in rows[:MANY_ROWS]]
    return [len(v) if type(v) is list else -1 for v in values]


# ------------------------------------------------------------------------------ checks and refusals
def _as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_given(wanted: Mapping[str, tuple[str, ...]], described: Mapping[str, Column]) -> None:
    for role, names in wanted.items():
        if role not in (*ROLES, *OPTIONAL):
            raise UsageError("no such role of a column", found=repr(role),
                             wanted=near(role, (*ROLES, *OPTIONAL)))  # fmt: skip
        if len(names) > 1 and role not in SEVERAL:
            raise UsageError(
                f"one column holds the {role}",
                where="--column",
                found=f"{role}={', '.join(names)}",
                wanted=f"one of them ({', '.join(SEVERAL)} may be several)",
                do="join them into one column, or make two texts a pair: "
                "--column first=… --column second=…",
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


def _texts(table: Table, given: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Columns of texts, as the user says or by their names; what is called as a text to be written
    is one beside a text to be read."""
    said = {name: role for role, names in given.items() for name in names}
    called = {plain(name) for name in table.columns}
    written = {to for source, to in SEQUENCES
               if {source, to} <= called and source != "text" and to != "answer"}  # fmt: skip
    return {
        name for name in table.columns
        if (said[name] not in LISTS if name in said else plain(name) in CALLED_TEXTS | written)
    }  # fmt: skip


def _with_references(table: Table, found: Columns) -> Columns:
    """The same with the column `references`, where every row has a list of texts in it."""
    name = "references"
    if found.shape != "sequence" or name not in found.left_out:
        return found
    for rows in table.parts.values():
        for row in rows:
            value = row.values.get(name)
            if type(value) is not list or not value or {type(each) for each in value} != {str}:
                return found
    return Columns(found.shape, found.roles | {name: (name,)}, found.why | {name: "by its name"},
                   found.described)  # fmt: skip


def _refuse_some_lists(table: Table, found: Columns) -> None:
    """Labels of which a few are lists in their cells are no names of classes."""
    names = found.roles.get("label", ())
    if found.shape not in ("single", "pair") or len(names) != 1 or found.column("label").in_cells:
        return
    for rows in table.parts.values():
        for row in rows:
            refuse_list_of_numpy(row, names[0])
            cell = row.values.get(names[0])
            if is_empty(cell) or type(cell) is not str or cell.strip()[0] != "[":
                continue
            if TABLE_FILE.search(row.file) and list_of(cell) is not None:
                raise DataError(
                    "some labels are lists, and others are not",
                    where=f"{row.where}, column {names[0]!r}",
                    found=repr(cell[:80]),
                    wanted="a list in every row, or in none",
                    do='write each as a list, such as ["a"]; or names with | between them',
                )


def _check_parts(table: Table, found: Columns) -> None:
    for part, rows in table.parts.items():
        for role, names in found.roles.items():
            for name in names if role != "label_name" else ():
                outer = name.partition(".")[0]
                if rows and not any({name, outer} & row.values.keys() for row in rows):
                    others = sorted({n for row in rows for n in row.values})
                    raise DataError(
                        f"the part {part!r} has no column {name!r}",
                        where=rows[0].file,
                        found=f"the columns {', '.join(others)}",
                        wanted=f"{name!r}, which holds the {role} in {table.first[0].file}",
                        do=f"rename the column ({near(name, others)}), or leave this part out",
                    )


def _nothing_fits(table: Table, described: Mapping[str, Column], tried: Sequence[str]) -> DataError:
    listed = ", ".join(
        f"{c.name} ({c.kind}, {c.distinct:,} different)" for c in list(described.values())[:12]
    )
    likely = [c.name for c in described.values() if c.has_classes]
    texts = [c.name for c in described.values() if c.kind == "text" and c.words >= 2]
    if len(texts) > 1 and len(tried) > 1:
        one, other = texts[:2]
        do = f"say what the texts are: text={one}, or first={one} second={other} for pairs, or "
        do += f"source={one} target={other} for texts to be written"
    elif texts and not likely and len(tried) > 1:
        do = "add a column with labels; for text without labels use pretraining"
    elif len(likely) > 1:
        do = f"say which column is the label: label={likely[0]} (or {', '.join(likely[1:4])})"
    else:
        do = "say what the columns are, such as --column text=NAME --column label=NAME"
    return DataError(
        "it is not clear which column is what",
        where=table.first[0].file,
        found=listed,
        wanted="; ".join(" + ".join(SHAPES[shape]) for shape in tried),
        do=do,
    )
