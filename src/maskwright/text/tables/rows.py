"""Read the rows of labelled files: csv, tsv, jsonl, json, parquet, arrow, conll, conllu, texts in
one folder for each class (each also .gz or .zst), and line-aligned texts in two languages.

Each row keeps its file and line for messages. Files are read in the same way as raw text
(text/corpus/read.py): encoding, size limits, strict or skip with a list of rejects. A `.json` file
that is one value (an array of objects, or SQuAD) is read whole, so it must fit in memory.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.storage.files import new_text
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus import csv_file, jsonl, parquet
from maskwright.text.corpus.files import RegularFile, Source
from maskwright.text.corpus.ledger import Counts, Ledger, line_in
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.row_faults import above_header, is_comment
from maskwright.text.tables import raw_text
from maskwright.text.tables.formats import (
    annotation_exports,
    class_folders,
    conll,
    conllu,
    spacy_json,
    squad,
    unnamed_files,
)
from maskwright.text.tables.formats.unnamed_files import ParallelText
from maskwright.text.tables.spellings import NAMES, plain
from maskwright.text.tables.split_files import PARTS, noted_languages

# Keys under which a JSON object may hold the rows.
WRAPPERS = ("data", "rows", "records", "items", "examples")


def is_one_value(text: str, *, lines: bool) -> bool:
    """Whether a file that begins with `text` is one JSON value and not JSON Lines: its first line
    is not a whole object, or holds all rows. With `lines`, a broken first line is a bad row."""
    first_line, _, rest = text.lstrip().partition("\n")
    try:
        value = parse(jsonl.with_escapes(first_line))
    except DataError:
        is_begun = first_line.rstrip()[-1:] in tuple("{[,:") and not _is_whole(rest)
        return not lines or is_begun or first_line.strip() in ("[", "{") or _is_whole(first_line)
    if rest.strip():  # each line is a row, or a pair of a text and its marked spans
        return type(value) is not dict and not spacy_json.is_pair(value)
    return not _is_row(value) or annotation_exports.is_one(value)


def _is_whole(text: str) -> bool:
    """Whether the first line of a text consists of complete JSON values."""
    try:
        return bool(parse(jsonl.with_escapes(text.partition("\n")[0]), many=True))
    except DataError:
        return False


def _is_row(value: Any) -> bool:
    """Whether an object alone in its file is one row: it has a text, a number or a word list."""
    if type(value) is not dict or type(value.get("data")) is list:
        return False
    tokens = [v for name, v in value.items() if plain(name) in NAMES["tokens"] and type(v) is list]
    return (
        any(type(v) not in (list, dict) for v in value.values())
        or any(all(type(word) is str for word in v) for v in tokens)
        or (
            not any(
                key.isdecimal() for v in (value, *value.values()) if type(v) is dict for key in v
            )
            and all(type(v) is dict for v in value.values())
        )
    )


def _rows_by_number(value: dict[str, Any]) -> list[Any] | None:
    """Return the rows of an object of objects as pandas writes tables, with row numbers as the
    outer or the inner keys; None for other objects."""
    inner = list(value.values())
    if all(map(str.isdecimal, value)):
        return inner
    keys = inner[0].keys()
    if keys and all(map(str.isdecimal, keys)) and all(mapping.keys() == keys for mapping in inner):
        return [{name: value[name][key] for name in value} for key in keys]
    return None


def _rows_in(value: Any, file: str, ledger: Ledger) -> list[Any]:
    """Return the rows in a JSON value; each is an object if the row is valid.

    Raises:
        DataError: the value holds no rows.
    """
    rows = value if type(value) is list else None
    if type(value) is dict and value:
        names, data, values = value.get("columns"), value.get("data"), list(value.values())
        if type(names) is list and type(data) is list and set(map(_length, data)) == {len(names)}:
            rows = [dict(zip(map(str, names), cells, strict=True)) for cells in data]
        elif wrapped := [value[name] for name in WRAPPERS if type(value.get(name)) is list]:
            rows = wrapped[0]
        elif len(sizes := set(map(_length, values))) == 1 and sizes != {None}:
            rows = [dict(zip(value, cells, strict=True)) for cells in zip(*values, strict=True)]
        elif all(type(v) is dict for v in values):
            rows = _rows_by_number(value)
        if rows is not None and rows is not data:
            message = f"{len(rows):,} rows made of the columns or rows of one object"
            ledger.counts.notes.append(Finding("rows-of-one-object", message, file))
    has_splits = type(value) is dict and bool({*PARTS, "dev"} & value.keys())
    if rows is None or has_splits or (rows and not any(type(item) is dict for item in rows)):
        raise DataError(
            "the .json file is no table",
            where=file,
            found=f"an object with {', '.join(list(value)[:5])}"
            if type(value) is dict
            else f"a list of {type(value[0]).__name__}",
            wanted='[{"text": "…", "label": "…"}, …], or JSON Lines',
            do="write each part into a file of its own in one folder: train.json, test.json"
            if has_splits
            else "write a list of objects, one for each row",
        )
    return rows


def _length(value: Any) -> int | None:
    return len(value) if type(value) is list else None


def items(text: str, file: str, ledger: Ledger) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, its number) of a `.json` file that is read whole.

    Raises:
        DataError: not JSON, or without rows; a bad item, when the policy is strict.
    """
    try:
        values = parse(jsonl.with_escapes(text), file, many=True)
    except DataError as error:
        raise error.advising(
            "correct the file: it is one value, of which no row can be left out; JSON Lines, a row "
            "on each line, can be read with on_bad='skip'"
        ) from None
    value = values[0] if len(values) == 1 else values
    try:  # an export must be valid as a whole; in other files a bad item is a bad row
        checked = jsonl.check_texts(value, ledger)
    except DataError:
        checked = None
    lines = text.count("\n") + (not text.endswith("\n"))
    if (
        checked is not None
        and (exported := annotation_exports.rows(checked, file, ledger)) is not None
    ):
        ledger.counts.rows += len(exported) - lines
        for number, row in enumerate(exported, 1):
            yield row, getattr(row, "item", 0) or number
        return
    value = value if checked is None else checked
    items = _rows_in(value, file, ledger)
    # Rows are counted by items instead of lines, as all items may be on one line.
    ledger.counts.rows -= lines
    if any("paragraphs" in item for item in items if type(item) is dict):
        checked_items = squad.rows_and_faults({"data": items}, file)
    else:
        checked_items = iter(items)
    for number, item in enumerate(checked_items, 1):
        ledger.counts.rows += 1
        try:
            if isinstance(item, DataError):
                raise item
            if type(item) is not dict:
                raise DataError(
                    "the item is not an object",
                    found=repr(item)[:80],
                    wanted='an object such as {"text": "…", "label": "…"}',
                )
            yield jsonl.check_texts(item, ledger) if checked is None else item, number
        except DataError as error:
            where = "" if error.where else f"{file}, item {number}"
            ledger.reject(jsonl.with_place(error, where), file=file, line=number)


DEFAULT_READING = ReadingOptions()
TABLE_FILE = re.compile(r"\.(csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
WHOLE_BYTES = 1 << 30
LOOKED_AT = 50  # lines
MOST_COLUMNS = 10_000
SHOWN = 3


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

    def as_given(self) -> Row:
        """Return the row with its original texts, before characters were removed."""
        return replace(self, values={**self.values, **self.given}) if self.given else self


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
    texts = set(class_folders.in_folders(sources, lambda name: False))
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
                        _require_few(columns, row)
                    yield row
                counts.hashes[source.shown] = opened.finish()
            if counts.documents == documents_before:
                counts.empty_files.append(source.shown)
        ledger.finish("the data have 0 rows", "row below the header")


def _require_few(columns: Collection[str], row: Row) -> None:
    """Raise DataError for more than `MOST_COLUMNS` columns."""
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
            body = class_folders.whole_text(blocks, source.path)
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
    treebank = (
        source.format != "jsonl" and not header and conllu.is_one(start, source.format != "columns")
    )
    if source.suffix == ".conllu" or treebank:
        numbered_rows = conllu.rows(_clean_blocks(blocks, ledger), file, ledger)
    elif source.format == "columns" or (source.suffix == ".tsv" and conll.is_one(start)):
        numbered_rows = conll.rows(_clean_blocks(blocks, ledger), file, header, ledger)
    elif source.format == "table":
        _refuse_webanno_file(start, file)
        yield from _table(blocks, source, header, ledger)
        return
    elif source.format == "jsonl" and is_one_value(start, lines=source.suffix != ".json"):
        text = "".join(block.text for block in blocks)
        for values, number in items(text, file, ledger):
            yield _clean_row(values, file, number, ledger, "item")
        return
    elif source.format == "jsonl":
        for values, number in jsonl.objects(blocks, source, ledger, annotation_exports.line):
            yield _clean_row(values, file, number, ledger)
        return
    elif conll.is_words(start):
        numbered_rows = conll.rows(_clean_blocks(blocks, ledger), file, header, ledger)
    elif start.lstrip().startswith(class_folders.LABEL):
        multi_label = class_folders.MULTI_LABEL.search(start) is not None
        numbered_rows = class_folders.lines(blocks, multi_label, file, ledger)
    else:
        raise _unlabelled_text_error(start, source)
    for values, number in numbered_rows:
        yield Row(values, file, number)


def _clean_row(
    values: dict[str, Any], file: str, number: int, ledger: Ledger, unit: str = "line"
) -> Row:
    """Return a row with cleaned values that also keeps the original values of changed columns."""
    cleaned_values, original_values = raw_text.clean_row(
        values, ledger, line_ends=bool(TABLE_FILE.search(file))
    )
    return Row(cleaned_values, file, number, unit, original_values)


def _clean_blocks(blocks: Iterator[TextBlock], ledger: Ledger) -> Iterator[TextBlock]:
    """Yield blocks with cleaned text, for formats whose texts have no character offsets."""
    for block in blocks:
        text = raw_text.text_as_read(block.text, ledger, line_ends=True)
        yield block if text is block.text else TextBlock(text, block.line)


def _aligned(blocks: Iterator[TextBlock], source: ParallelText, ledger: Ledger) -> Iterator[Row]:
    with RegularFile(source.other) as other_file:
        ledger.counts.files += 1
        both_blocks = (blocks, text_blocks(other_file, source.other, ledger))
        for values, number in unnamed_files.aligned(both_blocks, source, ledger):
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


def _refuse_webanno_file(begin: str, file: str) -> None:
    if begin.startswith("#FORMAT=WebAnno"):
        raise UsageError(
            "a WebAnno file, which is no table",
            where=file,
            found=repr(begin.partition("\n")[0]),
            wanted="words with their tags, or JSON",
            do="export the project once more as CoNLL 2003, and name the file .conll",
        )


def _unlabelled_text_error(begin: str, source: Source) -> UsageError:
    """Return the error for a file without labels whose text begins with `begin`."""
    if ending := _likely_table_ending(begin):
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


def _likely_table_ending(text: str) -> tuple[str, str] | None:
    """Return (file ending, options) of the table that `text` looks like, or None."""
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
    rows = csv_file.rows(blocks, source, ledger)
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
            wanted="a column for the text and one for the label",
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
    first_row = next(rows, None)
    if first_row is None:
        return
    if not header and (is_title(names, first_row[0]) or (len(names) == 1 and is_comment(names))):
        data_row = next((row for row in rows if not is_comment(row[0])), first_row)
        raise above_header(names, file, (data_row if is_comment(first_row[0]) else first_row)[1])
    numbered_values = (
        (dict(zip(names, row, strict=True)), number)
        for row, number in itertools.chain([first_row], rows)
    )
    if (columns := conll.columns_of(names, first_row[0])) is None:
        if annotation_exports.is_table(names):
            numbered_values = (
                (annotation_exports.of_table(values), number) for values, number in numbered_values
            )
        yield from (_clean_row(values, file, number, ledger) for values, number in numbered_values)
    else:
        cleaned_rows = (
            (raw_text.clean_row(values, ledger, line_ends=True)[0], number)
            for values, number in numbered_values
        )
        sentences = conll.sentences(cleaned_rows, *columns, file, ledger)
        yield from (Row(values, file, number) for values, number in sentences)


def is_title(names: Sequence[str], row: Sequence[str]) -> bool:
    """Whether the second row holds known names of columns, and the first row none."""
    known_names = {spelling for spellings in NAMES.values() for spelling in spellings}
    cells_known = [plain(cell) in known_names for cell in row]
    return sum(cells_known) > 1 and not any(plain(name) in known_names for name in names)


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
            do=f"add a header row, name the {len(names)} columns (--read header=NAME,NAME…), or, "
            "where this is the name of a column, give it another",
        )


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
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {reason.what} ({reason.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows"
            + (
                ""
                if len(bad) == len(rows)
                else f", or raise it (--read max_bad_fraction={enough_fraction})"
            ),
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
            entry = {
                "file": row.file,
                row.unit: row.number,
                "reason": error.what,
                "found": error.found,
                "wanted": error.wanted,
            }
            file.write(json.dumps(entry) + "\n")
