"""The classes of a task: their order and names; unknown labels are refused with their line.

The order depends on the set of labels only, never on the order of rows: integers ascend, names are
sorted ignoring case, `O` comes first among tags, and names that come with the data (`labels.json`,
the metadata of a parquet file) keep their order there.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from maskwright.base.errors import DataError, near
from maskwright.base.terminal import counted
from maskwright.text.tables.cell_values import (
    FLAG_WORDS,
    NO_WIDTH,
    NUMBER,
    Label,
    is_empty,
    label_of,
)
from maskwright.text.tables.rows import Row, value_of

RARE = 20
LONGEST_NUMBER = 40
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:[,.' _]\d{3})+")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
# White space and hyphens within names and before units, but not minus signs.
JOINTS = re.compile(
    r"(?<=[^\W\d_])[\s_-]+(?=\w)(?!(?<=[\s_]-)\d)|(?<=\w)[\s_-]+(?=[^\W\d_])|\s(?=[%°€$])"
)
# First letters of yes and no, these words in full, and the numbers that may stand for them.
LETTERS = set("yntfj")
IN_FULL = {"true", "false", *(word for word in FLAG_WORDS if len(word) > 1)}
AS_NUMBERS = {"true": "number 1", "yes": "number 1", "false": "number 0", "no": "number 0"}
Keys = Callable[[str], set[str]]


def near_spellings(
    counts: Counter[Label],
    rows: Mapping[Label, Row],
    column: str,
    fold: bool,
    further_meanings: Keys = lambda label: set(),
    listed: Collection[str] = (),
) -> dict[str, str]:
    """Return {rarer spelling: most common label with the same meaning}; empty without any.

    Args:
        rows: a row with each label, for the error.
        fold: whether such spellings may be joined.
        further_meanings: returns meanings of a label besides those of `meanings`.
        listed: labels that are known to be separate classes.

    Raises:
        DataError: there are such spellings, and `fold` is False.
    """
    folded: dict[str, str] = {}
    labels = list(map(str, counts))
    meanings_of = meanings(labels)
    keys = (meanings_of(label) | further_meanings(label) for label in labels)
    for group in group_by_shared_keys(keys):
        spellings = [labels[index] for index in group]
        most_common, *variants = sorted(spellings, key=lambda s: (s not in listed, -counts[s], s))
        variants = [spelling for spelling in variants if spelling not in listed]
        if variants and not fold:
            rarest = variants[-1]
            # Unicode forms of one letter look alike, so they are shown as escapes.
            same_nfc = len({unicodedata.normalize("NFC", s) for s in spellings}) < len(spellings)
            quote = ascii if same_nfc else repr
            shown = (f"{quote(s)} ({counted(counts[s], 'row')})" for s in (most_common, *variants))
            raise DataError(
                "labels that seem to be one value in several spellings",
                where=f"{rows[rarest].where}, column {column!r}",
                found=", ".join(shown),
                wanted=f"one spelling, such as {quote(most_common)}",
                do="correct the rows, or join the spellings (--read fold_labels=true)"
                + ", or write all spans alike (--read repair_tags=true)"
                * bool(further_meanings(rarest)),
            )
        folded |= dict.fromkeys(variants, most_common)
    return folded


def group_by_shared_keys(keys: Iterable[Iterable[Hashable]]) -> list[list[int]]:
    """Group the indices of `keys` that share a key, directly or by others, using union-find."""
    parent: list[int] = []

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first_with_key: dict[Hashable, int] = {}
    for i, own_keys in enumerate(keys):
        parent.append(i)
        for key in own_keys:
            first_root, second_root = root(first_with_key.setdefault(key, i)), root(i)
            parent[max(first_root, second_root)] = min(first_root, second_root)
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(parent)):
        groups[root(i)].append(i)
    return list(groups.values())


def meanings(labels: Iterable[str]) -> Keys:
    """Return a function label -> possible meanings, given all `labels` of its column. Labels that
    share one may be spellings of one value: `Good` and `good`, 01 and 1, 1,000 and 1000, `true` and
    1; `y` and `yes` if all labels are such words; 1.10 and 1.1 if all are numbers."""
    folded = set(map(_plain, labels))
    all_yes_or_no, all_numbers = folded <= IN_FULL | LETTERS, all(map(NUMBER.fullmatch, folded))

    def means(label: str) -> set[str]:
        text = _plain(label)
        keys = {text}
        if NUMBER.fullmatch(text) and len(text) <= LONGEST_NUMBER:
            keys.add(_number(text, all_numbers))
        if THOUSANDS.fullmatch(text):
            keys.add(_number(re.sub(r"[^\d+-]", "", text)))
        if DECIMAL_COMMA.fullmatch(text):
            keys.add(_number(text.replace(",", "."), all_numbers))
        without_accents = "".join(
            sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign)
        )
        if {text, without_accents} & IN_FULL:
            keys |= {without_accents, AS_NUMBERS.get(text, text)}
        if all_yes_or_no and len(text) == 1:
            keys |= {word for word in IN_FULL if word[0] == text}
        return keys

    return means


def _number(text: str, short: bool = True) -> str:
    value = Decimal(text)
    value = value.normalize() if short or value == value.to_integral_value() else value
    return f"number {value if value else 0}"


def fold_onto(names: Sequence[str], spellings: Iterable[str]) -> dict[str, str]:
    """Map each of `spellings` to the name with a shared meaning, if exactly one of `names` has."""
    spellings, names_by_key = list(spellings), defaultdict[str, set[str]](set)
    meanings_of = meanings([*names, *spellings])
    for name in names:
        for key in meanings_of(name):
            names_by_key[key].add(name)
    folded: dict[str, str] = {}
    for spelling in spellings:
        candidates = set().union(*(names_by_key.get(key, set()) for key in meanings_of(spelling)))
        if spelling not in names and len(candidates) == 1:
            folded[spelling] = candidates.pop()
    return folded


def _plain(label: str) -> str:
    """Normalise a label: ignore case, white space or hyphens between words, and Unicode form."""
    visible = re.sub(f"[{NO_WIDTH}]", "", unicodedata.normalize("NFKC", label))
    return JOINTS.sub("", " ".join(visible.split()).casefold())


def near_misses(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return pairs (rare name, common name) in which the rare one may be a misspelling: at most one
    letter in six differs, and the other is at least `RARE` times as frequent."""
    import difflib

    by_count = sorted(counts, key=lambda name: counts[name])
    similar = []
    for index, rare in enumerate(by_count):
        common = [name for name in by_count[index + 1 :] if counts[name] >= RARE * counts[rare]]
        matches = difflib.get_close_matches(rare, common, n=1, cutoff=5 / 6)
        similar += [(rare, name) for name in matches]
    return similar


LISTED = 8
OUTSIDE = "O"
EMPTY: Mapping[int, str] = {}
# Additions to the message for an unknown label, depending on where the classes come from.
MODEL = "; the classes are those of the model"
ADD = ", or add the class to the training rows"
NAMES = ", or add its name to those next to the data (labels.json)"


@dataclass(frozen=True)
class LabelVocabulary:
    """The classes, numbered from 0.

    Attributes:
        names: the name of each class.
        values: the label of each class in the data: an integer, or a name.
        folded: other spellings of a class -> the spelling they were joined with.
        fixed: addition to messages if rows cannot add classes, as with those of a model.
    """

    names: tuple[str, ...]
    values: tuple[Label, ...]
    column: str
    folded: Mapping[str, str] = field(default_factory=dict)
    fixed: str = ""

    def __len__(self) -> int:
        return len(self.names)

    def index(self, value: Any, row: Row) -> int:
        """Return the class index of the label `value` in `row`.

        Raises:
            DataError: an empty or unknown label, or a number out of range.
        """
        label = label_of(value, row, self.column, self.has_numbers, words=True)
        if type(label) is str:
            label = self.folded.get(label, label)
        class_number = self.places.get(label)
        if class_number is None:
            raise _unknown_label_error(label, row, self)
        return class_number

    @cached_property
    def has_numbers(self) -> bool:
        return any(type(value) is int for value in self.values)

    @cached_property
    def places(self) -> dict[Label, int]:
        """The class index of each label; if labels are integers, also of each class name."""
        return {
            label: class_number
            for labels in (self.names, self.values)
            for class_number, label in enumerate(labels)
        }


def learn(
    cells: Iterable[tuple[Any, Row]],
    column: str,
    *,
    names: Mapping[int, str] = EMPTY,
    name_column: str | None = None,
    numbers: bool = False,
    fold: bool = False,
    further_meanings: Keys = lambda label: set(),
) -> LabelVocabulary:
    """Learn the classes from the training rows.

    Args:
        cells: (label, its row) in any order.
        names: class number -> name, in the order of the classes, if a file or a column has them.
        name_column: a column with the name of each row's class, or None.
        numbers: whether labels are integers; otherwise they are names.
        fold: join several spellings of a label with the most common of them.
        further_meanings: returns meanings of a label besides those of `meanings`.

    Raises:
        DataError: a label is empty, not an integer, out of range or not in `names`; a class has two
            names or a name two classes; spellings of labels nearly agree.
    """
    counts: Counter[Label] = Counter()
    rows: dict[Label, Row] = {}
    name_by_label: dict[Label, tuple[str, Row]] = {}
    for value, row in cells:
        label = label_of(value, row, column, numbers, words=bool(names))
        counts[label] += 1
        rows.setdefault(label, row)
        name = value_of(row, name_column) if name_column is not None else None
        if type(name) is str and not is_empty(name):
            first_name, first_row = name_by_label.setdefault(label, (name, row))
            if first_name != name:
                shown = f"{label!r} is {name!r} here and {first_name!r} in {first_row.where}"
                where = f"{row.where}, column {name_column!r}"
                raise _names_error("a class has two names", where, shown)
    listed = set(names.values())
    folded = {} if numbers else near_spellings(counts, rows, column, fold, further_meanings, listed)
    if names:
        ordered_names = tuple(names.values())
        class_values: tuple[Label, ...] = tuple(names) if numbers else ordered_names
        vocabulary = LabelVocabulary(ordered_names, class_values, column, folded, NAMES)
        # Labels that are not listed are refused where their rows are read.
        listed_name = {label: vocabulary.names[n] for label, n in vocabulary.places.items()}
        for label, (name, row) in name_by_label.items():
            if listed_name.get(label, name) != name:
                shown = f"{label!r} is {name!r} in the row and {listed_name[label]!r} in the list"
                raise _names_error("the names of the classes disagree", row.where, shown)
        return vocabulary
    label_by_name: dict[str, Label] = {}
    means = meanings(name for name, _ in name_by_label.values())
    for label, (name, row) in name_by_label.items():
        for key in means(name):
            if (other_label := label_by_name.setdefault(key, label)) != label:
                shown = f"{other_label!r} and {label!r} are both {name!r}"
                raise _names_error("two classes have the same name", row.where, shown)
    values = tuple(sorted((label for label in counts if label not in folded), key=_sort_key))
    class_names = tuple(name_by_label[v][0] if v in name_by_label else str(v) for v in values)
    return LabelVocabulary(class_names, values, column, folded)


def _sort_key(label: Label) -> tuple[bool, int, str, str]:
    if type(label) is int:
        return False, label, "", ""
    name = str(label)
    return name != OUTSIDE, 0, name.casefold(), name


def _names_error(problem: str, where: str, shown: str) -> DataError:
    return DataError(
        problem,
        where=where,
        found=shown,
        wanted="one name for each class, which no other class has",
        do="correct the rows or labels.json, or leave the names out",
    )


def _unknown_label_error(label: Label, row: Row, vocabulary: LabelVocabulary) -> DataError:
    names, fixed = vocabulary.names, vocabulary.fixed or ADD
    if type(label) is int:
        numbers = [str(value) for value in vocabulary.values if type(value) is int]
        problem, expected = "the label is out of range", f"one of {_listed_names(numbers)}"
        expected += f" ({len(vocabulary)} classes: {_listed_names(names)})"
        do = "correct the row"
    else:
        problem, expected = "the label is not in the label set", _listed_names([*map(repr, names)])
        do = f"correct the row ({near(str(label), names)})"
        if fixed == MODEL and all(any(c.isdigit() for c in name) for name in names):  # as LABEL_0
            fixed = ', or write the number of each name into a labels.json: {"NAME": 0, …}'
    if str(label).strip() == "-1":
        fixed += f"; where {label} means that there is none: --read no_label={label}"
    where = f"{row.where}, column {vocabulary.column!r}"
    return DataError(problem, where=where, found=repr(label), wanted=expected, do=do + fixed)


def _listed_names(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f", and {more:,} more" if more > 0 else "")
