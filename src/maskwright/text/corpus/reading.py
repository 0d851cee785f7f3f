"""What readers share: the options, the ledger, and the documents that result.

A step of the corpus is `Iterable[Document] -> Iterator[Document]`. A document never has empty text,
never a NUL and never a lone surrogate, so it can always be encoded as UTF-8.

Nothing is silent: the ledger counts the rows read, and what a policy drops, strips or replaces.
Every bad row goes through `Ledger.reject`, which applies the policy: strict raises; skip counts the
row, writes it to the rejects file and stops if too many are bad.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TextIO

from maskwright.base import config
from maskwright.base.errors import ConfigError, DataError, Finding, OutputError, StorageError, near
from maskwright.base.storage.files import new_text
from maskwright.base.terminal import counted
from maskwright.text.corpus.files import IgnoredFiles, first_names

# ------------------------------------------------------------------------------ options
Form = Literal["auto", "blank-line", "file", "line"]

AUTO = "auto"
# A closed list, without codecs that are not text encodings or do not terminate on odd input.
ENCODINGS = (
    *("utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
    *("latin-1", *(f"iso8859-{n}" for n in range(2, 17) if n != 12)),
    *(f"cp{n}" for n in (874, *range(1250, 1259))),
    *("cp437", "cp850", "cp852", "cp866", "koi8-r", "koi8-u", "mac-roman"),
    *("gb2312", "gbk", "gb18030", "big5", "shift_jis", "cp932", "euc-jp", "euc-kr", "cp949"),
)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How files are read; checked when it is made.

    Raises:
        ConfigError: naming the field.
    """

    form: Form = "auto"
    """How plain text splits into documents. `auto`: each file is one document where there are at
    least 20 files, most of them shorter than books; otherwise blank lines separate documents
    (`read.with_form`)."""
    column: str = "text"
    """The field of a JSON object, or the column of a table, that holds the text; or several names
    with commas between them, of which the first that is there counts."""
    encoding: str = "auto"
    """The encoding of text files; one of `ENCODINGS` or a Python alias of one. `auto` is what a
    file declares (a byte order mark; of HTML and text also in its first lines), else utf-8."""
    on_bad: Literal["strict", "skip"] = "strict"
    """A bad row stops the reading, or is dropped, counted and listed in the rejects file."""
    max_bad_fraction: float = 0.01
    """With `skip`: stop when more than this share of the rows is bad."""
    on_undecodable: Literal["bad", "replace"] = "bad"
    """Bytes that are no text, lone surrogates: a bad row, or U+FFFD in their place (counted)."""
    on_nul: Literal["error", "strip"] = "error"
    """A NUL character makes its row bad, or is left out (counted)."""
    max_line_bytes: int = 16 << 20
    """The longest line, and the longest field of a table, in bytes."""
    max_document_characters: int = 64 << 20
    """The longest document, in characters."""
    max_expansion: int = 100
    """A compressed file may grow by this factor (looked at from 16 MiB on)."""
    max_expanded_bytes: int = 10 << 30
    """A compressed file may grow to this many bytes."""
    separator: str | None = None
    """What separates the columns of a table; by default a comma in .csv, a tab in .tsv."""
    quoting: bool | None = None
    """Whether `"` quotes fields of a table; by default it does, and a quoted field that holds what
    look like rows is refused."""
    escapechar: str | None = None
    """What stands before a quote or a separator that is text, in tables that do not double quotes.
    Behind a backslash, n, t and r are line end, tab and CR, and N is no value, as databases write
    them."""
    line_ends: Literal["auto", "lf", "any"] = "auto"
    """What ends a line besides LF and CRLF: a CR in files that have no LF where they begin
    (`auto`), nothing (`lf`), every CR (`any`)."""
    notes: tuple[str, ...] = ()
    """The columns whose values stay with the text (`Document.notes`); `*` means every one."""

    def __post_init__(self) -> None:
        config.require_choices(self)
        for name in ("max_line_bytes", "max_document_characters", "max_expansion"):
            config.require(name, getattr(self, name), 1)
        config.require("max_bad_fraction", self.max_bad_fraction, 0, 1)
        if self.escapechar in ("backslash", "\\\\"):
            object.__setattr__(self, "escapechar", "\\")
        for name, unfit, example in (
            ("separator", '"\r\n\0 ', "',' or ';' or a tab"),
            ("escapechar", f'"\r\n\t\0 {self.separator or ""}', "a backslash"),
        ):
            sign = getattr(self, name)
            if sign is not None and (len(sign) != 1 or sign in unfit or ord(sign) > 0xFFFF):
                raise ConfigError(
                    "not one fitting character",
                    where=name,
                    found=repr(sign),
                    wanted=f"one character, such as {example}",
                )
        for number, name in enumerate(self.notes):
            if name == self.column or name in self.notes[:number]:
                raise ConfigError(
                    "the column of the text is no note"
                    if name == self.column
                    else "a column is named twice",
                    where="notes",
                    found=repr(name),
                    wanted="further columns, each once",
                    do="leave it out",
                )
        self.codec  # noqa: B018  an unknown encoding is refused here, not at the first file

    def column_of(self, columns: Collection[str]) -> str:
        """Return the first name in `column` that is among `columns`; `column` itself if none is."""
        if "," not in self.column or self.column in columns:
            return self.column
        names = [name.strip() for name in self.column.split(",")]
        return next((name for name in names if name in columns), self.column)

    @property
    def codec(self) -> str:
        """The canonical Python name of the encoding; with "auto" that of files without a
        declaration.

        Raises:
            ConfigError: not in `ENCODINGS`.
        """
        name = known_codec("utf-8" if self.encoding == AUTO else self.encoding)
        if name is None:
            raise ConfigError(
                "unknown encoding",
                where="encoding",
                found=repr(self.encoding),
                wanted=near(str(self.encoding), (AUTO, *ENCODINGS)),
                do="name one that Python knows, such as utf-8 or cp1252",
            )
        return name


def known_codec(encoding: str) -> str | None:
    """Return the canonical Python name of an encoding in `ENCODINGS`, or None for others."""
    try:
        name = codecs.lookup(encoding).name.removesuffix("-sig")
    except (LookupError, ValueError, TypeError):
        return None
    return name if name in {codecs.lookup(name).name for name in ENCODINGS} else None


def with_notes(reading: ReadingOptions, notes: tuple[str, ...]) -> ReadingOptions:
    """Return the options as `ReadingOptions` with these notes; `reading` may be of a subclass.

    Raises:
        ConfigError: a note is the text column.
    """
    values = {option.name: getattr(reading, option.name) for option in fields(ReadingOptions)}
    return ReadingOptions(**{**values, "notes": notes})


# ------------------------------------------------------------------------------ documents
ALL_COLUMNS = "*"
LISTED = 20
NAME_TEXT = "name the column that holds the text (column=…, or several: column=text,body)"
ENCODER, STRICT = (
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=allow)
    for allow in (True, False)
)
MOST_COLUMNS = 1000  # names that are remembered for a message


class JsonText(str):
    """The JSON text of a value that was not a text."""


def as_text(value: Any) -> str | None:
    """Convert a value to the text of a note; None for null and NaN."""
    if type(value) is str:
        return value
    if value is None or (type(value) is float and math.isnan(value)):
        return None
    if type(value) in (bool, int, float, list, dict):
        try:
            return JsonText(STRICT.encode(value))
        except ValueError:  # NaN or infinities
            return ENCODER.encode(value)
    return str(value)  # dates and times as ISO 8601, decimals in digits


def note_columns(names: Collection[str], columns: Iterable[str], column: str) -> list[str]:
    """Return those of `columns` to keep as notes, in their order and without the text column."""
    every = ALL_COLUMNS in names
    return [name for name in columns if name != column and (every or name in names)]


def missing_column(
    name: str,
    columns: Collection[str],
    where: str | None,
    message: str = "the column is missing",
    *,
    of_text: bool = False,
) -> DataError:
    """Return the error for a missing column: that of the text, or one requested as a note."""
    listed = ", ".join(list(columns)[:LISTED])
    do = NAME_TEXT if of_text else "correct its name"
    return DataError(
        message,
        where=where,
        found=f"the columns {listed}" if listed else "no columns",
        wanted=f"a column {name!r}" if of_text else f"{name!r}, to be kept with the text",
        do=f"{do}; {near(name, columns)}" if listed else do if of_text else "leave it out",
    )


def too_long(
    where: str, shown: str, limit: int, do: str = "shorten it, raise the limit"
) -> DataError:
    return DataError(
        "the document is too long",
        where=where,
        found=shown,
        wanted=f"at most {limit:,} characters (max_document_characters)",
        do=f"{do}, {OR_SKIP}",
    )


def nul_error(where: str | None, shown: str) -> DataError:
    return DataError(
        "the text has a NUL character",
        where=where,
        found=shown,
        wanted="text without NUL",
        do=f"take it out, read with on_nul='strip', {OR_SKIP}",
    )


def refuse_duplicates(names: Iterable[str], where: str) -> None:
    """Check that column names are unique.

    Raises:
        DataError: a name occurs twice.
    """
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            "two columns have the same name",
            where=where,
            found=repr(duplicates[0]),
            wanted="every name once",
            do="rename one of the columns",
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its origin.

    Attributes:
        text: the text; not blank.
        source: the file (as the user named it) or package it was read from.
        id: `path:line` for rows and paragraphs, `path#row` where a file has no lines.
        notes: the values of further columns, by name.
    """

    text: str
    source: str
    id: str
    notes: dict[str, str] = field(default_factory=dict, hash=False)


# ------------------------------------------------------------------------------ the ledger
# The share of bad rows is unreliable before this many rows; it is always checked at the end.
ROWS_BEFORE_JUDGING = 1000
REJECTED, SPANNING = "rejected-rows", "rows-of-several-lines"
OR_SKIP = "or read with on_bad='skip' (drops and counts)"


@dataclass
class Counts:
    """Counts of rows read, changed and dropped; complete when the iteration has ended."""

    kind: str = "document"
    """What is read."""
    form: str = ""
    """How plain text was split into documents (`ReadingOptions.form`); "" without plain text."""
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
    rejected_by: Counter[str] = field(default_factory=Counter)
    first_rejected: str = ""
    """Location of the first rejected row."""
    byte_order_marks: int = 0
    nul_stripped: int = 0
    replaced: int = 0
    """Number of U+FFFD written for undecodable bytes or lone surrogates."""
    controls: Counter[str] = field(default_factory=Counter)
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
        for number, name, noun, change in (
            (self.rejected, REJECTED, "bad row", "dropped"),
            (self.byte_order_marks, "byte-order-marks", "byte order mark", "removed"),
            (self.nul_stripped, "nul-characters", "NUL character", "left out"),
            (self.replaced, "replaced-characters", "character", "replaced by U+FFFD"),
        ):
            if number:
                findings.append(Finding(name, f"{counted(number, noun)} {change}"))
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
        counts = counts[:1] if self.kind == "image" else counts
        return f"{counted(self.documents, self.kind)} from " + ", ".join(counts)


class Ledger:
    """Collects counts and applies the policy for bad rows."""

    def __init__(
        self, reading: ReadingOptions, counts: Counts, rejects: Path | TextIO | None
    ) -> None:
        self.reading = reading
        self.counts = counts
        self._unmet = set(reading.notes) - {ALL_COLUMNS}  # columns of notes that no row had so far
        self._columns: dict[str, None] = {}
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

    def __exit__(self, *error: object) -> None:
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
        self.counts.rejected_by[error.what] += rows
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

    def meet(self, columns: Collection[str]) -> None:
        """Record that a row, or a table, has these columns."""
        if self._unmet:
            self._unmet.difference_update(columns)
            if len(self._columns) < MOST_COLUMNS:
                self._columns.update(dict.fromkeys(columns))

    def require_notes(self) -> None:
        """Check that every requested column of notes occurred in some row.

        Raises:
            DataError: a column never occurred; the error suggests near names.
        """
        if self._unmet:
            where = first_names(list(self.counts.hashes)) or None
            name, message = min(self._unmet), "no row has the column"
            raise missing_column(name, list(self._columns), where, message)

    def _judge(self) -> None:
        counts, limit = self.counts, self.reading.max_bad_fraction
        if counts.rejected > limit * max(1, counts.rows):
            ((worst, _),) = counts.rejected_by.most_common(1)
            see_list = f"see {self.path}; " if self.path else ""
            higher = enough_fraction(counts.rejected, counts.rows)
            advice = f", or raise it (max_bad_fraction={higher})" if higher < 1 else ""
            raise DataError(
                "too many bad rows",
                where=first_names(list(counts.hashes)) or None,
                found=f"{counts.rejected:,} of {counts.rows:,} rows, mostly: {worst}",
                wanted=f"at most {limit:.3g} of the rows (max_bad_fraction)",
                do=f"{see_list}correct the rows{advice}",
            )


def enough_fraction(bad: int, rows: int) -> float:
    """Return the least whole percentage of `rows`, as a share, that is not below `bad` rows."""
    return next(n / 100 for n in range(101) if bad <= n / 100 * max(bad, rows))


def line_in(file: str, line: int, offset: int | None = None) -> str:
    """Return the `where` of an error, such as `notes.txt, line 12, byte 340`."""
    where = f"{file}, line {line}"
    return where if offset is None else f"{where}, byte {offset}"
