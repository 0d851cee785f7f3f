"""Plain text to documents: by blank lines, by lines, or the whole file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from maskwright.base.errors import DataError
from maskwright.text.corpus.document import Document
from maskwright.text.corpus.ledger import OR_SKIP, Ledger, at
from maskwright.text.corpus.lines import Block
from maskwright.text.corpus.reading import Form

# One or more blank lines, with the line end before them. A run of blanks is entered only after a
# line end and cannot hold one, so the search is linear.
BLANK_LINES = re.compile(r"\n(?:[ \t\r\v\f]*+\n)++")


def documents(blocks: Iterator[Block], file: str, ledger: Ledger, form: Form) -> Iterator[Document]:
    """The documents of a text file, cut as `form` says."""
    if form == "line":
        return _by_line(blocks, file, ledger)
    return _by_pieces(blocks, file, ledger, whole_file=form == "file")


def _by_line(blocks: Iterator[Block], file: str, ledger: Ledger) -> Iterator[Document]:
    counts = ledger.counts
    for block in blocks:
        for number, line in block.lines():
            if not line or line.isspace():
                counts.blank += 1
            else:
                yield Document(line, file, f"{file}:{number}")


def _by_pieces(
    blocks: Iterator[Block], file: str, ledger: Ledger, *, whole_file: bool
) -> Iterator[Document]:
    """Documents that may extend over several blocks."""
    pending = _Pending(file, ledger, whole_file)
    limit = ledger.reading.max_document_characters
    for block in blocks:
        # The LF in front lets blank lines at the start of a block match like all others.
        text, place, line = "\n" + block.text, 1, block.line
        for gap in () if whole_file else BLANK_LINES.finditer(text):
            start, end = gap.span()
            piece = text[place:start]
            if not pending.size and 0 < len(piece) <= limit and not piece.isspace():
                yield Document(piece, file, f"{file}:{line}")
            else:
                pending.add(piece, line)
                if document := pending.take():
                    yield document
            line += text.count("\n", place, end)
            place = end
        if place < len(text):
            pending.add(text[place:], line)
    if document := pending.take():
        yield document


class _Pending:
    """The document that is being assembled, within the limit of its size."""

    def __init__(self, file: str, ledger: Ledger, whole_file: bool) -> None:
        self.file, self.ledger, self.whole_file = file, ledger, whole_file
        self.parts: list[str] = []
        self.size = self.line = 0
        self.dropping = False

    def add(self, text: str, line: int) -> None:
        if not text:
            return
        if not self.size:
            self.line = line
        self.size += len(text)
        limit = self.ledger.reading.max_document_characters
        if self.size <= limit:
            self.parts.append(text)
        elif not self.dropping:
            self.parts, self.dropping = [], True
            remedy = "" if self.whole_file else "separate documents by blank lines, "
            error = DataError(
                "the document is too long",
                where=at(self.file, self.line),
                found=f"more than {limit:,} characters"
                + ("" if self.whole_file else " without a blank line"),
                wanted=f"at most {limit:,} characters (max_document_characters)",
                do=f"{remedy}read the file with form='line', {OR_SKIP}",
            )
            self.ledger.reject(error, file=self.file, line=self.line)

    def take(self) -> Document | None:
        text = "".join(self.parts).removesuffix("\n")
        line, empty = self.line, self.size == 0 or self.dropping
        self.parts, self.size, self.dropping = [], 0, False
        if empty:
            return None
        if not text or text.isspace():
            self.ledger.counts.blank += 1
            return None
        return Document(text, self.file, f"{self.file}:{line}")
