"""The classes of a task: their order, their names, and what is no class, refused with its line.

The order depends on the set of labels only, never on the order of rows: whole numbers ascend, names
are sorted without regard to case, `O` comes first among tags, and names that come with the data
(`labels.json`, the notes of a parquet file) keep the order they have there. Labels that differ only
by case, blanks or Unicode's form are refused, because one of them is nearly always a slip; `fold`
joins them.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from maskwright.errors import DataError, near, shorten
from maskwright.tasks.contents import CODE, NoList, is_empty, value_of
from maskwright.tasks.infer import whole
from maskwright.tasks.table import Row

Label = int | str
LISTED = 8
RARE = 20
OUTSIDE = "O"


@dataclass(frozen=True)
class Vocabulary:
    """The classes, numbered from 0.

    Attributes:
        names: the name of each class.
        values: what stands in the data for each class: whole numbers, or names.
        column: where it stands, for messages.
        folded: other spellings of a class -> the one they were joined with.
    """

    names: tuple[str, ...]
    values: tuple[Label, ...]
    column: str
    folded: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def index(self, value: Any, row: Row) -> int:
        """The class that `value` in `row` means.

        Raises:
            DataError: an empty or unknown label, or a number out of range.
        """
        label = spelled(value, row, self.column, self.has_numbers, words=True)
        if type(label) is str:
            label = self.folded.get(label, label)
        place = self.places.get(label)
        if place is None:
            raise _unknown(label, row, self)
        return place

    @cached_property
    def has_numbers(self) -> bool:
        return any(type(value) is int for value in self.values)

    @cached_property
    def places(self) -> dict[Label, int]:
        """The class of each value; its name also stands for it where the data have numbers."""
        return {label: place for labels in (self.names, self.values)
                for place, label in enumerate(labels)}  # fmt: skip


def learn(
    cells: Iterable[tuple[Any, Row]],
    column: str,
    *,
    names: Sequence[str] = (),
    name_column: str | None = None,
    numbers: bool = False,
    fold: bool = False,
) -> Vocabulary:
    """The classes of the training rows.

    Args:
        cells: (label, row it stands in), in any order.
        column: the column of the labels, for messages.
        names: the names of all classes in their order, where something beside the data tells them.
        name_column: a column with the name of each row's class.
        numbers: whether labels are whole numbers; otherwise they are names.
        fold: join labels that differ only by case or blanks with the commonest of them.

    Raises:
        DataError: an empty label, no whole number, out of range or unknown to `names`, two names
            for a class or two classes of a name, spellings that nearly agree, one class only.
    """
    counts: Counter[Label] = Counter()
    rows: dict[Label, Row] = {}
    called: dict[Label, tuple[str, Row]] = {}
    for value, row in cells:
        label = spelled(value, row, column, numbers, words=bool(names))
        counts[label] += 1
        rows.setdefault(label, row)
        if name_column is not None:
            _note_name(called, label, row, name_column)
    folded = {} if numbers else _near_spellings(counts, rows, column, fold)
    values = sorted((label for label in counts if label not in folded), key=_order)
    if names:
        listed: tuple[Label, ...] = tuple(range(len(names))) if numbers else tuple(names)
        made = Vocabulary(tuple(names), listed, column, folded)
        # A label that is not among the names is refused where its row is read.
        met = {made.places[label] for label in values if label in made.places}
        _check_agreement(called, made)
    else:
        _refuse_name_of_two(called)
        told = tuple(called[v][0] if v in called else str(v) for v in values)
        made = Vocabulary(told, tuple(values), column, folded)
        met = set(range(len(values)))
    if len(met) == 1:
        raise DataError(
            "all labels are the same",
            where=f"{next(iter(rows.values())).file}, column {column!r}",
            found=f"all {sum(counts.values()):,} labels are {made.names[met.pop()]!r}",
            wanted="at least two classes in the training rows",
            do="add rows of another class, or name another column (--column label=…)",
        )
    return made


def spelled(value: Any, row: Row, column: str, numbers: bool, *, words: bool = False) -> Label:
    """A label as one of two types: a whole number, or a name just as it stands there.

    Args:
        value: what stands in `column` of `row`.
        numbers: whether labels are whole numbers; `words`: whether names may stand for them.

    Raises:
        DataError: empty, a fraction, or nothing that can be a label.
    """
    if is_empty(value):
        raise DataError(
            "the label is empty",
            where=f"{row.where}, column {column!r}",
            found="null" if value is None else repr(value),
            wanted="a label in every row",
            do="label the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if type(value) is NoList:
        raise DataError(
            "the cell is no list",
            where=f"{row.where}, column {column!r}",
            found=repr(shorten(value)),
            wanted='a list such as ["a", "b"], as in the other rows',
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if numbers:
        number = whole(value)
        if number is not None and not (type(value) is str and CODE.fullmatch(value)):
            return number
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float and not numbers:
        return str(int(value)) if value == int(value) else repr(value)
    if type(value) is str and numbers and not words:
        raise DataError(
            "the label is no whole number",
            where=f"{row.where}, column {column!r}",
            found=repr(value),
            wanted="a whole number, as in the other rows",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    if type(value) is not str:
        raise DataError(
            "no label",
            where=f"{row.where}, column {column!r}",
            found=repr(value),
            wanted="a whole number" if numbers else "a name or a whole number",
            do="correct the row; for numbers with fractions choose the task regression",
        )
    return value


def number(value: Any, row: Row, column: str) -> float:
    """A target of regression.

    Raises:
        DataError: empty, no number, or not finite.
    """
    found = math.nan
    if type(value) in (int, float, str) and not is_empty(value):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
    if not math.isfinite(found):
        raise DataError(
            "the target is not a finite number",
            where=f"{row.where}, column {column!r}",
            found="null" if value is None else repr(value),
            wanted="a number, such as 3.5",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
    return found


def near_misses(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """(rare name, common name) that look like one name misspelt: at most a letter in six apart,
    and twenty times as rare."""
    import difflib

    listed = sorted(counts, key=lambda name: counts[name])
    found = []
    for place, rare in enumerate(listed):
        common = [name for name in listed[place + 1 :] if counts[name] >= RARE * counts[rare]]
        close = difflib.get_close_matches(rare, common, n=1, cutoff=5 / 6)
        found += [(rare, name) for name in close]
    return found


# ------------------------------------------------------------------------------ order and names
def _order(label: Label) -> tuple[bool, int, str, str]:
    if type(label) is int:
        return False, label, "", ""
    name = str(label)
    return name != OUTSIDE, 0, name.casefold(), name


def fold_onto(names: Sequence[str], spellings: Iterable[str]) -> dict[str, str]:
    """Spelling -> the one of `names` that it differs from only by case or blanks."""
    known: dict[str, list[str]] = defaultdict(list)
    for name in names:
        known[_key(name)].append(name)
    return {
        spelling: known[_key(spelling)][0]
        for spelling in spellings
        if spelling not in names and len(known.get(_key(spelling), ())) == 1
    }


def _key(label: Label) -> str:
    """What labels have in common that differ only by case, blanks or Unicode's form."""
    return " ".join(unicodedata.normalize("NFC", str(label)).split()).casefold()


def _near_spellings(
    counts: Counter[Label], rows: Mapping[Label, Row], column: str, fold: bool
) -> dict[str, str]:
    alike: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        alike[_key(label)].append(str(label))
    folded: dict[str, str] = {}
    for spellings in alike.values():
        if len(spellings) == 1:
            continue
        common, *others = sorted(spellings, key=lambda s: (-counts[s], s))
        if not fold:
            rare = others[-1]
            # Two forms of one letter look alike: these are told by their code points.
            forms = len({unicodedata.normalize("NFC", s) for s in spellings}) < len(spellings)
            said = ascii if forms else repr
            raise DataError(
                "labels that differ only by case or blanks"
                if not forms
                else "labels that differ only by the form of their letters (Unicode)",
                where=f"{rows[rare].where}, column {column!r}",
                found=", ".join(f"{said(s)} ({counts[s]:,} rows)" for s in (common, *others)),
                wanted=f"one spelling, such as {said(common)}",
                do="correct the rows, or join the spellings (--read fold_labels=true)",
            )
        folded |= dict.fromkeys(others, common)
    return folded


def _note_name(
    called: dict[Label, tuple[str, Row]], label: Label, row: Row, name_column: str
) -> None:
    name = value_of(row, name_column)
    if type(name) is not str or is_empty(name):
        return
    before = called.setdefault(label, (name, row))
    if before[0] != name:
        raise DataError(
            "a class has two names",
            where=f"{row.where}, column {name_column!r}",
            found=f"{_shown(label)} is {name!r} here and {before[0]!r} in {before[1].where}",
            wanted="one name for each class",
            do="correct the row, or leave the names out",
        )


def _refuse_name_of_two(called: Mapping[Label, tuple[str, Row]]) -> None:
    owner: dict[str, Label] = {}
    for label, (name, row) in called.items():
        if owner.setdefault(name, label) != label:
            raise DataError(
                "two classes have the same name",
                where=row.where,
                found=f"{_shown(owner[name])} and {_shown(label)} are both {name!r}",
                wanted="a name of its own for each class",
                do="correct the rows, or leave the names out",
            )


def _check_agreement(called: Mapping[Label, tuple[str, Row]], given: Vocabulary) -> None:
    for label, (name, row) in called.items():
        place = given.places.get(label)
        known = name if place is None else given.names[place]
        if name != known:
            raise DataError(
                "the names of the classes disagree",
                where=row.where,
                found=f"{_shown(label)} is {name!r} in the row and {known!r} in the list of names",
                wanted="the same name in both",
                do="correct labels.json or the rows",
            )


def _unknown(label: Label, row: Row, known: Vocabulary) -> DataError:
    where = f"{row.where}, column {known.column!r}"
    if type(label) is int:
        numbers = [value for value in known.values if type(value) is int]
        low, high = min(numbers), max(numbers)
        return DataError(
            "the label is out of range",
            where=where,
            found=label,
            wanted=f"{low} to {high} ({len(known)} classes: {_listed(known.names)})",
            do="correct the row, or add the class to the training rows",
        )
    return DataError(
        "the label is not in the label set",
        where=where,
        found=repr(label),
        wanted=f"one of {_listed([repr(n) for n in known.names])}",
        do=f"correct the row ({near(str(label), known.names)}), or add the class to the "
        "training rows",
    )


def _shown(label: Label) -> str:
    return repr(shorten(label, 60)) if type(label) is str else str(label)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f", and {more:,} more" if more > 0 else "")
