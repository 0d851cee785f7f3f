"""Read documents from CSV and TSV, with exact line numbers even after multi-line fields.

Python's `csv` module parses; this file adds checks: equal width of all rows, unique names in the
header, quotes that close, rows of bounded size, and no quoted field whose contents look like rows.
A first line `sep=;`, as spreadsheets write it, names the separator and is not a row.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.terminal import counted
from maskwright.text.corpus.files import Source
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import (
    ALL_COLUMNS,
    OR_SKIP,
    Document,
    Ledger,
    ReadingOptions,
    line_in,
    missing_column,
    note_columns,
    refuse_duplicates,
)

# ------------------------------------------------------------------------------ errors of rows
# Advice for files that escape quotes or separators by a backslash instead of doubling quotes.
BACKSLASH = (
    "does a backslash stand before quotes and separators that are text? then read with "
    "escapechar='\\\\'"
)
PLAIN_QUOTES = "are quotes plain signs in this file? then read with quoting=False"


def _repeated_header(row: list[str], file: str, line: int) -> DataError:
    return DataError(
        "the names of the columns occur again as a row",
        where=line_in(file, line),
        found=", ".join(row)[:80],
        wanted="the names of the columns in the first line only, unlike in joined files",
        do=f"delete the row, {OR_SKIP}",
    )


def wrong_width(
    row: list[str], header: list[str], file: str, line: int, separator: str, raw: str
) -> DataError:
    advice = "correct the row (quote fields that hold the separator)"
    if escaped(raw, separator):
        advice = BACKSLASH
    elif len(header) == 1:
        advice = "delete what stands above the names of the columns, or quote the field"
    elif any("\n" in field for field in row):
        advice = PLAIN_QUOTES
    return DataError(
        "the row has too few fields" if len(row) < len(header) else "the row has too many fields",
        where=line_in(file, line),
        found=f"{counted(len(row), 'field')} with the separator {separator!r}",
        wanted=f"{len(header)} fields, as in the header",
        do=f"{advice}, {OR_SKIP}",
    )


def escaped(raw: str, separator: str) -> bool:
    """Whether lines have a backslash before a quote, a separator or a line end."""
    return '\\"' in raw or f"\\{separator}" in raw or "\\\n" in raw


def mutilated(file: str, first_line: int, last_line: int, gap: int) -> DataError:
    return DataError(
        "a line of the row was left out",
        where=line_in(file, first_line),
        found=f"a row of lines {first_line} to {last_line}, of which line {gap} is bad",
        wanted="all lines of a quoted field",
        do=f"correct line {gap}, {OR_SKIP}",
    )


def broken(
    error: csv.Error, file: str, lines: tuple[int, int], limit: int, raw: str, separator: str
) -> DataError:
    """Convert an error of Python's csv parser for the row of these first and last `lines`; `raw` is
    its text."""
    (first_line, last_line), message = lines, str(error)
    where = f"the row of lines {first_line} to {last_line}: " if last_line > first_line else ""
    quotes = BACKSLASH if escaped(raw, separator) else f"correct the row, {PLAIN_QUOTES}"
    if "field limit" in message:
        return DataError(
            "the field is too long",
            where=line_in(file, first_line),
            found=f"more than {limit:,} characters in one field, up to line {last_line}",
            wanted=f"at most {limit:,} (max_line_bytes)",
            do=f"close the quote, raise max_line_bytes, {OR_SKIP}",
        )
    if "end of data" in message:
        return DataError(
            "a quote is never closed",
            where=line_in(file, first_line),
            found=f"a quoted field that begins in the row at line {first_line} and runs to line "
            f"{last_line}",
            wanted='a closing "',
            do=f"close the quote, {PLAIN_QUOTES}, {OR_SKIP}",
        )
    if "new-line character" in message:
        return DataError(
            "an unquoted field has a carriage return",
            where=line_in(file, first_line),
            found=message,
            wanted='rows that end with LF or CRLF; other CR inside "…"',
            do="do rows end in CR? then read with line_ends='any'; else quote the field, "
            f"{OR_SKIP}",
        )
    return DataError(
        "a quote is in the wrong place",
        where=line_in(file, last_line),
        found=f"{where}{message}",
        wanted='"…" around a whole field, a quote inside it doubled',
        do=f"{quotes}, {OR_SKIP}",
    )


# ------------------------------------------------------------------------------ reading
Parsed = tuple[list[str], int, int]
"""(fields of a row, number of its first line, number of its last line)."""
BEFORE = AHEAD = 200  # rows
ENOUGH = 4  # rows needed to judge the contents of columns
LONGEST_NAME = 40
NUMBER = re.compile(r"\s*([-+]?\d+([.,]\d+)?)?\s*")
# Number of lines as wide as a row that suffices as evidence with columns of numbers, or without.
MANY_NUMBERED, MANY = 3, 4


def lines_of(row: Sequence[str], separator: str) -> list[list[str]]:
    """Return the fields that each line of a row would have if quotes were ignored."""
    lines: list[list[str]] = [[]]
    for field in row:
        first_line, *rest = field.split("\n")
        lines[-1] += first_line.split(separator) if rest else [field]
        lines += [line.split(separator) for line in rest]
    return lines


class RowWindow:
    """Iterator over rows that keeps the preceding rows and looks ahead on request."""

    def __init__(self, rows: Iterator[Parsed], width: int) -> None:
        self.rows, self.width = rows, width
        self.before: deque[list[str]] = deque(maxlen=BEFORE)
        self.ahead: deque[Parsed] = deque()
        self.failed: DataError | None = None

    def __iter__(self) -> RowWindow:
        return self

    def __next__(self) -> Parsed:
        if self.ahead:
            parsed = self.ahead.popleft()
        elif self.failed is not None:
            raise self.failed
        else:
            parsed = next(self.rows)
        if parsed[1] == parsed[2] and len(parsed[0]) == self.width:
            self.before.append(parsed[0])
        return parsed

    def rows_among(self, lines: Sequence[Sequence[str]]) -> int:
        """Return the number of lines that look like rows, judged by the rows around; 0 if this may
        be chance, or if the table has one column, where any line looks like a row."""
        wide_lines = [line for line in lines if len(line) == self.width]
        if self.width < 2 or len(wide_lines) < 2:
            return 0
        self._look_ahead()
        rows_ahead = [
            row
            for row, first_line, last_line in self.ahead
            if first_line == last_line and len(row) == self.width
        ]
        sampled_rows: list[Sequence[str]] = [*self.before, *rows_ahead]
        if len(sampled_rows) < ENOUGH:
            sampled_rows += wide_lines
        columns = [[row[column] for row in sampled_rows] for column in range(self.width)]
        names = {
            column: {*values, ""} for column, values in enumerate(columns) if _are_names(values)
        }
        numeric = [
            column
            for column, values in enumerate(columns)
            if column not in names and all(map(NUMBER.fullmatch, values))
        ]
        matching_lines = sum(
            all(line[column] in values for column, values in names.items())
            and all(NUMBER.fullmatch(line[column]) for column in numeric)
            and (
                any(line[column].strip() for column in (*names, *numeric)) or not (names or numeric)
            )
            for line in wide_lines
        )
        if names:
            return matching_lines if matching_lines > 1 else 0
        least_lines = MANY_NUMBERED if numeric else MANY
        return matching_lines if matching_lines == len(lines) >= least_lines else 0

    def _look_ahead(self) -> None:
        while len(self.ahead) < AHEAD and self.failed is None:
            try:
                self.ahead.append(next(self.rows))
            except StopIteration:
                return
            except DataError as error:  # raised when its row is due
                self.failed = error


def _are_names(values: Sequence[str]) -> bool:
    """Whether a column has few values that repeat, as labels do."""
    distinct = set(values)
    few_distinct = len(distinct) <= max(2, len(values) // 4)
    return few_distinct and all(len(value) <= LONGEST_NAME for value in distinct)


SEPARATORS = {".csv": ",", ".tsv": "\t"}
OTHERS = (";", "\t", "|", ",")
# Escape sequences and their values; of other escaped characters only the backslash is removed.
LETTERS = {"\\n": "\\\n", "\\t": "\\\t", "\\r": "\\\r", "\\N": ""}
ESCAPED = re.compile(r"\\.", re.DOTALL)
DECLARED = re.compile(r'("?)sep=([^\w\s"]|\t)\1\r?\n', re.IGNORECASE)


def documents(blocks: Iterator[TextBlock], source: Source, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents of a table with a header row.

    Raises:
        DataError: a bad header; a bad row, when the policy is strict.
    """
    file, counts = source.shown, ledger.counts
    table_rows = rows(blocks, source, ledger)
    header, line = next(table_rows, ([], 1))
    if not header:
        return
    column = _text_column(header, line, file, separator_of(source, ledger), ledger)
    note_columns = _kept(header, line, file, ledger) if ledger.reading.notes else []
    for row, line in table_rows:
        text = row[column]
        if not text or text.isspace():
            counts.blank += 1
        else:
            notes = {name: row[index] for name, index in note_columns if row[index]}
            yield Document(text, file, f"{file}:{line}", notes)


def rows(
    blocks: Iterator[TextBlock], source: Source, ledger: Ledger, *, named: bool = True
) -> Iterator[tuple[list[str], int]]:
    """Yield (fields, number of the first line) of the header, then of all rows of the same width.

    Args:
        named: whether the first row names the columns, so that a later row equal to it is bad.

    Raises:
        DataError: a duplicate name in the header; a bad row, when the policy is strict.
    """
    file, counts = source.shown, ledger.counts
    rejected_before = counts.rejected
    blocks = _without_declaration(blocks, file, ledger)
    feed = _Feed(blocks, file, ledger.reading)
    parsed = _parse_rows(feed, source, ledger)
    header, line = next(((r, n) for r, n, _ in parsed if r), ([], 1))
    if not header:
        return
    if counts.rejected > rejected_before:
        raise DataError(
            "the first row cannot be read, and it may name the columns",
            where=line_in(file, 1),
            found=f"the first row that can be read is in line {line}",
            do="correct what stands above it",
        )
    names = header if named and len(header) > 1 else None
    header = _name_columns(header)
    refuse_duplicates(header, line_in(file, line))
    yield header, line
    separator, width = separator_of(source, ledger), len(header)
    check = ledger.reading.quoting is None
    window = RowWindow(parsed, width)
    for row, line, last_line in window:
        multi_line = last_line > line and any("\n" in field for field in row)
        fault = _check_quotes(row, line, separator, file, window) if multi_line and check else None
        if fault is not None:
            ledger.reject(fault, file=file, line=line, last_line=last_line)
        elif names and row[1:] == names[1:] and row[0].lstrip("\ufeff") == names[0]:
            ledger.reject(_repeated_header(row, file, line), file=file, line=line)
        elif len(row) == width:
            if multi_line:
                counts.spanning += 1
                counts.first_spanning = (
                    counts.first_spanning or f"{file}, lines {line} to {last_line}"
                )
            yield row, line
        elif not row:
            counts.blank += 1
        else:
            fault = wrong_width(row, header, file, line, separator, feed.raw(line, last_line))
            ledger.reject(fault, file=file, line=line)


def _check_quotes(
    row: list[str], line: int, separator: str, file: str, window: RowWindow
) -> DataError | None:
    """Return the error for a multi-line row whose lines look like rows; None for other rows."""
    lines, field = lines_of(row, separator), next(f for f in row if "\n" in f)
    with_tabs = (f for f in row if separator == "\t" and "\t" in f and "\n" in f)
    if field_with_tabs := next(with_tabs, None):
        field, shown = field_with_tabs, counted(field_with_tabs.count("\n") + 1, "line")
        problem = "a quoted field holds tabs and ends of lines, so perhaps other rows"
        expected = '"…" around a field, on one line or without tabs'
    elif lines_like_rows := window.rows_among(lines):
        problem = "a quoted field holds what look like other rows"
        shown = f"{lines_like_rows} of {counted(len(lines), 'line')}"
        expected = 'a "…" for each field, or none'
    else:
        return None
    return DataError(
        problem,
        where=line_in(file, line),
        found=f"{shown} from {field[:40]!r} on",
        wanted=expected,
        do=f"{PLAIN_QUOTES}; is it one row? then with quoting=True; {OR_SKIP}",
    )


def separator_of(source: Source, ledger: Ledger) -> str:
    """Return the field separator: from the options, else the file's first line, else its ending."""
    declared = ledger.counts.separators.get(source.shown)
    return ledger.reading.separator or declared or SEPARATORS[source.suffix]


def _without_declaration(
    blocks: Iterator[TextBlock], file: str, ledger: Ledger
) -> Iterator[TextBlock]:
    """Return the blocks without a first line `sep=;`, and store its separator in the counts."""
    first_block = next(blocks, None)
    if first_block is None:
        return blocks
    if first_block.line == 1 and (declared := DECLARED.match(first_block.text)):
        if not ledger.reading.separator:
            ledger.counts.separators[file] = declared[2]
        rest = first_block.text[declared.end() :]
        return itertools.chain([TextBlock(rest, 2)] if rest else [], blocks)
    return itertools.chain([first_block], blocks)


class _RowTooLongError(Exception):
    """Raised for a row that exceeds the size limit; `fault` is the error to report."""

    def __init__(self, fault: DataError) -> None:
        self.fault = fault


class _Feed:
    """Feeds `csv.reader` the lines of one block at a time; tracks their numbers in the file and
    bounds the size of a row."""

    def __init__(self, blocks: Iterator[TextBlock], file: str, reading: ReadingOptions) -> None:
        self.blocks, self.file, self.limit = blocks, file, reading.max_document_characters
        self.unescape = reading.escapechar == "\\"
        self.block = TextBlock("", 1)
        self.block_lines: list[str] = []
        self.fed = self.size = 0
        self.first = 1
        # (lines fed before a block, number of its first line); rejected lines leave gaps.
        self.starts: list[tuple[int, int]] = []

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> Iterable[str]:
        if self.size > self.limit:
            line = self.line_of(self.first)
            fault = DataError(
                "the row is too long",
                where=line_in(self.file, line),
                found=f"more than {self.limit:,} characters, up to line {self.line_of(self.fed)}",
                wanted=f"at most {self.limit:,} characters (max_document_characters)",
                do=f"close the quote that begins in line {line}, {PLAIN_QUOTES}, {OR_SKIP}",
            )
            raise _RowTooLongError(fault)
        self.block = block = next(self.blocks)
        self.block_lines = []
        self.starts.append((self.fed, block.line))
        self.fed += block.text.count("\n") + (not block.text.endswith("\n"))
        self.size += len(block.text)
        lines = io.StringIO(block.text, newline="\n")  # lines end at LF only
        return map(_unescape, lines) if self.unescape else lines

    def raw(self, first_line: int, last_line: int) -> str:
        """Return the lines with these numbers, if they are in the block that was fed last."""
        lines = self.block_lines = self.block_lines or self.block.text.split("\n")
        return (
            "\n".join(lines[max(0, first_line - self.block.line) : last_line - self.block.line + 1])
            + "\n"
        )

    def begin_row(self, first_fed: int) -> None:
        """Start the next row at the line with the 1-based index `first_fed` among the fed lines."""
        self.first, self.size = first_fed, 0
        while len(self.starts) > 1 and self.starts[1][0] < first_fed:
            self.starts.pop(0)

    def left_out(self, first_fed: int, last_fed: int) -> int | None:
        """Return the number in the file of a line that was left out between two fed lines, or None
        if they are consecutive."""
        for (fed_before, line), (fed_after, next_line) in itertools.pairwise(self.starts):
            if first_fed <= fed_after < last_fed and next_line != line + fed_after - fed_before:
                return line + fed_after - fed_before
        return None

    def line_of(self, fed: int) -> int:
        """Return the number in the file of the line with the 1-based index `fed`."""
        for fed_before, line in reversed(self.starts):
            if fed > fed_before:
                return line + fed - fed_before - 1
        return fed


def _unescape(line: str) -> str:
    """Replace escaped letters by the characters they stand for, keeping the backslash for csv."""
    return (
        ESCAPED.sub(lambda match: LETTERS.get(match[0], match[0]), line) if "\\" in line else line
    )


def _parse_rows(feed: _Feed, source: Source, ledger: Ledger) -> Iterator[Parsed]:
    """Yield (fields, first line, last line) of each row; rows that csv refuses are rejected."""
    limit = ledger.reading.max_line_bytes
    reader, lines_fed = _reader(feed, source, ledger), 0
    while True:
        first_fed = lines_fed + reader.line_num + 1
        feed.begin_row(first_fed)
        # The limit is global to the process, so it is set only while a row is parsed.
        previous_limit = csv.field_size_limit(limit)
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, _RowTooLongError) as error:
            line, last_line = feed.line_of(first_fed), feed.line_of(lines_fed + reader.line_num)
            if isinstance(error, _RowTooLongError):
                fault = error.fault
                reader, lines_fed = _reader(feed, source, ledger), feed.fed
            else:
                raw, separator = feed.raw(line, last_line), separator_of(source, ledger)
                fault = broken(error, source.shown, (line, last_line), limit, raw, separator)
            ledger.reject(
                fault,
                file=source.shown,
                line=line,
                last_line=last_line if last_line > line else None,
            )
            continue
        finally:
            csv.field_size_limit(previous_limit)
        line, last_line = feed.line_of(first_fed), feed.line_of(lines_fed + reader.line_num)
        if (gap := feed.left_out(first_fed, lines_fed + reader.line_num)) is not None:
            fault = mutilated(source.shown, line, last_line, gap)
            ledger.reject(fault, file=source.shown, line=line)  # the bad line is counted already
            continue
        yield row, line, last_line


def _reader(feed: _Feed, source: Source, ledger: Ledger) -> Any:
    reading = ledger.reading
    return csv.reader(
        itertools.chain.from_iterable(feed),
        delimiter=separator_of(source, ledger),
        quoting=csv.QUOTE_NONE if reading.quoting is False else csv.QUOTE_MINIMAL,
        escapechar=reading.escapechar,
        strict=True,
    )


def _name_columns(header: list[str]) -> list[str]:
    """Return the header, naming columns by position if several have no name, as with the trailing
    empty columns that some programs write."""
    if header.count("") < 2:
        return header
    return [name or f"column {position}" for position, name in enumerate(header, 1)]


def _kept(header: list[str], line: int, file: str, ledger: Ledger) -> list[tuple[str, int]]:
    """Return (name, index) of the columns that are kept as notes; a column without a name is named
    by its position."""
    reading = ledger.reading
    names = [name or f"column {position}" for position, name in enumerate(header, 1)]
    ledger.meet(names)
    if missing_names := sorted({*reading.notes} - {ALL_COLUMNS, *names}):
        raise missing_column(missing_names[0], names, line_in(file, line))
    note_names = note_columns(reading.notes, names, reading.column_of(names))
    index_by_name = {name: position for position, name in enumerate(names)}
    return [(name, index_by_name[name]) for name in note_names]


def _text_column(header: list[str], line: int, file: str, separator: str, ledger: Ledger) -> int:
    """Return the index of the text column in a row, or raise DataError."""
    column = ledger.reading.column_of(header)
    if column in header:
        return header.index(column)
    guess = next((o for o in OTHERS if o != separator and o in header[0]), None)
    if len(header) == 1 and guess:
        raise DataError(
            "the column is missing",
            where=line_in(file, line),
            found=f"1 column with the separator {separator!r}: {header[0]}",
            wanted=f"a column {column!r}",
            do=f"is the separator {guess!r}? then read with separator={guess!r}",
        )
    problem = f"the column is missing (the separator is {separator!r})"
    raise missing_column(column, header, line_in(file, line), problem, of_text=True)
