"""Counts of rows read, rows left out and the reasons, and the policy for bad rows.

Every bad row goes through `Ledger.reject`, which applies the policy: strict raises; skip counts the
row, writes it to the rejects file and stops if too many are bad.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, OutputError, StorageError
from maskwright.base.findings import Finding
from maskwright.base.storage.files import new_text
from maskwright.text.corpus.document import MissingColumns
from maskwright.text.corpus.files import IgnoredFiles, first_names
from maskwright.text.corpus.reading import ReadingOptions

# The share of bad rows is unreliable before this many rows; it is always checked at the end.
ROWS_BEFORE_JUDGING = 1000
REJECTED, SPANNING = "rejected-rows", "rows-of-several-lines"
OR_SKIP = "or read with on_bad='skip' (drops and counts)"


@dataclass
class Counts:
    """Counts of rows read, changed and dropped; complete when the iteration has ended."""

    files: int = 0
    bytes: int = 0
    """Bytes of text after decompression."""
    rows: int = 0
    """Lines, or rows of a parquet file."""
    documents: int = 0
    blank: int = 0
    """Rows or documents of white space only, dropped."""
    rejected: int = 0
    """Rows dropped because they were bad."""
    rejected_by: dict[str, int] = field(default_factory=dict)
    first_rejected: str = ""
    """Location of the first rejected row."""
    byte_order_marks: int = 0
    nul_stripped: int = 0
    replaced: int = 0
    """Number of U+FFFD written for undecodable bytes or lone surrogates."""
    controls: dict[str, int] = field(default_factory=dict)
    """Control characters left out, by code point (`U+001B`)."""
    empty_files: list[str] = field(default_factory=list)
    ignored: IgnoredFiles = field(default_factory=IgnoredFiles)
    """Files in folders that are not read."""
    without_part: list[str] = field(default_factory=list)
    """Files that are not assigned to a part, while other files are."""
    separators: dict[str, str] = field(default_factory=dict)
    """Field separator by file, of tables that declare it in their first line."""
    spanning: int = 0
    """Rows of tables that span several lines because of quoted fields."""
    first_spanning: str = ""
    """File and lines of the first row that spans several lines."""
    lone_cr: int = 0
    """CR without LF, kept as text."""
    cr_files: list[str] = field(default_factory=list)
    """Files whose lines end in CR alone."""
    notes: list[Finding] = field(default_factory=list)
    """Further findings from the reading."""
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every file as it was read."""

    @property
    def findings(self) -> list[Finding]:
        """The findings to report to the user even if reading succeeded."""
        findings = list(self.notes)
        for number, name, message in (
            (self.rejected, REJECTED, "bad rows dropped"),
            (self.byte_order_marks, "byte-order-marks", "byte order marks removed"),
            (self.nul_stripped, "nul-characters", "NUL characters left out"),
            (self.replaced, "replaced-characters", "characters replaced by U+FFFD"),
        ):
            if number:
                findings.append(Finding(name, f"{number:,} {message}"))
        if self.controls:
            listed = ", ".join(f"{n:,} of {c}" for c, n in sorted(self.controls.items()))
            findings.append(Finding("control-characters", f"control characters left out: {listed}"))
        if self.separators:
            marks = " and ".join(sorted({repr(mark) for mark in self.separators.values()}))
            message = f"columns separated by {marks}, as a first line sep= says"
            findings.append(Finding("declared-separator", message))
        if self.spanning:
            message = f"{counted(self.spanning, 'row')} of several lines each, in quoted fields"
            findings.append(Finding(SPANNING, message, f"the first: {self.first_spanning}"))
        if self.lone_cr:
            message = f"{counted(self.lone_cr, 'carriage return')} within lines, read as text"
            remedy = "where they end lines, read with line_ends='any'"
            findings.append(Finding("lone-carriage-returns", message, remedy=remedy))
        without_part = "not read, as no name says their part or class"
        for name, message, files in (
            ("cr-line-ends", "lines end in CR alone (line_ends)", self.cr_files),
            ("empty-files", "empty files", self.empty_files),
            ("files-without-part", without_part, self.without_part),
        ):
            if files:
                findings.append(Finding(name, f"{message}: {first_names(files)}"))
        return findings + self.ignored.findings

    def summary(self) -> str:
        """Return one line with the counts of files, rows and documents, and rejects by reason."""
        counts = [counted(self.files, "file"), counted(self.rows, "row"), f"{self.blank:,} blank"]
        counts += [f"{n:,} rejected: {reason}" for reason, n in sorted(self.rejected_by.items())]
        return f"{counted(self.documents, 'document')} from " + ", ".join(counts)


class Ledger:
    """Collects counts and applies the policy for bad rows."""

    def __init__(
        self, reading: ReadingOptions, counts: Counts, rejects: Path | TextIO | None
    ) -> None:
        self.reading = reading
        self.counts = counts
        self.unmet = MissingColumns(reading.notes)
        skip = reading.on_bad == "skip"
        self.path = rejects if skip and isinstance(rejects, Path) else None
        self._rejects = rejects if skip and not isinstance(rejects, Path) else None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Ledger:
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._rejects = self._open.enter_context(new_text(self.path))
            except OSError as error:
                raise OutputError(
                    "the list of rejected rows cannot be written",
                    where=self.path,
                    found=error.strerror,
                ) from error
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rejects = None
        self._open.close()  # also after an error, which often says to look at the list

    def reject(
        self,
        error: DataError,
        *,
        file: str,
        line: int,
        last_line: int | None = None,
        offset: int | None = None,
        rows: int | None = None,
    ) -> None:
        """Apply the policy to the bad row at `line` of `file` (or the rows `line` … `last_line`, or
        `rows` rows in these lines).

        Raises:
            DataError: `error` itself when strict; "too many bad rows" when skipping.
        """
        if self.reading.on_bad == "strict":
            if "on_bad" not in (error.do or ""):
                error.advising(f"{error.do or 'correct the row'}, {OR_SKIP}")
            raise error
        if rows is None:
            rows = 1 if last_line is None else last_line - line + 1
        self.counts.rejected += rows
        self.counts.first_rejected = self.counts.first_rejected or line_in(file, line)
        self.counts.rejected_by[error.what] = self.counts.rejected_by.get(error.what, 0) + rows
        if self._rejects is not None:
            entry: dict[str, object] = {"file": file, "line": line}
            if last_line is not None:
                entry["last_line"] = last_line
            if offset is not None:
                entry["offset"] = offset
            entry |= {"reason": error.what, "found": error.found, "wanted": error.wanted}
            try:
                self._rejects.write(json.dumps(entry) + "\n")
            except OSError as failure:
                raise StorageError(
                    "the list of rejected rows could not be written",
                    where=self.path,
                    found=failure.strerror,
                ) from failure
        if self.counts.rows >= ROWS_BEFORE_JUDGING:
            self._judge()

    def finish(self, message: str = "the corpus has 0 documents", unit: str = "document") -> None:
        """Check at the end that not too many rows are bad, and that there is at least one document.

        Args:
            message: the error message if there are no documents.
            unit: the name of a document in the message.

        Raises:
            DataError: a check fails; the error has the counts.
        """
        self._judge()
        if self.counts.documents == 0:
            empty = self.counts.empty_files
            raise DataError(
                message,
                where=first_names(list(self.counts.hashes)) or None,
                found=self.counts.summary()
                + (f"; empty files: {first_names(empty)}" if empty else ""),
                wanted=f"at least one {unit}",
                do="give files that hold text, or look at the rejected rows",
            )

    def require_notes(self) -> None:
        """Check that every requested column of notes occurred in some row.

        Raises:
            DataError: a column never occurred; the error suggests near names.
        """
        self.unmet.refuse(first_names(list(self.counts.hashes)) or None)

    def _judge(self) -> None:
        counts, limit = self.counts, self.reading.max_bad_fraction
        if counts.rejected > limit * max(1, counts.rows):
            worst = max(counts.rejected_by, key=lambda reason: counts.rejected_by[reason])
            see_list = f" see {self.path};" if self.path else ""
            raise DataError(
                "too many bad rows",
                where=first_names(list(counts.hashes)) or None,
                found=f"{counts.rejected:,} of {counts.rows:,} rows, mostly: {worst}",
                wanted=f"at most {limit:.3g} of the rows (max_bad_fraction)",
                do=f"{see_list} correct the rows, or raise max_bad_fraction".strip(),
            )


def line_in(file: str, line: int, offset: int | None = None, column: object = None) -> str:
    """Return the `where` of an error, such as `notes.txt, line 12, byte 340`."""
    where = f"{file}, line {line}"
    if offset is not None:
        where += f", byte {offset}"
    if column is not None:
        where += f", column {column}"
    return where
