"""Labelled files to rows: csv, tsv, jsonl, json, parquet, conll, conllu, each also .gz or .zst;
files or folders.

    one file                     -> the part "all", divided later (splits.py)
    a folder with train…, dev…   -> the parts by the files' names; `labels.json` names the classes
    train=, validation=, test=   -> the parts as given

Each row keeps its file and line for messages. A file goes through the same door as raw text
(corpus/read.py): encoding, size limits, strict or skip with a list of rejects. A `.json` file that
is one value (an array of objects, or SQuAD) is read whole, so it must fit in memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.corpus import jsonl, parquet, table
from maskwright.corpus.files import RegularFile, Source, find
from maskwright.corpus.ledger import Counts, Ledger, at
from maskwright.corpus.lines import Block
from maskwright.corpus.read import text_blocks
from maskwright.corpus.reading import Reading
from maskwright.errors import DataError, UsageError
from maskwright.tasks import conllu_file, one_value, tag_file
from maskwright.tasks.parts import (
    ALL,
    TEST,
    TRAIN,
    VALIDATION,
    by_part,
    names_beside,
    noted_names,
)

DEFAULT = Reading()
WHOLE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file: texts in a csv, any JSON value elsewhere.

    Attributes:
        values: by column.
        file: as the user named it.
        number: counted from 1.
        unit: what `number` counts: `line`, `row` (parquet) or `item` (a json array).
    """

    values: Mapping[str, Any]
    file: str
    number: int
    unit: str = "line"

    @property
    def where(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


@dataclass(frozen=True)
class Table:
    """The rows of all parts.

    Attributes:
        parts: `train`, `validation`, `test`, those there are; or `all` alone.
        names: class names by column, where a file beside the data or in it tells them.
        counts: what the reading met, by part.
        rejects: the list of rows dropped, by part, where it was asked for.
    """

    parts: dict[str, list[Row]]
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    rejects: dict[str, Path] = field(default_factory=dict)

    @property
    def first(self) -> list[Row]:
        """The rows to learn columns and labels from: `train`, or `all`."""
        return self.parts.get(TRAIN, self.parts.get(ALL, []))

    @property
    def columns(self) -> list[str]:
        """Every column of the first part, in the order met."""
        return list(dict.fromkeys(name for row in self.first for name in row.values))


def load(
    data: Path | str | Sequence[Path | str] | None = None,
    *,
    train: Path | str | None = None,
    validation: Path | str | None = None,
    test: Path | str | None = None,
    header: Sequence[str] = (),
    reading: Reading = DEFAULT,
    rejects: Path | str | None = None,
    learned: bool = True,
) -> Table:
    """Read labelled files whole.

    Args:
        data: a file, or a folder; not together with the other three.
        train, validation, test: a file or a folder for each part.
        header: the names of the columns of csv and tsv files that have no header row.
        reading: encoding, separator, limits, and what becomes of bad rows.
        rejects: where to list the rows dropped of all parts (with `on_bad="skip"`).
        learned: whether a folder has to hold something to learn from.

    Raises:
        UsageError: no path or both kinds; a missing path; files whose parts cannot be told.
        DataError: bad rows, an empty part, columns that differ between the parts.
    """
    for name in ("column", "form"):
        if getattr(reading, name) != getattr(DEFAULT, name):
            raise UsageError(
                "only running text is read so",
                where=f"--read {name}",
                found=getattr(reading, name),
                do="say which columns of labelled files: --column ROLE=NAME",
            )
    named = {TRAIN: train, VALIDATION: validation, TEST: test}
    given = {part: path for part, path in named.items() if path is not None}
    if (data is None) == (not given):
        raise UsageError(
            "say which data, in one of two ways",
            found="both" if given else "no path",
            wanted="one file or folder (data=…), or train=… with validation=… and test=…",
        )
    if given and TRAIN not in given:
        raise UsageError("no training data", found=f"only {', '.join(given)}",
                         wanted="a path for train", do="say train=FILE too")  # fmt: skip
    if data is not None:
        files, names = names_beside(find(data)[0])
        alone = isinstance(data, str | Path) and not Path(data).is_dir()
        sources = {ALL: files} if alone else by_part(files, learned=learned)
        taken = {source.shown for some in sources.values() for source in some}
        left = [source.shown for source in files if source.shown not in taken]
    else:
        found = {part: names_beside(find(path)[0]) for part, path in given.items()}
        sources = {part: files for part, (files, _) in found.items()}
        names = {column: some for _, beside in found.values() for column, some in beside.items()}
        left = []
    parts: dict[str, list[Row]] = {}
    counts: dict[str, Counts] = {}
    lists: dict[str, Path] = {}
    listed = ""
    for part, files in sources.items():
        counts[part] = Counts()
        if rejects is not None and reading.on_bad == "skip":
            lists[part] = Path(rejects)
        parts[part] = list(read(files, reading, header, lists.get(part), counts[part]))
        if part in lists:  # each reading begins the list anew
            listed += lists[part].read_text(encoding="utf-8")
            lists[part].write_text(listed, encoding="utf-8", newline="\n")
        for source in files:
            names |= noted_names(source)
    next(iter(counts.values())).without_part += left
    made = Table(parts, names, counts, lists)
    _check_columns(made)
    return made


def read(
    sources: Sequence[Source],
    reading: Reading = DEFAULT,
    header: Sequence[str] = (),
    rejects: Path | None = None,
    counts: Counts | None = None,
) -> Iterator[Row]:
    """The rows of some files, one after the other; all but `.json` values stream.

    Raises:
        DataError: bad rows when strict, too many of them, or none at all.
    """
    counts = Counts() if counts is None else counts
    with Ledger(reading, counts, rejects) as ledger:
        for source in sources:
            before = counts.documents
            # One value may stand on one line; it is held whole in any case.
            whole = source.suffix == ".json"
            longest = max(reading.max_line_bytes, WHOLE_BYTES if whole else 0)
            ledger.reading = replace(reading, max_line_bytes=longest)
            with RegularFile(source) as opened:
                counts.files += 1
                for row in _rows(opened, source, header, ledger):
                    counts.documents += 1
                    yield row
                counts.hashes[source.shown] = opened.finish()
            if counts.documents == before:
                counts.empty_files.append(source.shown)
        ledger.finish("the data have 0 rows", "row below the header")


# ------------------------------------------------------------------------------ one file
def _rows(
    opened: RegularFile, source: Source, header: Sequence[str], ledger: Ledger
) -> Iterator[Row]:
    file = source.shown
    if source.kind == "parquet":
        for values, number in parquet.rows(opened, source, ledger):
            try:
                checked = jsonl.checked(values, ledger)
            except DataError as error:
                place = f"{file}, row {number}"
                ledger.reject(jsonl.completed(error, place), file=file, line=number)
                continue
            yield Row(checked, file, number, "row")
    elif source.kind == "table":
        yield from _table(text_blocks(opened, source, ledger), source, header, ledger)
    elif source.kind == "columns":
        words = conllu_file if source.suffix == ".conllu" else tag_file
        for values, number in words.rows(text_blocks(opened, source, ledger), file):
            yield Row(values, file, number)
    elif source.kind == "jsonl":
        blocks = text_blocks(opened, source, ledger)
        first = next(blocks, None)
        if first is None:
            return
        blocks = itertools.chain([first], blocks)
        if source.suffix == ".json" and one_value.is_one_value(first.text):
            text = "".join(block.text for block in blocks)
            for number, values in enumerate(one_value.items(text, file, ledger), 1):
                yield Row(values, file, number, "item")
            return
        for values, number in jsonl.objects(blocks, source, ledger):
            yield Row(values, file, number)
    else:
        raise UsageError(
            "plain text has no labels",
            where=file,
            found=f"a file ending in {source.suffix}",
            wanted=".csv, .tsv, .jsonl, .json, .parquet, .conll or .conllu",
            do="make a table with a column for the text and one for the label",
        )


def _table(
    blocks: Iterator[Block], source: Source, header: Sequence[str], ledger: Ledger
) -> Iterator[Row]:
    file = source.shown
    rows = table.rows(blocks, source, ledger)
    names, line = next(rows, ([], 1))
    if not names:
        return
    separator = table.separator_of(source, ledger)
    other = next((o for o in table.OTHERS if o != separator and o in names[0]), None)
    if len(names) == 1 and other:
        raise DataError(
            "the table has one column only",
            where=at(file, line),
            found=f"1 column with the separator {separator!r}: {names[0]}",
            wanted="a column for the text and one for the label",
            do=f"is the separator {other!r}? then: --read separator={other!r}",
        )
    if header:
        if len(header) != len(names):
            raise UsageError(
                "the names given do not fit the file",
                where=at(file, line),
                found=f"{len(header)} names for {len(names)} columns: {', '.join(names)}",
                wanted=f"{len(names)} names",
            )
        if twice := [name for name in header if header.count(name) > 1]:
            raise UsageError("a column name stands twice", where="--read header", found=twice[0],
                             wanted="every name once")  # fmt: skip
        rows = itertools.chain([(names, line)], rows)
        names = list(header)
    else:
        _refuse_data_as_header(names, file, line)
    for row, number in rows:
        yield Row(dict(zip(names, row, strict=True)), file, number)


def _refuse_data_as_header(names: list[str], file: str, line: int) -> None:
    odd = [n for n in names if len(n.split()) > 5 or re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", n)]
    if odd:
        raise DataError(
            "the first row looks like data, not like the names of columns",
            where=at(file, line),
            found=repr(odd[0][:80]),
            wanted="a header row, such as text,label",
            do=f"add a header row, or name the {len(names)} columns (--read header=NAME,NAME…)",
        )


def _check_columns(made: Table) -> None:
    columns = {part: {n for row in rows for n in row.values} for part, rows in made.parts.items()}
    for part, here in columns.items():
        missing = [name for name in made.columns if name not in here]
        if missing and not here.intersection(made.columns):
            raise DataError(
                "the parts have different columns",
                where=made.parts[part][0].file,
                found=f"{part}: {', '.join(sorted(here))}",
                wanted=", ".join(made.columns),
                do="name the columns alike in all files",
            )
