"""Read the rows of labelled files: csv, tsv, jsonl, json, parquet, arrow, conll, conllu, texts in
one folder for each class (each also .gz or .zst), and line-aligned texts in two languages.

Each row keeps its file and line for messages. Files are read in the same way as raw text
(text/corpus/read.py): encoding, size limits, strict or skip with a list of rejects. A `.json` file
that is one value (an array of objects, or SQuAD) is read whole, so it must fit in memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.strict_json import parse
from maskwright.base.terminal import counted
from maskwright.text.corpus import csv_file, jsonl, parquet, saved
from maskwright.text.corpus.files import RegularFile, Source
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions, line_in
from maskwright.text.tables import marked_text
from maskwright.text.tables.columns import NAMES
from maskwright.text.tables.formats import conll, json_file, text_files
from maskwright.text.tables.formats.text_files import ParallelText
from maskwright.text.tables.rows import DEFAULT_READING, TABLE_FILE, Row, plain

WHOLE_BYTES = 1 << 30
TITLE_ROWS = 50  # in which the names of columns are looked for below a title
KNOWN_NAMES = {spelling for spellings in NAMES.values() for spelling in spellings}
MOST_COLUMNS = 10_000
SHOWN = 3


def read_rows(
    sources: Sequence[Source],
    reading: ReadingOptions = DEFAULT_READING,
    header: Sequence[str] = (),
    rejects: Path | None = None,
    counts: Counts | None = None,
) -> Iterator[Row]:
    """Yield the rows of all files in order, streaming all but `.json` values.

    Args:
        header: the column names of files without a header row.
        rejects: the file to list rejected rows in; None for no list.
        counts: updated while reading; None for new counts.

    Raises:
        DataError: a bad row when strict, too many of them, or no rows at all.
    """
    counts = Counts() if counts is None else counts
    columns: set[str] = set()
    texts = set(text_files.in_folders(sources, lambda name: False))
    with Ledger(reading, counts, rejects) as ledger:
        for source in sources:
            documents_before = counts.documents
            # A JSON value may be on one line; it is read into memory as a whole in any case.
            longest = max(reading.max_line_bytes, WHOLE_BYTES if source.suffix == ".json" else 0)
            ledger.reading = replace(reading, max_line_bytes=longest)
            with RegularFile(source) as opened:
                counts.files += 1
                for row in _rows(opened, source, header, ledger, whole_file=source in texts):
                    counts.documents += 1
                    if not row.values.keys() <= columns:
                        columns.update(row.values)
                        _refuse_many(len(columns), row)
                    yield row
                counts.hashes[source.shown] = opened.finish()
            if counts.documents == documents_before:
                counts.empty_files.append(source.shown)
        ledger.finish("the data have 0 rows", "row")


def _refuse_many(count: int, row: Row) -> None:
    if count > MOST_COLUMNS:
        raise DataError(
            "too many columns",
            where=row.where,
            found=f"{count:,} columns, such as {', '.join(list(row.values)[-SHOWN:])}"[:200],
            wanted=f"at most {MOST_COLUMNS:,}",
            do='leave out columns, or write values into one: {"text": …, "labels": ["a", "b"]}',
        )


# ------------------------------------------------------------------------------ one file
def _rows(
    opened: RegularFile, source: Source, header: Sequence[str], ledger: Ledger, *, whole_file: bool
) -> Iterator[Row]:
    """Yield the rows of a file in the format of `source`; with `whole_file` the text is one row."""
    file = source.shown
    if source.format in ("parquet", "arrow"):
        yield from _parquet_rows(opened, source, ledger)
        return
    # Offsets of marked spans count characters of the text as given, so it is cleaned only later.
    as_given = source.format in ("table", "jsonl")
    blocks = text_blocks(opened, source, ledger, as_given=as_given)
    if isinstance(source, ParallelText):
        yield from _aligned(blocks, source, ledger)
        return
    if whole_file:
        before = ledger.counts.rejected
        try:
            body = text_files.whole_text(blocks, source.path)
        except DataError as error:
            ledger.reject(error, file=file, line=1, rows=1)
            return
        if ledger.counts.rejected == before:  # a text with a bad line is dropped as a whole
            yield Row(body, file, 1)
        return
    first_block = next(blocks, None)
    if first_block is None and source.format != "text":
        return
    start = first_block.text if first_block else ""
    blocks = itertools.chain([first_block] if first_block else [], blocks)
    numbered_rows: Iterator[tuple[dict[str, Any], int]]
    may_be_treebank = source.format != "jsonl" and not header
    if source.suffix == ".conllu" or (
        may_be_treebank and conll.is_treebank(start, source.format != "columns")
    ):
        numbered_rows = conll.treebank_rows(_clean_blocks(blocks, ledger), file, ledger)
    elif source.format == "columns" or (source.suffix == ".tsv" and conll.is_tsv_of_words(start)):
        numbered_rows = conll.rows(_clean_blocks(blocks, ledger), file, header, ledger)
    elif source.format == "table":
        yield from _table(blocks, source, header, ledger)
        return
    elif source.format == "jsonl" and json_file.is_one_value(start, lines=source.suffix != ".json"):
        text = "".join(block.text for block in blocks)
        for values, number in json_file.items(text, file, ledger):
            yield _clean_row(values, file, number, ledger, "item")
        return
    elif source.format == "jsonl":
        for values, number in jsonl.objects(blocks, source, ledger, json_file.row_of_line):
            yield _clean_row(values, file, number, ledger)
        return
    elif conll.is_text_of_words(start):
        numbered_rows = conll.rows(_clean_blocks(blocks, ledger), file, header, ledger)
    elif start.lstrip().startswith(text_files.LABEL):
        multi_label = text_files.MULTI_LABEL.search(start) is not None
        numbered_rows = text_files.lines(blocks, multi_label, file, ledger)
    else:
        raise _unlabelled_text_error(start, source)
    for values, number in numbered_rows:
        yield Row(values, file, number)


def _clean_row(
    values: dict[str, Any], file: str, number: int, ledger: Ledger, unit: str = "line"
) -> Row:
    """Return a row with cleaned values that also keeps the original values of changed columns."""
    cleaned_values, original_values = marked_text.clean_row(
        values, ledger, line_ends=bool(TABLE_FILE.search(file))
    )
    return Row(cleaned_values, file, number, unit, original_values)


def _clean_blocks(blocks: Iterator[TextBlock], ledger: Ledger) -> Iterator[TextBlock]:
    """Yield blocks with cleaned text, for formats whose texts have no character offsets."""
    for block in blocks:
        text = marked_text.text_as_read(block.text, ledger, line_ends=True)
        yield block if text is block.text else TextBlock(text, block.line)


def _aligned(blocks: Iterator[TextBlock], source: ParallelText, ledger: Ledger) -> Iterator[Row]:
    with RegularFile(source.other) as other_file:
        ledger.counts.files += 1
        both_blocks = (blocks, text_blocks(other_file, source.other, ledger))
        for values, number in text_files.aligned(both_blocks, source, ledger):
            yield Row(values, source.shown, number)
        ledger.counts.hashes[source.other.shown] = other_file.finish()


def _parquet_rows(opened: RegularFile, source: Source, ledger: Ledger) -> Iterator[Row]:
    file, languages = source.shown, noted_languages(source)
    for values, number in parquet.rows(opened, source, ledger):
        for name, names in languages.items():  # the file has the languages in alphabetical order
            if type(translations := values.get(name)) is dict and translations.keys() == set(names):
                values[name] = {language: translations[language] for language in names}
        try:
            checked_values = jsonl.check_texts(values, ledger)
        except DataError as error:
            where = f"{file}, row {number}"
            ledger.reject(jsonl.with_place(error, where), file=file, line=number)
            continue
        yield _clean_row(checked_values, file, number, ledger, "row")


def _unlabelled_text_error(begin: str, source: Source) -> UsageError:
    """Return the error for a file without labels whose text begins with `begin`."""
    if text_files.LANGUAGE.fullmatch(source.path.suffix.removeprefix(".")):
        problem, expected = "lines of text without their translation", "a folder with two languages"
        do = "name a folder with pairs such as train.en and train.de, and no third language"
    else:
        problem = "plain text has no labels"
        expected = ".csv, .tsv, .jsonl, .json, .parquet, .conll or .conllu"
        do = "make a table with a column for the text and one for the label, or a folder for each "
        do += "class; a file of words, with the tag of each behind it, is named .conll, and a "
        do += "table .csv or .tsv (--read separator=';', --read header=NAME,NAME)"
    return UsageError(
        problem, where=source.shown, found=repr(begin.strip()[:80]), wanted=expected, do=do
    )


def _likelier_separator(names: Sequence[str], separator: str) -> str | None:
    """Return a separator that suits the first row better than `separator`, or None: one that occurs
    in its only column, or the tab if there is one for every column (texts contain few)."""
    if len(names) == 1:
        return next((o for o in csv_file.OTHERS if o != separator and o in names[0]), None)
    tabs = sum(name.count("\t") for name in names)
    return "\t" if separator != "\t" and tabs >= len(names) else None


def _table(
    blocks: Iterator[TextBlock], source: Source, header: Sequence[str], ledger: Ledger
) -> Iterator[Row]:
    file = source.shown
    rows = csv_file.rows(blocks, source, ledger, named=not header)
    names, line = next(rows, ([], 1))
    if not names:
        return
    separator = csv_file.separator_of(source, ledger)
    if (suggested := _likelier_separator(names, separator)) is not None:
        raise DataError(
            "the table has one column only" if len(names) == 1 else "another separator is likely",
            where=line_in(file, line),
            found=f"{counted(len(names), 'column')} with the separator {separator!r}: "
            f"{' … '.join(names)[:200]}",
            wanted="several columns, such as text and label",
            do=f"is the separator {suggested!r}? then: --read separator={suggested!r}",
        )
    if header:
        conll.require_names(header, names, line_in(file, line))
        if list(header) == [name.strip() for name in names]:
            raise UsageError(
                "the file's first row holds these names already",
                where=line_in(file, line),
                found=", ".join(names),
                do="leave --read header out",
            )
        rows = itertools.chain([(names, line)], rows)
        names = list(header)
    else:
        _refuse_data_as_header(names, file, line)
        ledger.counts.rows -= 1  # the header
    has_names, first_rows = bool(header) or not KNOWN_NAMES.isdisjoint(map(plain, names)), []
    for row, number in itertools.islice(rows, TITLE_ROWS):
        first_rows.append((row, number))
        # Rows of a title have empty cells; the first row without one is of names or of data.
        if has_names or all(map(str.strip, row)):
            break
    if not first_rows:
        return
    row, number = first_rows[-1]
    if not has_names and len(KNOWN_NAMES.intersection(map(plain, row))) > 1:
        raise DataError(
            "a line stands above the names of the columns",
            where=line_in(file, line),
            found=repr(separator.join(names)[:80]),
            wanted="the names of the columns in the first line",
            do=f"delete the lines above line {number}",
        )
    numbered_values = (
        (dict(zip(names, row, strict=True)), number)
        for row, number in itertools.chain(first_rows, rows)
    )
    if (columns := conll.columns_of(names, first_rows[0][0])) is None:
        if json_file.is_exported_table(names):
            numbered_values = (
                (json_file.row_of_exported_table(values), number)
                for values, number in numbered_values
            )
        yield from (_clean_row(values, file, number, ledger) for values, number in numbered_values)
    else:
        cleaned_rows = (
            (marked_text.clean_row(values, ledger, line_ends=True)[0], number)
            for values, number in numbered_values
        )
        sentences = conll.sentences(cleaned_rows, *columns, file, ledger)
        yield from (Row(values, file, number) for values, number in sentences)


def _refuse_data_as_header(names: list[str], file: str, line: int) -> None:
    data_like = [
        n for n in names if len(n.split()) > 5 or re.fullmatch(r"\s*-?\d+(\.\d+)?\s*|.*[.!]\s*", n)
    ]
    if data_like:
        raise DataError(
            "the first row looks like data, not like the names of columns",
            where=line_in(file, line),
            found=repr(data_like[0][:80]),
            wanted="a header row, such as text,label",
            do=f"add a header row, name the {counted(len(names), 'column')} "
            "(--read header=NAME,NAME…), or, where this is the name of a column, give it another",
        )


# ------------------------------------------------------------------------------ datasets library
def class_names_in(features: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield (column, class names) from the features that the datasets library describes."""
    for column, feature in features.items() if type(features) is dict else ():
        # In a feature that is a list of classes, such as tags, the names are one level deeper.
        inner = feature[0] if type(feature) is list and len(feature) == 1 else feature
        nested = inner.get("feature") if type(inner) is dict else None
        inner = nested if type(nested) is dict else inner
        if type(inner) is dict and type(inner.get("names")) is list and inner["names"]:
            yield column, inner["names"]


def noted_languages(source: Source) -> dict[str, list[str]]:
    """Return the languages of each translation column, in the order in which they were written."""
    values = {
        name: feature.get("languages")
        for name, feature in features_of(source).items()
        if type(feature) is dict and feature.get("_type") == "Translation"
    }
    return {
        name: list(map(str, languages))
        for name, languages in values.items()
        if type(languages) is list
    }


def features_of(source: Source) -> dict[str, Any]:
    """Return the features that the datasets library stores for each column; empty if there are none
    or they cannot be read, as they are optional."""
    if source.format not in ("parquet", "arrow"):
        return {}
    metadata = parquet.metadata(source).get(b"huggingface")
    try:
        features = {} if metadata is None else parse(metadata.decode("utf-8"), source.shown)
        features = features["info"]["features"] if features else {}
    except (DataError, UnicodeDecodeError, KeyError, TypeError):
        features = {}  # a note that is not theirs
    if not features and source.format == "arrow":
        features = saved.dataset_info(source.path).get("features")
    return features if type(features) is dict else {}
