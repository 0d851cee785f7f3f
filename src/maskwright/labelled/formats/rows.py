"""Labelled files to rows: csv, tsv, jsonl, json, parquet, arrow, conll, conllu, and texts in the
folders of their classes, each also .gz or .zst; and a text in two languages, line by line.

Each row keeps its file and line for messages. A file goes through the same door as raw text
(corpus/read.py): encoding, size limits, strict or skip with a list of rejects. A `.json` file that
is one value (an array of objects, or SQuAD) is read whole, so it must fit in memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.corpus import jsonl, parquet, table
from maskwright.corpus.files import RegularFile, Source
from maskwright.corpus.ledger import Counts, Ledger, at
from maskwright.corpus.lines import Block
from maskwright.corpus.read import text_blocks
from maskwright.corpus.reading import Reading
from maskwright.corpus.row_faults import above_header, is_comment
from maskwright.counted import counted
from maskwright.errors import DataError, UsageError
from maskwright.labelled.columns.spellings import NAMES, plain
from maskwright.labelled.formats import (
    as_given,
    class_folders,
    conllu_file,
    exports,
    one_value,
    tag_file,
    unnamed_files,
    word_columns,
    word_table,
)
from maskwright.labelled.formats.parts import noted_languages
from maskwright.labelled.formats.unnamed_files import Parallel

DEFAULT_READING = Reading()
TABLE_FILE = re.compile(r"\.(csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
WHOLE_BYTES = 1 << 30
LOOKED_AT = 50  # lines
MOST_COLUMNS = 10_000
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file: texts in a csv, any JSON value elsewhere.

    Attributes:
        values: by column.
        file: as the user named it.
        number: counted from 1.
        unit: what `number` counts: `line`, `row` (parquet) or `item` (a json array).
        given: the values of those columns in which something was left out, such as control
            characters, as they were before; places in texts count these.
    """

    values: Mapping[str, Any]
    file: str
    number: int
    unit: str = "line"
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"

    def as_given(self) -> Row:
        """The same row with nothing left out of its texts."""
        return replace(self, values={**self.values, **self.given}) if self.given else self


def read_rows(
    sources: Sequence[Source],
    reading: Reading = DEFAULT_READING,
    header: Sequence[str] = (),
    rejects: Path | None = None,
    counts: Counts | None = None,
) -> Iterator[Row]:
    """The rows of some files, one after the other; all but `.json` values stream.

    Raises:
        DataError: bad rows when strict, too many of them, or none at all.
    """
    counts = Counts() if counts is None else counts
    columns: set[str] = set()
    texts = set(class_folders.in_folders(sources, lambda name: False))
    with Ledger(reading, counts, rejects) as ledger:
        for source in sources:
            before = counts.documents
            # One value may stand on one line; it is held whole in any case.
            longest = max(reading.max_line_bytes, WHOLE_BYTES if source.suffix == ".json" else 0)
            ledger.reading = replace(reading, max_line_bytes=longest)
            with RegularFile(source) as opened:
                counts.files += 1
                for row in _rows(opened, source, header, ledger, alone=source in texts):
                    counts.documents += 1
                    if not row.values.keys() <= columns:
                        columns.update(row.values)
                        _require_few(columns, row)
                    yield row
                counts.hashes[source.shown] = opened.finish()
            if counts.documents == before:
                counts.empty_files.append(source.shown)
        ledger.finish("the data have 0 rows", "row below the header")


def _require_few(columns: Collection[str], row: Row) -> None:
    """Refuse what has more columns than a table."""
    if len(columns) > MOST_COLUMNS:
        raise DataError(
            "too many columns",
            where=row.where,
            found=f"{len(columns):,} names of columns up to here, such as "
            f"{', '.join(list(row.values)[-SHOWN:])}"[:200],
            wanted=f"at most {MOST_COLUMNS:,}",
            do="leave out columns that are not read; many values that have names, or many labels, "
            'stand in one column: {"text": …, "labels": ["a", "b"]}',
        )


# ------------------------------------------------------------------------------ one file
def _rows(
    opened: RegularFile, source: Source, header: Sequence[str], ledger: Ledger, *, alone: bool
) -> Iterator[Row]:
    """The rows of a file; of a text that is `alone` in its file, one."""
    file = source.shown
    if source.format in ("parquet", "arrow"):
        yield from _of_parquet(opened, source, ledger)
        return
    # Texts in which places are marked stay as given until their rows are made.
    marked = source.format in ("table", "jsonl")
    blocks = text_blocks(opened, source, ledger, as_given=marked)
    if isinstance(source, Parallel):
        yield from _of_two(blocks, source, ledger)
        return
    if alone:
        before = ledger.counts.rejected
        try:
            body = class_folders.whole_text(blocks, source.path)
        except DataError as error:
            ledger.reject(error, file=file, line=1, rows=1)
            return
        if ledger.counts.rejected == before:  # a text of which a line is bad is dropped whole
            yield Row(body, file, 1)
        return
    first = next(blocks, None)
    if first is None and source.format != "text":
        return
    begin = first.text if first else ""
    blocks = itertools.chain([first] if first else [], blocks)
    numbered_rows: Iterator[tuple[dict[str, Any], int]]
    treebank = (
        source.format != "jsonl"
        and not header
        and conllu_file.is_one(begin, source.format != "columns")
    )
    if source.suffix == ".conllu" or treebank:
        numbered_rows = conllu_file.rows(_as_read(blocks, ledger), file, ledger)
    elif source.format == "columns" or (source.suffix == ".tsv" and tag_file.is_one(begin)):
        numbered_rows = tag_file.rows(_as_read(blocks, ledger), file, header, ledger)
    elif source.format == "table":
        _refuse_webanno(begin, file)
        yield from _table(blocks, source, header, ledger)
        return
    elif source.format == "jsonl" and one_value.is_one_value(begin, lines=source.suffix != ".json"):
        text = "".join(block.text for block in blocks)
        for values, number in one_value.items(text, file, ledger):
            yield _cleaned(values, file, number, ledger, "item")
        return
    elif source.format == "jsonl":
        for values, number in jsonl.objects(blocks, source, ledger, exports.line):
            yield _cleaned(values, file, number, ledger)
        return
    elif tag_file.is_words(begin):
        numbered_rows = tag_file.rows(_as_read(blocks, ledger), file, header, ledger)
    elif class_folders.is_labelled(begin):
        multi_label = class_folders.has_multi_labels(begin)
        numbered_rows = class_folders.lines(blocks, multi_label, file, ledger)
    else:
        raise _no_labels(begin, source)
    for values, number in numbered_rows:
        yield Row(values, file, number)


def _cleaned(
    values: dict[str, Any], file: str, number: int, ledger: Ledger, unit: str = "line"
) -> Row:
    """A row as it is read, which keeps what was given."""
    read, given = as_given.cleaned(values, ledger, line_ends=bool(TABLE_FILE.search(file)))
    return Row(read, file, number, unit, given)


def _as_read(blocks: Iterator[Block], ledger: Ledger) -> Iterator[Block]:
    """Lines of words, in whose texts no places are marked, as they are read."""
    for block in blocks:
        text = as_given.text_as_read(block.text, ledger, line_ends=True)
        yield block if text is block.text else Block(text, block.line)


def _of_two(blocks: Iterator[Block], source: Parallel, ledger: Ledger) -> Iterator[Row]:
    with RegularFile(source.other) as opened:
        ledger.counts.files += 1
        both = (blocks, text_blocks(opened, source.other, ledger))
        for values, number in unnamed_files.aligned(both, source, ledger):
            yield Row(values, source.shown, number)
        ledger.counts.hashes[source.other.shown] = opened.finish()


def _of_parquet(opened: RegularFile, source: Source, ledger: Ledger) -> Iterator[Row]:
    file, orders = source.shown, noted_languages(source)
    for values, number in parquet.rows(opened, source, ledger):
        for name, order in orders.items():  # in the file they are in the order of the alphabet
            if type(both := values.get(name)) is dict and both.keys() == set(order):
                values[name] = {language: both[language] for language in order}
        try:
            checked = jsonl.checked(values, ledger)
        except DataError as error:
            place = f"{file}, row {number}"
            ledger.reject(jsonl.completed(error, place), file=file, line=number)
            continue
        yield _cleaned(checked, file, number, ledger, "row")


def _refuse_webanno(begin: str, file: str) -> None:
    if begin.startswith("#FORMAT=WebAnno"):
        raise UsageError(
            "a WebAnno file, which is no table",
            where=file,
            found=repr(begin.partition("\n")[0]),
            wanted="words with their tags, or JSON",
            do="export the project once more as CoNLL 2003, and name the file .conll",
        )


def _no_labels(begin: str, source: Source) -> UsageError:
    """The error for a text that begins so."""
    if ending := _ending_of_table(begin):
        return UsageError(
            "lines of text that look like rows of a table",
            where=source.shown,
            found=repr(begin.partition("\n")[0][:80]),
            wanted=f"a file ending in {ending[0]}",
            do=f"rename it to {ending[0]}{ending[1]}",
        )
    if unnamed_files.LANGUAGE.fullmatch(source.path.suffix.removeprefix(".")):
        return UsageError(
            "lines of text without their translation",
            where=source.shown,
            found=source.path.name,
            wanted="a folder with two languages, line by line",
            do="name a folder with pairs such as train.en and train.de, and no third language",
        )
    return UsageError(
        "plain text has no labels",
        where=source.shown,
        found=f"lines of text in {source.path.name}",
        wanted=".csv, .tsv, .jsonl, .json, .parquet, .conll or .conllu",
        do="make a table with a column for the text and one for the label, or a folder "
        "for each class; a file of words, with the tag of each behind it, is named .conll",
    )


def _ending_of_table(text: str) -> tuple[str, str] | None:
    """(how a table is named that begins with such lines, further options); None of other text."""
    lines = [line for line in text.split("\n")[:LOOKED_AT] if line.strip()]
    for separator, ending in (("\t", ".tsv"), (";", ".csv"), ("|", ".csv"), ("@", ".csv")):
        counts = {line.count(separator) for line in lines}
        if len(lines) > 1 and len(counts) == 1 and 0 not in counts:
            option = "" if ending == ".tsv" else f", and give --read separator='{separator}'"
            return (
                ending,
                f"{option}; without names of columns in its first line also --read header=",
            )
    return None


def _likelier(names: Sequence[str], separator: str) -> str | None:
    """Another separator of a table whose first row is so: one in its only column, or tabs, of which
    texts have few."""
    if len(names) == 1:
        return next((o for o in table.OTHERS if o != separator and o in names[0]), None)
    tabs = sum(name.count("\t") for name in names)
    return "\t" if separator != "\t" and tabs >= len(names) else None


def _table(
    blocks: Iterator[Block], source: Source, header: Sequence[str], ledger: Ledger
) -> Iterator[Row]:
    file = source.shown
    rows = table.rows(blocks, source, ledger)
    names, line = next(rows, ([], 1))
    if not names:
        return
    separator = table.separator_of(source, ledger)
    if (other := _likelier(names, separator)) is not None:
        raise DataError(
            "the table has one column only" if len(names) == 1 else "another separator is likely",
            where=at(file, line),
            found=f"{counted(len(names), 'column')} with the separator {separator!r}: "
            f"{' … '.join(names)[:200]}",
            wanted="a column for the text and one for the label",
            do=f"is the separator {other!r}? then: --read separator={other!r}",
        )
    if header:
        word_columns.require_names(header, names, at(file, line))
        if list(header) == [name.strip() for name in names]:
            raise UsageError(
                "the file's first row holds these names already",
                where=at(file, line),
                found=", ".join(names),
                do="leave --read header out",
            )
        rows = itertools.chain([(names, line)], rows)
        names = list(header)
    else:
        _refuse_data_as_header(names, file, line)
    first = next(rows, None)
    if first is None:
        return
    if not header and (is_title(names, first[0]) or (len(names) == 1 and is_comment(names))):
        below = next((row for row in rows if not is_comment(row[0])), first)
        raise above_header(names, file, (below if is_comment(first[0]) else first)[1])
    named = (
        (dict(zip(names, row, strict=True)), number)
        for row, number in itertools.chain([first], rows)
    )
    if (columns := word_table.columns_of(names, first[0])) is None:
        if exports.is_table(names):
            named = ((exports.of_table(values), number) for values, number in named)
        yield from (_cleaned(values, file, number, ledger) for values, number in named)
    else:
        read = (
            (as_given.cleaned(values, ledger, line_ends=True)[0], number)
            for values, number in named
        )
        sentences = word_table.sentences(read, *columns, file, ledger)
        yield from (Row(values, file, number) for values, number in sentences)


def is_title(names: Sequence[str], row: Sequence[str]) -> bool:
    """Whether the row below the first one names the columns, as no name in the first does."""
    known = {spelling for spellings in NAMES.values() for spelling in spellings}
    is_known = [plain(cell) in known for cell in row]
    return sum(is_known) > 1 and not any(plain(name) in known for name in names)


def _refuse_data_as_header(names: list[str], file: str, line: int) -> None:
    data_like = [
        n for n in names if len(n.split()) > 5 or re.fullmatch(r"\s*-?\d+(\.\d+)?\s*|.*[.!]\s*", n)
    ]
    if data_like:
        raise DataError(
            "the first row looks like data, not like the names of columns",
            where=at(file, line),
            found=repr(data_like[0][:80]),
            wanted="a header row, such as text,label",
            do=f"add a header row, name the {len(names)} columns (--read header=NAME,NAME…), or, "
            "where this is the name of a column, give it another",
        )
