"""Load the rows of labelled files or folders, by part, with the names of classes beside them.

    one file                     -> the part "all", divided later (splits.py)
    a folder with train…, dev…   -> the parts by the files' names, train-00000-of-00002.parquet or
                                    my_set/train/part1.jsonl; `labels.json` names the classes

Files without a part form one table; if other files have a part, they are not read, and a finding
lists them. `read.py` reads one file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, TypeGuard

from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.base.storage.files import write_file
from maskwright.base.storage.manifest import hash_file
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import Source, find
from maskwright.text.corpus.reading import Counts, ReadingOptions
from maskwright.text.images.decode import is_image_name, is_of_images
from maskwright.text.tables.cell_values import as_integer
from maskwright.text.tables.formats import text_files
from maskwright.text.tables.formats.exports import resolve_labels
from maskwright.text.tables.formats.text_files import PART_WORDS, WORD, part_of_folder, says_part
from maskwright.text.tables.labelled_images import find_images
from maskwright.text.tables.read import class_names_in, features_of, read_rows
from maskwright.text.tables.rows import ALL, DEFAULT_READING, LABEL, PARTS, TRAIN, Names, Row, Table

# Also read if only a data file next to it was named.
NAMES_NEAR = "labels.json"


def load(
    data: Path | str | Sequence[Path | str],
    *,
    header: Sequence[str] = (),
    reading: ReadingOptions = DEFAULT_READING,
    rejects: Path | str | None = None,
    learned: bool = True,
) -> Table:
    """Read labelled files into memory.

    Args:
        header: the names of the columns of csv and tsv files that have no header row.
        reading: encoding, separator, limits, and the policy for bad rows.
        rejects: where to list dropped rows of all parts (with `on_bad="skip"`); None for no list.
        learned: whether a folder must contain training data.

    Raises:
        UsageError: a missing path; files whose parts are unclear.
        DataError: bad rows, an empty part, columns that differ between the parts.
    """
    _refuse_running_text(reading)
    if (images := _load_images(data, learned)) is not None:
        if header:
            raise UsageError(
                "option has no effect here",
                where="--read header",
                found="images",
                wanted="files of tables",
                do="leave it out",
            )
        return images
    all_files, ignored = find(data, text_files.sources)
    data_files, names, names_files = separate_class_names(all_files)
    names_file, loose = ", ".join(names_files), False
    sources = {ALL: data_files} if _is_one_file(data) else by_part(data_files, learned=learned)
    assigned = {source.shown for files in sources.values() for source in files}
    unassigned_files = [source.shown for source in data_files if source.shown not in assigned]
    if not names_file and _is_one_file(data):
        names, names_file = _names_near(Path(data))
        loose = bool(names)
    rows_by_split: dict[str, list[Row]] = {}
    counts: dict[str, Counts] = {}
    list_path = Path(rejects) if rejects is not None and reading.on_bad == "skip" else None
    rejected_rows = b""
    for split, files in sources.items():
        counts[split] = Counts()
        rows = read_rows(files, reading, header, list_path, counts[split])
        rows_by_split[split] = list(rows)
        if list_path is not None:  # each reading starts a new list
            rejected_rows += list_path.read_bytes()
            write_file(list_path, rejected_rows)
        for source in files:
            features = class_names_in(features_of(source))
            names |= {column: dict(enumerate(map(str, classes))) for column, classes in features}
    if any(map(is_of_images, map(Path, ignored.files))):  # which the rows of a table may name
        named = {
            os.path.normpath(os.path.join(base, value))
            for row in chain(*rows_by_split.values())
            for value in filter(is_image_name, row.values.values())
            for base in (os.path.dirname(row.file), "")
        }
        ignored.files[:] = [file for file in ignored.files if os.path.normpath(file) not in named]
    resolve_labels(rows_by_split, counts)
    first_counts = next(iter(counts.values()))
    first_counts.without_part += unassigned_files
    first_counts.ignored.add(ignored)
    table = Table(rows_by_split, names, names_file, loose, counts, list_path)
    _check_columns(table)
    return table


def _load_images(data: Path | str | Sequence[Path | str], learned: bool) -> Table | None:
    """Return the images of a path as a table; None if it has no images.

    Raises:
        UsageError: the folder has parts, and no training data.
        Others: as `find_images`.
    """
    images = find_images(Path(data)) if isinstance(data, str | Path) else None
    if images is None:
        return None
    rows, ignored = images
    counts = {split: Counts() for split in rows}
    counts[next(iter(counts))].ignored.add(ignored)
    for split, split_rows in rows.items():
        counts[split].documents = len(split_rows)
        files = dict.fromkeys(row.file for row in split_rows)
        counts[split].files = len(files)
        counts[split].hashes |= {file: hash_file(Path(file)) for file in files}
    if learned and TRAIN not in rows and rows.keys() != {ALL}:
        raise UsageError(
            "the folder has no training data",
            where=data,
            found=", ".join(rows),
            wanted="a folder train with one folder for each class",
            do="rename the folder, or name it alone: --data FOLDER",
        )
    return Table(rows, counts=counts)


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


def _is_one_file(data: Path | str | Sequence[Path | str]) -> TypeGuard[Path | str]:
    return isinstance(data, str | Path) and not Path(data).is_dir()


def _names_near(file: Path) -> tuple[dict[str, Names], str]:
    """Return class names by column from a `labels.json` next to `file`, and its name; empty if it
    holds none, as it may belong to other data."""
    labels_file = file.parent / NAMES_NEAR
    if file.name == NAMES_NEAR or not labels_file.is_file():
        return {}, ""
    try:
        (source,), _ = find(labels_file)
        return {LABEL: read_names(source)}, source.shown
    except MaskwrightError:
        return {}, ""


def _check_columns(table: Table) -> None:
    """Raise DataError if two tables of one part each have columns that the other lacks, or a part
    has none of the columns of the first."""
    for split, rows in table.parts.items():
        columns_by_file: dict[str, set[str]] = {}
        for row in rows:
            if row.in_table:
                columns_by_file.setdefault(row.file, set(row.values))
        for (file, columns), (second, other_columns) in combinations(columns_by_file.items(), 2):
            if columns - other_columns and other_columns - columns:
                raise DataError(
                    f"two files of the part {split!r} have different columns",
                    where=second,
                    found=", ".join(sorted(other_columns)),
                    wanted=f"{', '.join(sorted(columns))}, as in {file}",
                    do="make one table of them, or move one out of the folder",
                )
    for split, rows in table.parts.items():
        names = {name for row in rows for name in row.values}
        if table.columns and names.isdisjoint(table.columns):
            raise DataError(
                "the parts have different columns",
                where=rows[0].file,
                found=f"{split}: {', '.join(sorted(names))}",
                wanted=", ".join(table.columns),
                do="name the columns alike in all files",
            )


# ------------------------------------------------------------------------------ parts of a folder
def by_part(files: Sequence[Source], *, learned: bool = True) -> dict[str, list[Source]]:
    """Return the files of each part in the order train, validation, test; or all files as `all`.

    Args:
        learned: whether training data are required.

    Raises:
        UsageError: a name with two parts, no training data, a part in two formats.
    """
    sources_by_part: dict[str, list[Source]] = {}
    if texts := text_files.in_folders(files, says_part):
        upper_folders = [source.path.parent.parent.name for source in texts]
        files, has_split_folders = texts, len(set(upper_folders)) > 1
        names = [part_of_folder(name) if has_split_folders else ALL for name in upper_folders]
    else:
        names = [_part_of(source) for source in files]
        if set(names) == {ALL}:  # no name has a part: perhaps the folders have
            folders = [source.path.parent.name.lower() for source in files]
            names = [PART_WORDS.get(folder, ALL) for folder in folders]
    for source, split in zip(files, names, strict=True):
        sources_by_part.setdefault(split, []).append(source)
    if sources_by_part.keys() == {ALL}:
        return sources_by_part
    sources_by_part.pop(ALL, None)  # files without part may not be data, such as languages.json
    folder = files[0].path.parent
    if learned and TRAIN not in sources_by_part:
        raise UsageError(
            "the folder has no training data",
            where=folder,
            found=", ".join(f"{split}: {s[0].path.name}" for split, s in sources_by_part.items()),
            wanted="a file whose name has the word train",
            do="rename the file, as train.csv; or name it alone: --data FILE",
        )
    for split, sources in sources_by_part.items():
        if len({source.suffix for source in sources}) > 1:
            raise UsageError(
                "the folder has one part in two formats",
                where=folder,
                found=f"{split}: " + ", ".join(sorted(source.path.name for source in sources)),
                wanted="one of them",
                do="move what is not meant out of the folder",
            )
    return {split: sources_by_part[split] for split in PARTS if split in sources_by_part}


def _part_of(source: Source) -> str:
    words = {word.lower() for word in WORD.findall(source.path.name)}
    splits = sorted({PART_WORDS[word] for word in words & PART_WORDS.keys()})
    if len(splits) > 1:
        raise UsageError(
            "the file's name contains two parts",
            where=source.shown,
            found=" and ".join(splits),
            wanted="one of train, validation, test",
            do="rename the file, or move it out of the folder",
        )
    return splits[0] if splits else ALL


# ------------------------------------------------------------------------------ names of classes
FILE = re.compile(
    r"(labels?|id2label|label2id|label[_-]?map|label[_-]?names|class[_-]?names|classes)\.json",
    re.IGNORECASE,
)
WANTED = '["bad", "good"], {"0": "bad", "1": "good"} or {"bad": 0, "good": 1}'


def separate_class_names(
    sources: Sequence[Source],
) -> tuple[list[Source], dict[str, Names], list[str]]:
    """Return (the data files, class names by column from files such as `labels.json`, the names of
    these files).

    Raises:
        DataError: a file of class names holds none.
    """
    if len(sources) == 1:
        return list(sources), {}, []
    names_files = [source for source in sources if FILE.fullmatch(source.path.name)]
    names: dict[str, Names] = {}
    for source in names_files:
        names_read = read_names(source)
        if names.setdefault(LABEL, names_read) != names_read:
            raise _names_error(names_read, source.shown, f"others than in {names_files[0].shown}")
    files = [source for source in sources if source not in names_files]
    return files, names, [source.shown for source in names_files]


def read_names(source: Source) -> Names:
    """Read class names: a list of names, or a mapping of numbers to names or of names to numbers.

    Raises:
        DataError: not UTF-8, not JSON, or class names of another form.
    """
    try:
        value = parse(source.path.read_text("utf-8-sig"), source.shown)
    except UnicodeDecodeError as error:
        raise _names_error(error.reason, source.shown, "not UTF-8") from error
    if type(value) is list and all(type(name) is str for name in value):
        return _sort_names(enumerate(value), value, source.shown)
    entries = list(value.items()) if type(value) is dict else []
    numbers_first = [(as_integer(key), name) for key, name in entries]
    numbers_last = [(as_integer(number), name) for name, number in entries]
    are_numbers_first = all(n is not None and type(name) is str for n, name in numbers_first)
    are_numbers_last = all(number is not None for number, _ in numbers_last)
    are_numbers_last &= {type(number) for _, number in entries} in ({int}, {str})
    if not entries or not (are_numbers_first or are_numbers_last):
        raise _names_error(value, source.shown)
    if are_numbers_first and are_numbers_last and type(entries[0][1]) is str:
        raise _names_error(value, source.shown, "numbers on both sides")
    return _sort_names(numbers_last if are_numbers_last else numbers_first, value, source.shown)


def _sort_names(pairs: Iterable[tuple[int | None, str]], value: Any, file: str) -> Names:
    """Return the names in ascending order of their numbers."""
    pairs_read = [(number, name) for number, name in pairs if number is not None]
    names = dict(sorted(pairs_read))
    if not pairs_read or len(pairs_read) < len(value):
        raise _names_error(value, file)
    if len(names) < len(pairs_read) or len(set(names.values())) < len(names):
        raise _names_error(value, file, "a name or a number twice")
    if not all(map(str.strip, names.values())):
        raise _names_error(value, file, "an empty name")
    return names


def _names_error(value: Any, file: str, reason: str = "") -> DataError:
    return DataError(
        "the names of the classes cannot be read",
        where=file,
        found=(f"{reason}: " if reason else "") + repr(value)[:80],
        wanted=WANTED,
        do="write them so, or move the file out of the folder",
    )
