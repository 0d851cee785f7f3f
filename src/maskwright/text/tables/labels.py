"""The classes of a task: their order, their names, and what is none of them, refused with its line.

The order depends on the set of labels only, never on the order of rows: whole numbers ascend, names
are sorted without regard to case, `O` comes first among tags, and names that come with the data
(`labels.json`, the notes of a parquet file) keep the order they have there.
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

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, near, shorten
from maskwright.text.tables.column_contents import (
    NO_WIDTH,
    NUMBER,
    Label,
    is_empty,
    label_of,
    value_of,
)
from maskwright.text.tables.flags import WORDS
from maskwright.text.tables.rows import Row

RARE = 20
LONGEST_NUMBER = 40
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:[,.' _]\d{3})+")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
# Blanks and hyphens within names, but no minus sign, and before units.
JOINTS = re.compile(
    r"(?<=[^\W\d_])[\s_-]+(?=\w)(?!(?<=[\s_]-)\d)|(?<=\w)[\s_-]+(?=[^\W\d_])|\s(?=[%°€$])"
)
# Yes and no in full, and what they are where numbers stand for them.
LETTERS = set("yntfj")
IN_FULL = {"true", "false", *(word for word in WORDS if len(word) > 1)}
AS_NUMBERS = {"true": "number 1", "yes": "number 1", "false": "number 0", "no": "number 0"}
Keys = Callable[[str], set[str]]


def near_spellings(
    counts: Counter[Label],
    rows: Mapping[Label, Row],
    column: str,
    fold: bool,
    also: Keys = lambda label: set(),
    listed: Collection[str] = (),
) -> dict[str, str]:
    """Spelling -> the commonest of those that mean the same.

    Args:
        also: further meanings of a label, beside `meanings`.
        listed: labels that are known to be classes of their own.

    Raises:
        DataError: there are such labels, and `fold` does not join them.
    """
    folded: dict[str, str] = {}
    labels = list(map(str, counts))
    means = meanings(labels)
    for group in group_by_shared_keys(means(label) | also(label) for label in labels):
        spellings = [labels[index] for index in group]
        common, *variants = sorted(spellings, key=lambda s: (s not in listed, -counts[s], s))
        if not (variants := [spelling for spelling in variants if spelling not in listed]):
            continue
        if not fold:
            rarest = variants[-1]
            # Two forms of one letter look alike: they are shown by their code points.
            forms = len({unicodedata.normalize("NFC", s) for s in spellings}) < len(spellings)
            quoted = ascii if forms else repr
            message = "labels that seem to be one value in several spellings"
            if forms:
                message = "labels that differ only by the form of their letters (Unicode)"
            elif len(set(map(_plain, spellings))) == 1:
                message = "labels that differ only by case or blanks"
            raise DataError(
                message,
                where=f"{rows[rarest].where}, column {column!r}",
                found=", ".join(
                    f"{quoted(s)} ({counted(counts[s], 'row')})" for s in (common, *variants)
                ),
                wanted=f"one spelling, such as {quoted(common)}",
                do="correct the rows, or join the spellings (--read fold_labels=true)"
                + ", or write all spans alike (--read repair_tags=true)" * bool(also(rarest)),
            )
        folded |= dict.fromkeys(variants, common)
    return folded


def group_by_shared_keys(keys: Iterable[Iterable[Hashable]]) -> list[list[int]]:
    """The places in `keys`, in groups: those that have a key in common are in one."""
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
            a, b = root(first_with_key.setdefault(key, i)), root(i)
            parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(parent)):
        groups[root(i)].append(i)
    return list(groups.values())


def meanings(labels: Iterable[str]) -> Keys:
    """What each of `labels`, all of a column, may mean; two that share a meaning may be one value
    in two spellings: `Good` and `good`, 01 and 1, 1,000 and 1000, `true` and 1. `y` is `yes` where
    all are such words, and 1.10 is 1.1 where all are numbers."""
    texts = set(map(_plain, labels))
    letters, numbers = texts <= IN_FULL | LETTERS, all(map(NUMBER.fullmatch, texts))

    def means(label: str) -> set[str]:
        text = _plain(label)
        keys = {text}
        if NUMBER.fullmatch(text) and len(text) <= LONGEST_NUMBER:
            keys.add(_number(text, numbers))
        if THOUSANDS.fullmatch(text):
            keys.add(_number(re.sub(r"[^\d+-]", "", text)))
        if DECIMAL_COMMA.fullmatch(text):
            keys.add(_number(text.replace(",", "."), numbers))
        without_accents = "".join(
            sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign)
        )
        if {text, without_accents} & IN_FULL:
            keys |= {without_accents, AS_NUMBERS.get(text, text)}
        if letters and len(text) == 1:
            keys |= {word for word in IN_FULL if word[0] == text}
        return keys

    return means


def _number(text: str, short: bool = True) -> str:
    value = Decimal(text)
    value = value.normalize() if short or value == value.to_integral_value() else value
    return f"number {value if value else 0}"


def fold_onto(names: Sequence[str], spellings: Iterable[str]) -> dict[str, str]:
    """Spelling -> the only one of `names` that may mean the same."""
    spellings, names_by_key = list(spellings), defaultdict[str, set[str]](set)
    means = meanings([*names, *spellings])
    for name in names:
        for key in means(name):
            names_by_key[key].add(name)
    folded: dict[str, str] = {}
    for spelling in spellings:
        candidates = set().union(*(names_by_key.get(key, set()) for key in means(spelling)))
        if spelling not in names and len(candidates) == 1:
            folded[spelling] = candidates.pop()
    return folded


def _plain(label: str) -> str:
    """What labels have in common that differ only by case, blanks or hyphens between words, or
    Unicode's form."""
    visible = re.sub(f"[{NO_WIDTH}]", "", unicodedata.normalize("NFKC", label))
    return JOINTS.sub("", " ".join(visible.split()).casefold())


def near_misses(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """(rare name, common name) that look like one name misspelt: at most a letter in six apart,
    and twenty times as rare."""
    import difflib

    listed = sorted(counts, key=lambda name: counts[name])
    similar = []
    for index, rare in enumerate(listed):
        common = [name for name in listed[index + 1 :] if counts[name] >= RARE * counts[rare]]
        close = difflib.get_close_matches(rare, common, n=1, cutoff=5 / 6)
        similar += [(rare, name) for name in close]
    return similar


LISTED = 8
OUTSIDE = "O"
EMPTY: Mapping[int, str] = {}
# What to know of a label that is none, by what the classes are from.
MODEL = "; the classes are those of the model"
ADD = ", or add the class to the training rows"
NAMES = ", or add its name to those next to the data (labels.json)"


@dataclass(frozen=True)
class LabelVocabulary:
    """The classes, numbered from 0.

    Attributes:
        names: the name of each class.
        values: what stands in the data for each class: whole numbers, or names.
        column: where it stands, for messages.
        folded: other spellings of a class -> the one they were joined with.
        fixed: what to know where rows add no class, as those of a model or of `labels.json`.
    """

    names: tuple[str, ...]
    values: tuple[Label, ...]
    column: str
    folded: Mapping[str, str] = field(default_factory=dict)
    fixed: str = ""

    def __len__(self) -> int:
        return len(self.names)

    def index(self, value: Any, row: Row) -> int:
        """The class that `value` in `row` means.

        Raises:
            DataError: an empty or unknown label, or a number out of range.
        """
        label = label_of(value, row, self.column, self.has_numbers, words=True)
        if type(label) is str:
            label = self.folded.get(label, label)
        class_number = self.places.get(label)
        if class_number is None:
            raise _unknown(label, row, self)
        return class_number

    @cached_property
    def has_numbers(self) -> bool:
        return any(type(value) is int for value in self.values)

    @cached_property
    def places(self) -> dict[Label, int]:
        """The class of each value; its name also stands for it where the data have numbers."""
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
    also: Keys = lambda label: set(),
) -> LabelVocabulary:
    """The classes of the training rows.

    Args:
        cells: (label, row it stands in), in any order.
        column: the column of the labels, for messages.
        names: the name of each number of a class, in the order of the classes, where a file
            or a column holds them.
        name_column: a column with the name of each row's class.
        numbers: whether labels are whole numbers; otherwise they are names.
        fold: join labels in several spellings with the commonest of them.
        also: further meanings of a label, by which two may be one (`near_labels.meanings`).

    Raises:
        DataError: an empty label, no whole number, out of range or unknown to `names`, two names
            for a class or two classes of a name, spellings that nearly agree.
    """
    counts: Counter[Label] = Counter()
    rows: dict[Label, Row] = {}
    name_by_label: dict[Label, tuple[str, Row]] = {}
    for value, row in cells:
        label = label_of(value, row, column, numbers, words=bool(names))
        counts[label] += 1
        rows.setdefault(label, row)
        if name_column is not None:
            _note_name(name_by_label, label, row, name_column)
    folded = (
        {} if numbers else near_spellings(counts, rows, column, fold, also, set(names.values()))
    )
    values = sorted((label for label in counts if label not in folded), key=_order)
    if names:
        ordered_names = tuple(names.values())
        class_values: tuple[Label, ...] = tuple(names) if numbers else ordered_names
        vocabulary = LabelVocabulary(ordered_names, class_values, column, folded, NAMES)
        _check_agreement(
            name_by_label, vocabulary
        )  # other labels are refused where their rows are read
    else:
        _refuse_name_of_two(name_by_label)
        class_names = tuple(name_by_label[v][0] if v in name_by_label else str(v) for v in values)
        vocabulary = LabelVocabulary(class_names, tuple(values), column, folded)
    return vocabulary


# ------------------------------------------------------------------------------ order and names
def _order(label: Label) -> tuple[bool, int, str, str]:
    if type(label) is int:
        return False, label, "", ""
    name = str(label)
    return name != OUTSIDE, 0, name.casefold(), name


def _note_name(
    name_by_label: dict[Label, tuple[str, Row]], label: Label, row: Row, name_column: str
) -> None:
    name = value_of(row, name_column)
    if type(name) is not str or is_empty(name):
        return
    before = name_by_label.setdefault(label, (name, row))
    if before[0] != name:
        raise DataError(
            "a class has two names",
            where=f"{row.where}, column {name_column!r}",
            found=f"{_shown(label)} is {name!r} here and {before[0]!r} in {before[1].where}",
            wanted="one name for each class",
            do="correct the row, or leave the names out",
        )


def _refuse_name_of_two(name_by_label: Mapping[Label, tuple[str, Row]]) -> None:
    owner: dict[str, Label] = {}
    means = meanings(name for name, _ in name_by_label.values())
    for label, (name, row) in name_by_label.items():
        other_label = next(
            (o for k in means(name) if (o := owner.setdefault(k, label)) != label), None
        )
        if other_label is not None:
            raise DataError(
                "two classes have the same name",
                where=row.where,
                found=f"{_shown(other_label)} and {_shown(label)} are both {name!r}",
                wanted="a name of its own for each class",
                do="correct the rows, or leave the names out",
            )


def _check_agreement(
    name_by_label: Mapping[Label, tuple[str, Row]], vocabulary: LabelVocabulary
) -> None:
    for label, (name, row) in name_by_label.items():
        class_number = vocabulary.places.get(label)
        expected = name if class_number is None else vocabulary.names[class_number]
        if name != expected:
            raise DataError(
                "the names of the classes disagree",
                where=row.where,
                found=f"{_shown(label)} is {name!r} in the row and {expected!r} in the list of "
                "names",
                wanted="the same name in both",
                do="correct labels.json or the rows",
            )


def _unknown(label: Label, row: Row, vocabulary: LabelVocabulary) -> DataError:
    where = f"{row.where}, column {vocabulary.column!r}"
    if type(label) is int:
        numbers = [value for value in vocabulary.values if type(value) is int]
        low, high = min(numbers), max(numbers)
        class_names = _listed(vocabulary.names)
        if numbers == list(range(low, high + 1)):
            expected = f"{low} to {high} ({len(vocabulary)} classes: {class_names})"
        else:
            listed = _listed(list(map(str, numbers)))
            expected = f"one of {listed} ({len(vocabulary)} classes: {class_names})"
        return DataError(
            "the label is out of range",
            where=where,
            found=label,
            wanted=expected,
            do=f"correct the row{vocabulary.fixed or ADD}{_or_none(label)}",
        )
    return DataError(
        "the label is not in the label set",
        where=where,
        found=repr(label),
        wanted=f"one of {_listed([repr(n) for n in vocabulary.names])}",
        do=f"correct the row ({near(str(label), vocabulary.names)}){_or_more(vocabulary)}"
        f"{_or_none(label)}",
    )


def _or_more(vocabulary: LabelVocabulary) -> str:
    """What else to do about a label that is no class."""
    numbered = all(any(c.isdigit() for c in name) for name in vocabulary.names)  # as LABEL_0
    if vocabulary.fixed == MODEL and numbered:
        return (
            ", or say in a labels.json beside the file which number the model has for each name, "
            'such as {"NAME": 0, …}'
        )
    return vocabulary.fixed or ADD


def _or_none(label: Label) -> str:
    """The advice for -1, which may mean that there is no label."""
    out = f"; where {label} means that there is none: --read no_label={label}"
    return out if str(label).strip() == "-1" else ""


def _shown(label: Label) -> str:
    return repr(shorten(label, 60)) if type(label) is str else str(label)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f", and {more:,} more" if more > 0 else "")
