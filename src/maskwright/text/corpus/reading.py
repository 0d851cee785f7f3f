"""Reading: every choice about how raw files become documents, with the limits that bound memory.

Nothing here is silent: what a policy drops, strips or replaces is counted by the ledger.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal

from maskwright.base.errors import ConfigError, near

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
        choices: dict[str, tuple[str, ...]] = {
            "form": ("auto", "blank-line", "file", "line"),
            "on_bad": ("strict", "skip"),
            "on_undecodable": ("bad", "replace"),
            "on_nul": ("error", "strip"),
            "line_ends": ("auto", "lf", "any"),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    "not one of the choices",
                    where=name,
                    found=repr(value),
                    wanted=near(str(value), allowed),
                )
        for name in ("max_line_bytes", "max_document_characters", "max_expansion"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    "the limit is below 1",
                    where=name,
                    found=getattr(self, name),
                    wanted="at least 1",
                    do="raise it to 1 or more",
                )
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(
                "the share is out of range",
                where="max_bad_fraction",
                found=self.max_bad_fraction,
                wanted="0 to 1",
                do="give a number from 0 to 1",
            )
        if self.separator is not None and (
            len(self.separator) != 1 or self.separator in '"\r\n\0 ' or ord(self.separator) > 0xFFFF
        ):
            raise ConfigError(
                "not a separator",
                where="separator",
                found=repr(self.separator),
                wanted="one character, such as ',' or ';' or a tab",
            )
        if self.escapechar in ("backslash", "\\\\"):
            object.__setattr__(self, "escapechar", "\\")
        if self.escapechar is not None and (
            len(self.escapechar) != 1
            or self.escapechar in '"\r\n\t\0 '
            or self.escapechar == self.separator
            or ord(self.escapechar) > 0xFFFF
        ):
            raise ConfigError(
                "not an escape character",
                where="escapechar",
                found=repr(self.escapechar),
                wanted="one character, such as a backslash",
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
