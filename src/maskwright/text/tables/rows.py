"""`Row` and `Table`: labelled rows in memory, whatever format they were read from.

A table has the parts `train`, `validation` and `test`, or only `all`, which is divided later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.base.storage.files import new_text
from maskwright.text.corpus.ledger import Counts
from maskwright.text.corpus.reading import ReadingOptions

ALL, TRAIN, VALIDATION, TEST = "all", "train", "validation", "test"
PARTS = (TRAIN, VALIDATION, TEST)
LABEL = "label"
DEFAULT_READING = ReadingOptions()
TABLE_FILE = re.compile(r"\.(csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
FIX_ROW = "correct the row, or take it out (--read on_bad=skip drops and counts it)"
# Number of a class in the data -> its name, in ascending order.
Names = dict[int, str]


def plain(name: str) -> str:
    """Return a column name in lower case, letters and digits only: `sentence1` of `Sentence_1`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file: texts in csv files, any JSON values elsewhere.

    Attributes:
        values: the values by column.
        file: the file as named by the user.
        number: the number of the row, counted from 1.
        unit: what `number` counts: `line`, `row` (parquet) or `item` (a json array).
        given: the original values of columns from which characters were removed; character
            offsets refer to these.
    """

    values: Mapping[str, Any]
    file: str
    number: int
    unit: str = "line"
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def in_table(self) -> bool:
        """Whether the row is from a csv or tsv file, whose cells are all texts."""
        return TABLE_FILE.search(self.file) is not None

    def as_given(self) -> Row:
        """Return the row with its original texts, before characters were removed."""
        return replace(self, values={**self.values, **self.given}) if self.given else self


def value_of(row: Row, name: str) -> Any:
    """Return the value of a column, or None; a name such as `translation.en` looks in a mapping."""
    value = row.values.get(name)
    if value is None and "." in name:
        column, _, key = name.partition(".")
        value = row.values.get(column)
        value = value.get(key) if type(value) is dict else None
    return value


def has_column(name: str, columns: Collection[str]) -> bool:
    """Whether `columns` has `name`, or the outer column of a name such as `translation.en`."""
    return name in columns or name.partition(".")[0] in columns


def cell_error(
    problem: str, row: Row, name: str, expected: str, do: str = FIX_ROW, *, shown: str | None = None
) -> DataError:
    """Return the error for the cell of the column `name` in `row`; `shown` replaces its value."""
    value = value_of(row, name)
    return DataError(
        problem,
        where=f"{row.where}, column {name!r}",
        found=shown or ("nothing" if value is None else repr(value)[:80]),
        wanted=expected,
        do=do,
    )


@dataclass(frozen=True)
class Table:
    """The rows of all parts.

    Attributes:
        parts: the existing ones of `train`, `validation`, `test`; or only `all`.
        names: class number -> name by column, from a file next to the data or their metadata; those
            of `label` also apply if the column has another name (`names_of`).
        names_file: the file that holds `names`, or "".
        loose: whether `names_file` was not given by the user, so that it may be for other data.
        counts: counts of the reading, by part.
        rejects: the file that lists dropped rows, by part, if requested.
    """

    parts: dict[str, list[Row]]
    names: dict[str, Names] = field(default_factory=dict)
    names_file: str = ""
    loose: bool = False
    counts: dict[str, Counts] = field(default_factory=dict)
    rejects: dict[str, Path] = field(default_factory=dict)

    @property
    def first(self) -> list[Row]:
        """The rows from which columns and labels are learned: `train`, or `all`."""
        return self.parts.get(TRAIN, self.parts.get(ALL, []))

    @property
    def columns(self) -> list[str]:
        """The columns of the first part, in order of occurrence."""
        return list(dict.fromkeys(name for row in self.first for name in row.values))

    @property
    def rows(self) -> list[Row]:
        """The rows of all parts."""
        return [row for rows in self.parts.values() for row in rows]

    def names_of(self, column: str) -> Names:
        """Return class number -> name of a label column; empty if no file has the names."""
        if column in self.names or LABEL in self.columns:
            return self.names.get(column, {})
        return self.names.get(LABEL, {})

    def note(self, content: Finding | str) -> None:
        """Add a finding to the counts of the first part, once; a text is about names of classes."""
        finding = Finding("names-of-classes", content) if isinstance(content, str) else content
        notes = self.counts.setdefault(next(iter(self.parts)), Counts()).notes
        if finding not in notes:
            notes.append(finding)

    def without_labels(self, split: str, rows: Sequence[Row], shown: str) -> bool:
        """Drop a test part whose `rows` have no labels, as in public data sets, with a finding that
        names the placeholder `shown`. Return False, without effect, for other parts."""
        if split != TEST or TRAIN not in self.parts:
            return False
        del self.parts[split]
        message = f"not used: {shown} in place of a label in all {len(rows):,} rows"
        unused = Finding("part-not-used", message)
        self.counts.setdefault(split, Counts()).notes.append(unused)
        return True


def usable(
    rows: Sequence[Row], read: Callable[[Row], Any], reading: ReadingOptions
) -> tuple[list[Any], list[tuple[Row, DataError]]]:
    """Return the results of `read` for all rows, and (row, error) for each one that it refused.
    Raises DataError for a bad row when strict, or for more bad rows than `max_bad_fraction`."""
    results: list[Any] = []
    bad: list[tuple[Row, DataError]] = []
    for row in rows:
        try:
            results.append(read(row))
        except DataError as error:
            if reading.on_bad == "strict":
                raise
            bad.append((row, error))
    if len(bad) > reading.max_bad_fraction * len(rows):
        reason = bad[0][1]
        enough_fraction = next(n / 100 for n in range(1, 101) if len(bad) <= n / 100 * len(rows))
        higher_limit = f", or raise it (--read max_bad_fraction={enough_fraction})"
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {reason.what} ({reason.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows" + ("" if len(bad) == len(rows) else higher_limit),
        )
    return results, bad


def list_rejected(bad: Sequence[tuple[Row, DataError]], path: Path | None) -> None:
    """Append bad rows to the list of rejected rows at `path`, as JSON Lines; None lists nothing."""
    if path is None or not bad:
        return
    previous_text = path.read_text(encoding="utf-8")
    with new_text(path) as file:
        file.write(previous_text)
        for row, error in bad:
            parts_of_error = {"reason": error.what, "found": error.found, "wanted": error.wanted}
            file.write(json.dumps({"file": row.file, row.unit: row.number} | parts_of_error) + "\n")
