"""The errors for rows of a table that cannot be read."""

from __future__ import annotations

import csv
import re

from maskwright.base.counted import counted
from maskwright.base.errors import DataError
from maskwright.text.corpus.ledger import OR_SKIP, line_in

# Advice for files that escape quotes or separators by a backslash instead of doubling quotes.
BACKSLASH = (
    "does a backslash stand before quotes and separators that are text? then read with "
    "escapechar='\\\\'"
)
PLAIN_QUOTES = "are quotes plain signs in this file? then read with quoting=False"


NAME = re.compile(r"\w[\w .-]{0,40}")


def is_comment(row: list[str]) -> bool:
    """Whether a row begins with a comment sign."""
    return row[0].lstrip().startswith(("#", "//", "%"))


def is_above(header: list[str], row: list[str]) -> bool:
    """Whether `header`, the first row, is a comment or title above a wider `row` of names."""
    title = len(header) == 1 and " " in header[0] and all(map(NAME.fullmatch, row))
    return len(row) > len(header) and (is_comment(header) or title)


def above_header(header: list[str], file: str, line: int) -> DataError:
    return DataError(
        "a line stands above the names of the columns",
        where=line_in(file, line),
        found=repr(" ".join(header)[:80]),
        wanted="the names of the columns in the first line",
        do=f"delete the lines above line {line}",
    )


def wrong_width(
    row: list[str], header: list[str], file: str, line: int, separator: str, raw: str
) -> DataError:
    advice = "correct the row (quote fields that hold the separator)"
    if escaped(raw, separator):
        advice = BACKSLASH
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


def holds_rows(lines: int, rows: int, field: str, file: str, first_line: int) -> DataError:
    """Return the error for a quoted field that opens in one row and closes in another."""
    return DataError(
        "a quoted field holds what look like other rows",
        where=line_in(file, first_line),
        found=f"{rows} of {counted(lines, 'line')} from {field[:40]!r} on",
        wanted='a "…" for each field, or none',
        do=f"{PLAIN_QUOTES}; is it one row? then with quoting=True; {OR_SKIP}",
    )


def swallowed(field: str, file: str, line: int) -> DataError:
    """Return the error for a quote in a tab-separated table that is probably ordinary text."""
    return DataError(
        "a quoted field holds tabs and ends of lines, so perhaps other rows",
        where=line_in(file, line),
        found=f"{counted(field.count(chr(10)) + 1, 'line')} from {field[:40]!r} on",
        wanted='"…" around a field, on one line or without tabs',
        do=f"{PLAIN_QUOTES}; is it one row? then with quoting=True; {OR_SKIP}",
    )


def mutilated(file: str, first_line: int, last_line: int, gap: int) -> DataError:
    return DataError(
        "a line of the row was left out",
        where=line_in(file, first_line),
        found=f"a row of lines {first_line} to {last_line}, of which line {gap} is bad",
        wanted="all lines of a quoted field",
        do=f"correct line {gap}, {OR_SKIP}",
    )


def broken(
    error: csv.Error,
    file: str,
    first_line: int,
    last_line: int,
    limit: int,
    raw: str,
    separator: str,
) -> DataError:
    """Convert an error of Python's csv parser; `raw` is the text of the row."""
    message = str(error)
    lines = f"the row of lines {first_line} to {last_line}: " if last_line > first_line else ""
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
        found=f"{lines}{message}",
        wanted='"…" around a whole field, a quote inside it doubled',
        do=f"{quotes}, {OR_SKIP}",
    )
