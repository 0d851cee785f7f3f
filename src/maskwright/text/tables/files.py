"""Load the rows of labelled files or folders, by part.

    one file                     -> the part "all", divided later (splits.py)
    a folder with train…, dev…   -> the parts by the files' names; `labels.json` names the classes
    train=, validation=, test=   -> the parts as given

`rows.py` reads one file; this module holds the rows of all files.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.storage.files import write_file
from maskwright.text.corpus.files import IgnoredFiles, Source, find
from maskwright.text.corpus.ledger import Counts
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.formats import unnamed_files
from maskwright.text.tables.formats.resolve_annotations import resolve_labels
from maskwright.text.tables.raw_text import LABEL, Names, read_names
from maskwright.text.tables.rows import DEFAULT_READING, TABLE_FILE, Row, read_rows
from maskwright.text.tables.split_files import (
    ALL,
    TEST,
    TRAIN,
    VALIDATION,
    by_part,
    noted_names,
    separate_class_names,
)

# Also read if only a data file next to it was named.
NAMES_NEAR = "labels.json"
# (class names by column, the file that holds them).
ClassNames = tuple[dict[str, Names], str]
# (sources by part; class names and their file; files without a part; ignored files).
PartSources = tuple[dict[str, list[Source]], ClassNames, list[str], IgnoredFiles]


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

    def names_of(self, column: str) -> Names:
        """Return class number -> name of a label column; empty if no file has the names."""
        if column in self.names or LABEL in self.columns:
            return self.names.get(column, {})
        return self.names.get(LABEL, {})

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

    @property
    def columns(self) -> list[str]:
        """The columns of the first part, in order of occurrence."""
        return list(dict.fromkeys(name for row in self.first for name in row.values))


def load(
    data: Path | str | Sequence[Path | str] | None = None,
    *,
    train: Path | str | None = None,
    validation: Path | str | None = None,
    test: Path | str | None = None,
    header: Sequence[str] = (),
    reading: ReadingOptions = DEFAULT_READING,
    rejects: Path | str | None = None,
    learned: bool = True,
) -> Table:
    """Read labelled files into memory.

    Args:
        data: files or folders; not together with the other three.
        train, validation, test: a file or a folder for each part.
        header: the names of the columns of csv and tsv files that have no header row.
        reading: encoding, separator, limits, and the policy for bad rows.
        rejects: where to list dropped rows of all parts (with `on_bad="skip"`); None for no list.
        learned: whether a folder must contain training data.

    Raises:
        UsageError: no path, or data and parts; a missing path; files whose parts are unclear.
        DataError: bad rows, an empty part, columns that differ between the parts.
    """
    _refuse_running_text(reading)
    path_or_none = {TRAIN: train, VALIDATION: validation, TEST: test}
    path_by_split = {split: path for split, path in path_or_none.items() if path is not None}
    if (data is None) == (not path_by_split):
        raise UsageError(
            "the data are named twice, or not at all",
            found="both" if path_by_split else "no path",
            wanted="one file or folder (data=…), or train=… with validation=… and test=…",
            do="give one of the two",
        )
    if path_by_split and TRAIN not in path_by_split:
        raise UsageError(
            "no training data",
            found=f"only {', '.join(path_by_split)}",
            wanted="a path for train",
            do="give train=FILE, too",
        )
    sources, class_names, unassigned_files, ignored = (
        _find_parts(path_by_split) if data is None else _find_data(data, learned)
    )
    names, names_file = class_names
    loose = False
    if not names_file and _is_one_file(data):
        names, names_file = _names_near(Path(data))
        loose = bool(names)
    rows_by_split: dict[str, list[Row]] = {}
    counts: dict[str, Counts] = {}
    rejects_by_split: dict[str, Path] = {}
    rejects_text = ""
    for split, files in sources.items():
        counts[split] = Counts()
        if rejects is not None and reading.on_bad == "skip":
            rejects_by_split[split] = Path(rejects)
        rows_by_split[split] = list(
            read_rows(files, reading, header, rejects_by_split.get(split), counts[split])
        )
        if split in rejects_by_split:  # each reading starts a new list
            rejects_text += rejects_by_split[split].read_text(encoding="utf-8")
            write_file(rejects_by_split[split], rejects_text.encode())
        for source in files:
            names |= noted_names(source)
    resolve_labels(rows_by_split, counts)
    first_counts = next(iter(counts.values()))
    first_counts.without_part += unassigned_files
    first_counts.ignored.add(ignored)
    table = Table(rows_by_split, names, names_file, loose, counts, rejects_by_split)
    _check_columns(table)
    return table


def _refuse_running_text(reading: ReadingOptions) -> None:
    """Raise UsageError for options that only apply to running text."""
    for name in ("column", "form"):
        if getattr(reading, name) != getattr(DEFAULT_READING, name):
            raise UsageError(
                "the option is for running text only",
                where=f"--read {name}",
                found=getattr(reading, name),
                do="name the columns of labelled files: --column ROLE=NAME",
            )


def _refuse_brat(files: Sequence[Source], ignored: Sequence[str]) -> None:
    """Raise UsageError for brat annotations, which are in files next to the texts."""
    stems = {str(source.path.with_suffix("")) for source in files if source.format == "text"}
    if marks := [name for name in ignored if name.endswith(".ann") and name[:-4] in stems]:
        raise UsageError(
            "brat's marks are not in the file of their text",
            where=marks[0],
            found=f"{len(marks):,} files ending in .ann",
            wanted="texts and marks in one file",
            do='write a line for each text, {"text": …, "entities": [[0, 4, "PER"]]}, with the '
            "places that stand behind T1, T2 and so on; name the file .jsonl",
        )


def _find_data(data: Path | str | Sequence[Path | str], learned: bool) -> PartSources:
    """Find the sources of one or more paths, assigned to parts by the names of files."""
    all_files, ignored = find(data, unnamed_files.sources)
    _refuse_brat(all_files, ignored.files)
    files, names, names_files = separate_class_names(all_files)
    sources = {ALL: files} if _is_one_file(data) else by_part(files, learned=learned)
    assigned = {source.shown for files in sources.values() for source in files}
    unassigned = [source.shown for source in files if source.shown not in assigned]
    return sources, (names, ", ".join(names_files)), unassigned, ignored


def _is_one_file(data: Path | str | Sequence[Path | str] | None) -> TypeGuard[Path | str]:
    return isinstance(data, str | Path) and not Path(data).is_dir()


def _names_near(file: Path) -> ClassNames:
    """Read class names from a `labels.json` next to `file`; empty if it holds none, as it may
    belong to other data."""
    labels_file = file.parent / NAMES_NEAR
    if file.name == NAMES_NEAR or not labels_file.is_file():
        return {}, ""
    try:
        (source,), _ = find(labels_file)
        names = read_names(source)
    except MaskwrightError:
        return {}, ""
    return names or {}, source.shown


def _find_parts(path_by_split: Mapping[str, Path | str]) -> PartSources:
    """Find the sources of one path for each part."""
    files_by_split, ignored = {}, IgnoredFiles()
    for split, path in path_by_split.items():
        found_files, ignored_files = find(path, unnamed_files.sources)
        files_by_split[split] = separate_class_names(found_files)
        ignored.add(ignored_files)
    sources = {split: files for split, (files, _, _) in files_by_split.items()}
    names = {
        column: of_column
        for _, class_names, _ in files_by_split.values()
        for column, of_column in class_names.items()
    }
    names_files = [file for _, _, files in files_by_split.values() for file in files]
    return sources, (names, ", ".join(dict.fromkeys(names_files))), [], ignored


def _check_files(split: str, rows: Sequence[Row]) -> None:
    """Raise DataError if two tables of one part each have columns that the other lacks."""
    first_rows: dict[str, Row] = {}
    for row in rows:
        first_rows.setdefault(row.file, row)
    columns = {
        file: frozenset(row.values) for file, row in first_rows.items() if TABLE_FILE.search(file)
    }
    for (first_file, first_columns), (second_file, second_columns) in itertools.combinations(
        columns.items(), 2
    ):
        if first_columns - second_columns and second_columns - first_columns:
            raise DataError(
                f"two files of the part {split!r} have different columns",
                where=second_file,
                found=", ".join(sorted(second_columns)),
                wanted=f"{', '.join(sorted(first_columns))}, as in {first_file}",
                do="make one table of them, or move one out of the folder",
            )


def _check_columns(table: Table) -> None:
    for split, rows in table.parts.items():
        _check_files(split, rows)
    columns_by_split = {
        split: {n for row in rows for n in row.values} for split, rows in table.parts.items()
    }
    for split, split_columns in columns_by_split.items():
        missing = [name for name in table.columns if name not in split_columns]
        if missing and not split_columns.intersection(table.columns):
            raise DataError(
                "the parts have different columns",
                where=table.parts[split][0].file,
                found=f"{split}: {', '.join(sorted(split_columns))}",
                wanted=", ".join(table.columns),
                do="name the columns alike in all files",
            )
