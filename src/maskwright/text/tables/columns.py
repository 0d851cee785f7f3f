"""The columns of a table: their contents, and the search for their roles.

Contents are the kind of values, how many are distinct, how long texts are, and which columns hold
lists or flags. Every cell of a csv file is a text, so texts that spell numbers count as numbers
here. A column of numbers with a few mistakes stays numeric: the mistakes are refused later, with
their lines.

Multi-label data may be one flag for each class: a list in each cell ([1, 0, 1], "0|1|0", "0 1 0",
"0110"), a mapping ({"sport": 1, "sea": 0}), or a column for each class. Lists of flags differ from
lists of class numbers: all have the same length, contain only 0 and 1, and repeat them.

`ColumnSearch` has the helpers shared by the rules of layouts (`Layout.find`). The first attempt
uses only names, the likeliest name of a role first. The second, `by_content`, also uses the
contents of columns: the column with few values is the label, the column with the longest texts is
the text. All names are normalised by `rows.plain`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maskwright.text.corpus.parquet import UnreadableValue
from maskwright.text.tables.cell_values import (
    CODE,
    FLAG_WORDS,
    FLAGS,
    INTEGER,
    MARKS,
    MISSING_WORDS,
    NUMBER,
    OF_NUMPY,
    SIGNS,
    UnlistedCell,
    as_integer,
    as_number,
    flag,
    is_empty,
    is_flag_mapping,
    is_missing,
    list_of,
    looks_like_list,
    refuse_list_of_numpy,
    split_cell,
)
from maskwright.text.tables.marked_text import are_marked_spans
from maskwright.text.tables.rows import Row, Table, cell_error, plain, value_of

# ------------------------------------------------------------------------------ contents
# From this share of numbers on, a value that is not a number is an error in its row, not a class.
MOSTLY = 0.95
# Texts with more words than this on average, most of them distinct, are not names of classes.
LABEL_WORDS = 4.0
MANY_ROWS = 20
# Columns of at most this many distinct values list them.
FEW_VALUES = 30
# Values of unknown flags.
UNKNOWN_FLAGS = {"-1", "-1.0", *MISSING_WORDS}
SPACED_FLAGS = re.compile(r"\s*[01](\.0*)?(\s+[01](\.0*)?)+\s*")


def nearly_all(count: int, total: int) -> bool:
    """Whether `count` is at least the share `MOSTLY` of `total`, or all but one of more than 4."""
    return total > 0 and (count >= MOSTLY * total or (count == total - 1 and total > 4))


@dataclass(frozen=True)
class Column:
    """Statistics of one column.

    Attributes:
        kind: `text`, `whole` (integers), `number`, `boolean`; of lists `texts`, `wholes`,
            `numbers`, `booleans`; `parts` (lists of marked spans of a text), `flags` (mappings of
            classes to 0 or 1), `object`, `mixed`, or `empty`.
        rows: number of rows with a value; empty: number of rows with none, or white space only.
        distinct: number of distinct values.
        words: mean number of words per text; 0 for other kinds.
        fractions: how many of its numbers are not integers.
        in_cells: whether the lists are spelled in the cells of a csv file.
        values: count of each value, as lower-case text; empty above `FEW_VALUES` distinct values.
    """

    name: str
    kind: str
    rows: int
    empty: int
    distinct: int
    words: float
    fractions: int = 0
    in_cells: bool = False
    values: Mapping[str, int] = field(default_factory=dict)

    @property
    def integral(self) -> bool:
        """Whether all numbers are integers."""
        return self.fractions == 0

    @property
    def scalar(self) -> bool:
        return self.kind in ("text", "whole", "number", "boolean")

    @property
    def is_prose(self) -> bool:
        """Whether the values are running texts rather than names of classes."""
        mostly_distinct = self.distinct > self.rows / 2 and self.rows >= MANY_ROWS
        return self.kind == "text" and mostly_distinct and self.words > LABEL_WORDS

    @property
    def has_classes(self) -> bool:
        """Whether the column has few distinct values that repeat, as class labels do."""
        repeat_values = 2 <= self.distinct <= max(2, min(1000, self.rows // 2))
        return self.scalar and self.integral and repeat_values


def describe(rows: Sequence[Row], lists: Collection[str] = ()) -> dict[str, Column]:
    """Return the statistics of every column of `rows` by name, and of each language of a column
    `translation` as `translation.LANGUAGE`; `lists` names the columns parsed by `read_lists`."""
    by_column: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.values.items():
            by_column.setdefault(name, []).append(value)
    translations = [value for value in by_column.get("translation", ()) if type(value) is dict]
    for language in translations[0] if translations else ():
        by_column[f"translation.{language}"] = [value.get(language) for value in translations]
    columns = {name: _described(name, values, len(rows)) for name, values in by_column.items()}
    return columns | {name: replace(columns[name], in_cells=True) for name in lists}


def _described(name: str, values: Sequence[Any], num_rows: int) -> Column:
    """Return the statistics of a column of a table with `num_rows` rows from its `values`."""
    filled = [
        v for v in values if not is_empty(v) and type(v) not in (UnlistedCell, UnreadableValue)
    ]
    kind, values_counted = _kind_of(filled), filled
    if not filled and any(type(v) is UnreadableValue for v in values):
        kind = "mixed"  # unusable, but not empty
    # Words such as n/a among numbers are missing values, however many there are.
    if kind in ("text", "whole", "number") and any(map(is_missing, filled)):
        remaining = [v for v in filled if not is_missing(v)]
        if (kind_of_remaining := _kind_of(remaining)) in ("whole", "number"):
            kind, values_counted = kind_of_remaining, remaining
    numbers = map(as_number, values_counted if kind == "number" else ())
    # True and 1 are equal in Python, but two distinct values in a file; 1 and "1.0" are one number.
    convert = {"whole": as_integer, "number": as_number}.get(kind, lambda v: v)
    converted = map(convert, values_counted)
    distinct = len({v if type(v) in (str, int, float) else repr(v) for v in converted})
    return Column(
        name=name,
        kind=kind,
        rows=len(filled),
        empty=num_rows - sum(not is_empty(v) for v in values),
        distinct=distinct,
        words=sum(len(str(v).split()) for v in filled) / len(filled) if kind == "text" else 0.0,
        fractions=sum(number is not None and number != int(number) for number in numbers),
        values=Counter(str(v).strip().casefold() for v in filled) if distinct <= FEW_VALUES else {},
    )


def _kind_of_value(value: Any) -> str:
    """Return the kind of one value as `Column.kind` has it; `list` for an empty list."""
    if type(value) is str:
        if INTEGER.fullmatch(value):
            return "text" if CODE.fullmatch(value) else "whole"
        return "number" if NUMBER.fullmatch(value) else "text"
    if type(value) is list:
        element_kinds = {_kind_of_value(v) if type(v) is not str else "text" for v in value}
        if not element_kinds:
            return "list"
        for kind in ("boolean", "whole", "number", "text"):
            integers_too = {"whole"} if kind in ("number", "text") else set()
            if element_kinds <= {kind, *integers_too}:
                return kind + "s"
        return "parts" if are_marked_spans(value) else "mixed"
    if type(value) is dict:
        return "flags" if is_flag_mapping(value) else "object"
    return {bool: "boolean", int: "whole", float: "number"}.get(type(value), "mixed")


def _kind_of(values: Sequence[Any]) -> str:
    return _merged(Counter(map(_kind_of_value, values)))


def _merged(counts: Counter[str]) -> str:
    """Return the kind of a column from the counts of the kinds of its values."""
    kinds, rows = set(counts), counts.total()
    if counts["parts"] >= MOSTLY * (rows - counts["list"]) > 0:
        return "parts"
    if len(kinds) > 1:
        kinds.discard("list")  # empty lists go with any kind of list
    if len(kinds) < 2:
        return "empty" if not kinds else "texts" if kinds == {"list"} else kinds.pop()
    if kinds <= {"whole", "number", "text", "boolean"}:
        if counts["whole"] + counts["number"] < MOSTLY * rows:
            return "text"
        return "number" if "number" in kinds else "whole"
    if kinds == {"flags", "object"}:
        return "flags" if counts["flags"] >= MOSTLY * rows else "object"
    lists = Counter({kind: counts[kind] for kind in LISTS if counts[kind]})
    if "mixed" in kinds and lists.total() >= MOSTLY * rows:
        return _merged(lists)
    if kinds <= {"texts", "wholes", "numbers"}:
        return "texts" if "texts" in kinds else "numbers"
    return "mixed"


# ------------------------------------------------------------------------------ lists
LISTS = ("texts", "wholes", "numbers", "booleans")


def read_lists(table: Table, texts: Collection[str] = ()) -> frozenset[str]:
    """Parse the cells of those columns of csv and tsv files in which nearly all cells spell lists.
    Cells there that are not lists become `UnlistedCell`.

    Args:
        table: its rows are replaced in place.
        texts: columns that are always read as texts.

    Returns:
        The names of the parsed columns.

    Raises:
        DataError: a list without commas.
    """
    rows = [row for row in table.first if row.in_table]
    columns = dict.fromkeys(name for row in rows for name in row.values)
    names = frozenset(name for name in columns if name not in texts and _are_lists(rows, name))
    if names:
        for split, split_rows in table.parts.items():
            table.parts[split] = [_parse_lists(row, names) for row in split_rows]
    return names


def _are_lists(rows: Sequence[Row], name: str) -> bool:
    """Whether nearly all non-empty cells of a column spell lists that can be parsed."""
    filled = [row for row in rows if not is_empty(row.values.get(name))]
    cells = [row.values[name] for row in filled]
    least = MOSTLY * len(cells)
    if not cells or sum(map(looks_like_list, cells)) < least:
        return False
    if sum(list_of(cell) is not None or bool(OF_NUMPY.fullmatch(cell)) for cell in cells) < least:
        return False
    for row in filled:
        refuse_list_of_numpy(row, name)
    return True


def _parse_lists(row: Row, names: Collection[str]) -> Row:
    if not row.in_table:
        return row
    values = dict(row.values)
    for name in names & values.keys():
        if type(cell := values[name]) is str and not is_empty(cell):
            refuse_list_of_numpy(row, name)
            parsed = list_of(cell)
            values[name] = UnlistedCell(cell) if parsed is None else parsed
    return replace(row, values=values)


# ------------------------------------------------------------------------------ flags
def flags_in(rows: Sequence[Row], name: str, separator: str | None = None) -> int:
    """Return the number of flags in each list of a column; 0 if the lists are not flags.

    Raises:
        DataError: the lists are flags of different lengths.
    """
    cells = [(row, split_cell(value_of(row, name), separator)) for row in rows]
    lists = [(row, cell) for row, cell in cells if type(cell) is list and cell]
    flag_lists = [(row, cell) for row, cell in lists if all(flag(v) is not None for v in cell)]
    size_counts = Counter(len(cell) for _, cell in flag_lists)
    if not size_counts:
        return 0
    size = min(size_counts, key=lambda n: (-size_counts[n], n))
    if size >= 2 and nearly_all(size_counts[size], len(lists)):
        return size
    repeating = [(row, cell) for row, cell in flag_lists if len(set(map(flag, cell))) < len(cell)]
    if 2 * len(repeating) <= len(lists):  # lists of the class numbers 0 and 1, without repetition
        return 0
    unequal = (row for row, cell in lists if len(cell) != size or None in map(flag, cell))
    raise cell_error(
        "lists of flags of different lengths, or other values among them",
        next(unequal),
        name,
        f"one flag for each class, as the {size} in other rows; or lists of the classes",
        "write a flag for each class into every row, or the names of the classes that are right",
    )


def are_spaced_flags(rows: Sequence[Row], name: str) -> bool:
    """Whether nearly all cells are zeros and ones separated by white space."""
    cells = [v for row in rows if not is_empty(v := value_of(row, name))]
    spaced = sum(type(cell) is str and SPACED_FLAGS.fullmatch(cell) is not None for cell in cells)
    return spaced > 0 and nearly_all(spaced, len(cells))


def flag_names(rows: Sequence[Row], name: str) -> tuple[str, ...]:
    """Return the class names in the mappings of a column, sorted ignoring case."""
    names = {key for row in rows if is_flag_mapping(v := value_of(row, name)) for key in v}
    return tuple(sorted(names, key=lambda key: (key.casefold(), key)))


def columns_of_flags(columns: Iterable[Column]) -> list[str]:
    """Return the columns of which nearly all cells are flags: those of 0 and 1, or those of yes and
    no if these are more."""
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    for column in columns:
        if not column.scalar:
            continue
        for are_numbers, meanings in ((True, FLAGS), (False, FLAG_WORDS)):
            flags = {word: n for word, n in column.values.items() if word in meanings}
            # A few unknown values, or one mistake, do not change what the column is.
            other_values = {word: n for word, n in column.values.items() if word not in meanings}
            fits = nearly_all(sum(flags.values()), sum(column.values.values())) and (
                sum(other_values.values()) <= 1 or other_values.keys() <= UNKNOWN_FLAGS
            )
            both_or_one = are_numbers or len(flags) == 1
            if flags and fits and (both_or_one or len({meanings[word] for word in flags}) == 2):
                by_kind[are_numbers].append(column.name)
                break
    return by_kind[True] if len(by_kind[True]) >= len(by_kind[False]) else by_kind[False]


def columns_of_marks(columns: Iterable[Column]) -> list[str]:
    """Return the columns that hold only a mark or nothing, or only 1 and -1, which are flags if the
    user names the columns as labels."""
    names = []
    for column in columns:
        words = set(column.values)
        marked = len(words) == 1 and words < set(MARKS) and column.empty > 0
        if marked or (words <= SIGNS.keys() and {SIGNS[word] for word in words} == {True, False}):
            names.append(column.name)
    return names


# ------------------------------------------------------------------------------ roles
NAMES: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", "words", "token", "word"),
    "tags": (
        *("nertags", "nertag", "tags", "tag", "postags", "upos", "ner", "pos", "labels", "label"),
        "chunktags",
    ),
    "question": (
        *("question", "query", "ctx", "premise", "prompt", "sentence", "goal", "startphrase"),
        *("questionstem", "stem", "sent2"),
    ),
    "context": ("context", "passage", "paragraph", "article", "document", "premise", "sent1"),
    "answers": ("answers", "answer", "answertext"),
    "choices": ("choices", "options", "endings", "candidates"),
    "text": (
        *("text", "sentence", "review", "reviewtext", "content", "body", "comment", "commenttext"),
        *("message", "tweet", "utterance", "document", "article", "post", "description", "snippet"),
        *("paragraph", "passage", "question", "query", "headline", "title", "input", "sms"),
        "email",
    ),
    "label": (
        # What somebody thinks of a text stands before what it is from or about.
        *("label", "labels", "goldlabel", "gold", "class", "sentiment", "stance", "intent"),
        *("emotion", "emotions", "polarity", "isduplicate", "duplicate", "stars", "star", "rating"),
        *("overall", "category", "categories", "topic", "topics", "target", "similarity"),
        *("relatedness", "relevance", "score", "grade", "points", "genre", "genres", "language"),
        *("lang", "output", "quality", "y", "cats", "accept"),
    ),
    "target": ("target", "summary", "highlights", "completion", "response", "output", "tgt"),
}
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("texta", "textb"), ("text1", "text2"), ("sentencea", "sentenceb"), ("string1", "string2")),
    *(("question", "sentence"), ("question", "passage"), ("query", "document"), ("s1", "s2")),
    *(("query", "passage"), ("query", "text"), ("claim", "evidence"), ("text", "textpair")),
    *(("sent1", "sent2"), ("first", "second"), ("anchor", "positive"), ("headline", "body")),
    *(("1string", "2string"), ("context", "hypothesis"), ("question", "answer")),
)
SEQUENCES = (
    *(("source", "target"), ("src", "tgt"), ("document", "summary"), ("article", "highlights")),
    *(("article", "summary"), ("dialogue", "summary"), ("text", "summary"), ("text", "target")),
    *(("prompt", "completion"), ("instruction", "response"), ("instruction", "output")),
    *(("input", "output"), ("inputtext", "targettext"), ("input", "target"), ("inputs", "targets")),
    *(("prompt", "response"), ("question", "answer"), ("source", "translation"), ("text", "title")),
)
MATCHES = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "passage"),
    ("query", "document"),
)
NEGATIVE = re.compile(r"(hard)?neg(ative)?([0-9]{0,2})")
NUMBERED = re.compile(
    r"(ending|choice|option|sol|solution|answer|candidate|alternative)_?([0-9]{1,2}|[a-h])"
)

# Number of names at the beginning of NAMES["label"] that are unambiguous.
SURE = 5
# Names of labels that may also be one of several flags, such as the aspects of a review.
ASPECTS = {
    *("overall", "category", "topic", "similarity", "relatedness", "relevance", "score"),
    *("grade", "points", "genre", "language", "lang", "quality", "duplicate", "emotion"),
    *("output",),
}
# Names of columns that hold numbers even if nearly all are integers.
SCORES = ("score", "similarity", "relatedness", "relevance", "grade", "points", "value", "rating")
# Names of columns with row numbers or identifiers.
IDS = {
    *("id", "ids", "index", "idx", "rowid", "rownumber", "row", "nr", "no", "number", "uid"),
    *("guid", "uuid", ""),
}
# Names of columns whose value rows that belong together often share.
GROUPS = {
    *("url", "doc", "docid", "document", "documentid", "articleid", "passageid", "contextid"),
    *("premiseid", "promptid", "captionid", "patient", "patientid", "user", "userid", "username"),
    *("author", "authorid", "speaker", "speakerid", "sessionid", "conversationid", "dialogid"),
    *("dialogueid", "threadid", "group", "groupid", "subject", "subjectid", "productid"),
}
# Names of questions, and of columns with the context that a question refers to.
QUESTIONS = {"question", "query", "prompt", "instruction", "questionstem", "stem"}
QUESTION_CONTEXTS = {
    *(*NAMES["context"], *NAMES["choices"], "story", "storytext", "background", "input", "text")
}
# (source, target) names of texts that are answered, summarised and so on; a title is no answer.
ANSWERED = {names for names in SEQUENCES if names[0] != "text" and names[1] != "title"}
# Names of columns that rate an answer or a translation.
RATINGS = {
    *("label", "labels", "goldlabel", "gold", "score", "rating", "grade", "quality", "verdict"),
    *("issafe", "safe", "iscorrect", "correct", "correctness", "helpfulness", "preference"),
}
# Short texts may happen to spell numbers.
TEXTLIKE = ("text", "whole", "number")


class ColumnSearch:
    """One attempt to assign columns to roles, one role after the other; a column has one role."""

    def __init__(
        self,
        rows: Sequence[Row],
        described: dict[str, Column],
        given: Mapping[str, tuple[str, ...]],
        by_content: bool,
        alone: bool = False,
    ) -> None:
        self.rows, self.described, self.by_content = rows, described, by_content
        self.alone = alone  # whether no other layout is tried
        self.roles = dict(given)
        self.why = dict.fromkeys(given, "as given")
        self.spellings: Mapping[str, tuple[str, ...]] = {}
        self.by_plain: dict[str, str] = {}
        for name in described:
            self.by_plain.setdefault(plain(name), name)

    def free(self) -> list[Column]:
        """Return the columns without a role; `group` does not count, as it may have another too."""
        used = {name for role, names in self.roles.items() if role != "group" for name in names}
        return [c for c in self.described.values() if c.name not in used]

    def is_group(self, column: Column) -> bool:
        return column.name in self.roles.get("group", ())

    def take(self, role: str, names: Sequence[str], why: str) -> None:
        self.roles[role], self.why[role] = tuple(names), why

    def by_name(self, role: str, fits: Callable[[Column], bool]) -> None:
        """Give `role` to a free column that `fits` and has one of the names of the role, if any."""
        if role in self.roles:
            return
        fitting = {c.name for c in self.free() if fits(c)}
        spellings = self.spellings.get(role) or NAMES[role]
        named_columns = [self.by_plain.get(spelling) for spelling in spellings]
        if matches := [name for name in named_columns if name is not None and name in fitting]:
            self.take(role, [self.commonest(matches)], "by its name")

    def commonest(self, names: Sequence[str]) -> str:
        """Return the first name, or a later one that more rows have if no row has both: then the
        first is a misspelling."""
        best = names[0]
        for candidate in names[1:]:
            present_by_row = [{best, candidate} & row.values.keys() for row in self.rows]
            is_more_common = sum(candidate in present for present in present_by_row) > sum(
                best in present for present in present_by_row
            )
            if is_more_common and all(len(present) < 2 for present in present_by_row):
                best = candidate
        return best

    def two(self, roles: tuple[str, str], couples: Iterable[tuple[str, str]]) -> None:
        """Give two roles to the first of `couples` of names of which both columns are free."""
        texts = {c.name for c in self.free() if c.kind in TEXTLIKE}
        for couple in couples:
            names = [self.by_plain.get(spelling) for spelling in couple]
            pairs = list(zip(roles, names, strict=True))
            if all(
                self.roles.get(r) == (n,) or (r not in self.roles and n in texts) for r, n in pairs
            ):
                for role, name in pairs:
                    if role not in self.roles and name is not None:
                        self.take(role, [name], f"by the names {names[0]} and {names[1]}")
                return

    def label(self) -> None:
        """Find the label: by its name, or with `by_content` flags or the column with few values."""
        if "label" not in self.roles:
            self.by_name("label", lambda c: _may_be_label(c) and not self.is_group(c))
            if self._is_one_of_flags():
                del self.roles["label"]
                return  # the user has to name the label columns
            self._tell_rivals([c.name for c in self.free() if _may_be_label(c)])
        if "label" in self.roles or not self.by_content or self._has_unusable_label():
            return
        free = [c for c in self.free() if not self.is_group(c)]
        flags = columns_of_flags(free)
        if len(flags) > 2:
            rival_names = [repr(c.name) for c in free if c.has_classes and c.name not in flags]
            rivals = f"; {' and '.join(rival_names[:3])} might be it, too" if rival_names else ""
            self.take("label", flags, f"each holds flags only: a label of its own{rivals}")
            return
        candidates = [c for c in free if c.has_classes]
        if len(candidates) == 1:
            why = f"the only column with few values: {candidates[0].distinct}"
            self.take("label", [candidates[0].name], why)
        fractions = [c for c in free if c.kind == "number" and not c.integral]
        if not candidates and len(fractions) == 1:
            self.take("label", [fractions[0].name], "the only column with fractions")

    def _is_one_of_flags(self) -> bool:
        """Whether the label column may be one of several columns of flags, one for each class."""
        name = self.roles.get("label", ("",))[0]
        if plain(name) not in ASPECTS:
            return False
        flags = columns_of_flags([self.described[name], *self.free()])
        return name in flags and len(flags) > 2

    def _has_unusable_label(self) -> bool:
        """Whether a column named like a label is unusable; then no other is chosen by contents."""
        return any(
            c.kind in ("object", "mixed") and plain(c.name) in NAMES["label"] for c in self.free()
        )

    def _tell_rivals(self, free: Sequence[str]) -> None:
        """Add to the reason other columns named like a label, if the chosen name is ambiguous."""
        label_column = self.roles.get("label", ("label",))[0]
        rivals = [name for name in free if plain(name) in NAMES["label"][SURE:]]
        if rivals and plain(label_column) not in NAMES["label"][:SURE]:
            self.why["label"] += f"; {' and '.join(map(repr, rivals))} might be it, too"

    def label_name(self) -> None:
        """Find the column with the names of the classes that `label` numbers."""
        if "label" not in self.roles or "label_name" in self.roles:
            return
        label = self.roles["label"][0]
        if self.described[label].kind not in ("whole", "number", "boolean"):
            return
        for end in ("name", "text", "str", "string"):
            name = self.by_plain.get(plain(label) + end)
            if name is not None and self.described[name].kind == "text":
                self.take("label_name", [name], f"it names the values of {label!r}")
                return


def _may_be_label(column: Column) -> bool:
    return not column.is_prose and column.kind not in ("object", "mixed")
