"""What is told of a row of a table that cannot be read."""

from __future__ import annotations

import csv

from maskwright.corpus.ledger import at
from maskwright.corpus.lines import OR_SKIP
from maskwright.counted import counted
from maskwright.errors import DataError


def wrong_width(
    row: list[str], header: list[str], file: str, line: int, separator: str
) -> DataError:
    return DataError(
        "the row has too few fields" if len(row) < len(header) else "the row has too many fields",
        where=at(file, line),
        found=f"{len(row)} fields with the separator {separator!r}",
        wanted=f"{len(header)} fields, as in the header",
        do=f"correct the row (quote fields that hold the separator), {OR_SKIP}",
    )


def swallowed(field: str, file: str, line: int) -> DataError:
    """Files of columns apart by tabs often have quotes that are plain signs."""
    return DataError(
        "a quoted field holds tabs and ends of lines, so perhaps other rows",
        where=at(file, line),
        found=f"{counted(field.count(chr(10)) + 1, 'line')} from {field[:40]!r} on",
        wanted='"…" around a field, on one line or without tabs',
        do=f"are quotes plain signs in this file? then read with quoting=False, {OR_SKIP}",
    )


def mutilated(file: str, first: int, last: int, gap: int) -> DataError:
    return DataError(
        "a line of the row was left out",
        where=at(file, first),
        found=f"a row of lines {first} to {last}, of which line {gap} is bad",
        wanted="all lines of a quoted field",
        do=f"correct line {gap}, {OR_SKIP}",
    )


def broken(error: csv.Error, file: str, first: int, last: int, limit: int) -> DataError:
    said = str(error)
    if "field limit" in said:
        return DataError(
            "the field is too long",
            where=at(file, first),
            found=f"more than {limit:,} characters in one field, up to line {last}",
            wanted=f"at most {limit:,} (max_line_bytes)",
            do=f"close the quote, raise max_line_bytes, {OR_SKIP}",
        )
    if "end of data" in said:
        return DataError(
            "a quote is never closed",
            where=at(file, first),
            found=f"a quoted field that begins in the row at line {first} and runs to line {last}",
            wanted='a closing "',
            do=f"close the quote, read with quoting=False, {OR_SKIP}",
        )
    if "new-line character" in said:
        return DataError(
            "a carriage return in a field without quotes",
            where=at(file, first),
            found=said,
            wanted='rows that end with LF or CRLF; other CR inside "…"',
            do=f"quote the field, {OR_SKIP}",
        )
    return DataError(
        "a quote in the wrong place",
        where=at(file, last),
        found=said,
        wanted='"…" around a whole field, a quote inside it doubled',
        do=f"correct the row, read with quoting=False, {OR_SKIP}",
    )
