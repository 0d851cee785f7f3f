"""Read documents from raw files: the single entry point for the user's text.

    find files -> open safely -> decompress -> sniff -> (to UTF-8) -> whole checked lines
                                                   -> text | JSON Lines | table      -> Document
                                               parquet, arrow (their own blocks)     -> Document

Files are streamed, so memory does not grow with their size. Everything dropped or changed is
counted in `Reader.counts`; depending on `ReadingOptions`, a bad row raises an error with file,
line, found, wanted and remedy, or is skipped and listed.

Gzip and zstd are decompressed in steps of bounded size, within `max_expansion` and
`max_expanded_bytes`; a file may have several members, the last of which must be complete.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import DataError, Finding, UsageError
from maskwright.base.storage.files import existing_parent, os_errors_refused
from maskwright.base.storage.manifest import hash_file
from maskwright.text.corpus import csv_file, jsonl, parquet, saved
from maskwright.text.corpus.files import STEP, Paths, RegularFile, Source, find
from maskwright.text.corpus.lines import REMEDY, TextBlock, blocks, encoding_of, to_utf8
from maskwright.text.corpus.reading import (
    Counts,
    Document,
    Form,
    Ledger,
    ReadingOptions,
    line_in,
    too_long,
)
from maskwright.text.corpus.sniff import HEAD, check_head

# ------------------------------------------------------------------------------ decompression
# Small files may be very regular; the ratio is only checked from this expanded size on.
RATIO_MATTERS_FROM = 16 << 20
# A zstd block of four bytes can hold 128 KiB, so this many bytes expand to at most about 16 MiB.
ZSTD_STEP = 512
# The rest of a step is copied at the end of each member, and there may be many small members.
GZIP_STEP = 1 << 14
COMPRESSION_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
SKIPPABLE = tuple(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60))


def expand(
    chunks: Iterator[bytes], compression: str | None, file: str, reading: ReadingOptions
) -> Iterator[bytes]:
    """Return the decompressed bytes of a file, in steps of about 1 MiB.

    Args:
        compression: `gzip`, `zstd` or None.

    Raises:
        DataError: another format, damaged, cut off, or beyond the limits.
        UsageError: the library for zstd is not installed.
    """
    if compression is None:
        return chunks
    first_chunk = next(chunks, b"")
    if not first_chunk:
        return iter(())
    magic = COMPRESSION_MAGIC[compression]
    if not first_chunk.startswith((magic, *SKIPPABLE) if compression == "zstd" else magic):
        raise DataError(
            f"not a {compression} file",
            where=file,
            found=f"it begins with {first_chunk[:4].hex(' ')}",
            wanted=f"{magic.hex(' ')}",
            do="correct the file's ending, or compress it again",
        )
    members = _gzip if compression == "gzip" else _zstd
    meter = _Meter(file, reading)
    return _regroup(members(meter.measured(itertools.chain([first_chunk], chunks)), meter))


class _Meter:
    """Counts compressed and expanded bytes, and raises for a file that expands too much."""

    def __init__(self, file: str, reading: ReadingOptions) -> None:
        self.file, self.reading = file, reading
        self.packed = self.expanded = 0

    def measured(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.packed += len(chunk)
            yield chunk

    def add(self, data: bytes) -> bytes:
        """Count expanded bytes and return them; raise DataError beyond the limits."""
        self.expanded += len(data)
        limit, factor = self.reading.max_expanded_bytes, self.reading.max_expansion
        too_big = self.expanded > limit
        if too_big or self.expanded > max(RATIO_MATTERS_FROM, factor * self.packed):
            raise DataError(
                "the compressed file expands too much",
                where=self.file,
                found=f"{self.expanded:,} bytes from the first {self.packed:,}",
                wanted=f"at most {limit:,} bytes (max_expanded_bytes)"
                if too_big
                else f"at most {factor} times the size (max_expansion)",
                do="raise the limit if the content is meant to repeat so much",
            )
        return data

    def cut_off(self, member: int, reason: str) -> DataError:
        return DataError(
            reason,
            where=f"{self.file}, member {member}",
            found=f"{self.expanded:,} bytes came out of {self.packed:,}",
            wanted="a file that is whole to its end",
            do="copy or download it again",
        )


def _gzip(chunks: Iterator[bytes], meter: _Meter) -> Iterator[bytes]:
    member, inflater = 1, zlib.decompressobj(31)
    started = False
    for data in _steps(chunks, GZIP_STEP):
        while data:
            if inflater.eof:
                data = data.lstrip(b"\0")  # padding between members, as tapes have it
                if not data:
                    break
                member, inflater, started = member + 1, zlib.decompressobj(31), False
            try:
                out = inflater.decompress(data, STEP)
                yield meter.add(out)
                # After a full step, more output may be buffered even if all input is consumed.
                while len(out) == STEP and not inflater.eof:
                    out = inflater.decompress(inflater.unconsumed_tail, STEP)
                    yield meter.add(out)
            except zlib.error as error:
                raise meter.cut_off(member, f"the gzip data is damaged ({error})") from error
            started = True
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    if started and not inflater.eof:
        raise meter.cut_off(member, "the compressed file is cut off")


def _zstd(chunks: Iterator[bytes], meter: _Meter) -> Iterator[bytes]:
    zstandard = require_packages("reading zstd files", "zstandard", where=meter.file)
    decompressor = zstandard.ZstdDecompressor()
    member, frame, started = 1, decompressor.decompressobj(), False
    for data in _steps(chunks, ZSTD_STEP):
        while data:
            if frame.eof:
                member, frame, started = member + 1, decompressor.decompressobj(), False
            try:
                yield meter.add(frame.decompress(data))
            except zstandard.ZstdError as error:
                if "too much memory" in str(error):
                    raise DataError(
                        "the zstd file needs a larger window than is supported",
                        where=meter.file,
                        found=str(error),
                        wanted="a window of at most 128 MiB",
                        do="compress it again without --long, or with --long=27 at most",
                    ) from error
                raise meter.cut_off(member, f"the zstd data is damaged ({error})") from error
            started = True
            data = frame.unused_data if frame.eof else b""
    if started and not frame.eof:
        raise meter.cut_off(member, "the compressed file is cut off")


def _steps(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Split the chunks into pieces of at most `size` bytes."""
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def _regroup(pieces: Iterator[bytes]) -> Iterator[bytes]:
    buffered: list[bytes] = []
    size = 0
    for piece in pieces:
        buffered.append(piece)
        size += len(piece)
        if size >= STEP // 2:
            yield b"".join(buffered)
            buffered, size = [], 0
    if size:
        yield b"".join(buffered)


# ------------------------------------------------------------------------------ spool
STALE = "stale-encoding-declaration"
IN_MEMORY = 1 << 20
BUFFER = 1 << 20
CODING = ("utf-8", "surrogatepass")  # names of files may hold undecodable bytes
_SIZES = struct.Struct("<4Q")


class Spool:
    """A disk-backed list of documents that can be iterated over repeatedly, in insertion order.

    Args:
        folder: a folder on the disk to use; it need not exist.
        most: size in bytes beyond which no more documents are stored; None for no limit.

    Attributes:
        complete: whether all added documents are stored.
    """

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self.complete = True
        self._folder, self._most = folder, most
        self._end = self._at = 0  # end of the stored records, and position in the file
        directory = str(existing_parent(folder))
        file = tempfile.SpooledTemporaryFile(IN_MEMORY, "w+b", BUFFER, dir=directory)  # noqa: SIM115
        self._file = file
        weakref.finalize(self, file.close)

    def add(self, document: Document) -> None:
        """Store a document, unless the size limit is reached.

        Raises:
            StoppedError, StorageError: the disk is full or fails.
        """
        notes = json.dumps(document.notes) if document.notes else ""
        fields = (document.source, document.id, document.text, notes)
        encoded_fields = [field.encode(*CODING) for field in fields]
        record = b"".join([_SIZES.pack(*map(len, encoded_fields)), *encoded_fields])
        if self._most is not None and self._end + len(record) > self._most:
            self.complete = False
        if self.complete:
            with os_errors_refused(self._folder):
                self._go_to(self._end)
                self._file.write(record)
            self._end = self._at = self._end + len(record)

    def __iter__(self) -> Iterator[Document]:
        offset = 0
        while offset < self._end:
            with os_errors_refused(self._folder):
                self._go_to(offset)
                sizes = _SIZES.unpack(self._file.read(_SIZES.size))
                source, name, text, notes = (
                    self._file.read(size).decode(*CODING) for size in sizes
                )
            self._at = offset = offset + _SIZES.size + sum(sizes)
            yield Document(text, source, name, json.loads(notes) if notes else {})

    def _go_to(self, offset: int) -> None:
        """Seek to `offset` if the file is elsewhere, as with two interleaved iterations."""
        if self._at != offset:
            self._file.seek(offset)


# ------------------------------------------------------------------------------ documents
DEFAULT = ReadingOptions()
BOOK = 1 << 20  # bytes of a long book
# One or more blank lines, with the line end before them. A run of blanks is entered only after a
# line end and cannot hold one, so the search is linear.
BLANK_LINES = re.compile(r"\n(?:[ \t\r\v\f]*+\n)++")
FEWEST_FILES = 20  # for one document per file: with fewer, a held-out set would be too small


class Reader:
    """Iterable over the documents of files, in the given order; each iteration reads them again.

    Args:
        paths: files and folders (searched in sorted order, skipping hidden names).
        rejects: the file or stream to list dropped rows in, one JSON object per line (with
            `on_bad="skip"`); None for no list.
        limit_bytes: yield only documents that begin within this many bytes of text; None for all.
        pages: whether to include HTML files, each as one document with its markup.

    Attributes:
        counts: counts of the last iteration; complete when it has ended.
        cut: whether the last iteration stopped at `limit_bytes`.

    Raises:
        UsageError: immediately, if a path is missing or cannot be read.
    """

    def __init__(
        self,
        paths: Paths,
        reading: ReadingOptions = DEFAULT,
        rejects: Path | str | TextIO | None = None,
        limit_bytes: int | None = None,
        *,
        pages: bool = False,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.cut = False
        self.rejects = Path(rejects) if isinstance(rejects, str) else rejects
        self.sources, self._ignored = find(paths, pages=pages)
        self.reading, self._form = with_form(self.sources, reading)
        self.counts = Counts()

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents.

        Raises:
            DataError: bad data, no documents, or a column of notes that no row has.
            OutputError, StorageError, UsageError: a file cannot be opened, read or written.
        """
        is_plain = any(source.format == "text" for source in self.sources)
        form = self.reading.form if is_plain else ""
        counts = self.counts = Counts(ignored=self._ignored, form=form)
        counts.notes += [self._form] if self._form is not None and len(self.sources) > 1 else []
        self.cut, bytes_read = False, 0
        with Ledger(self.reading, counts, self.rejects) as ledger:
            for source in self.sources:
                for document in _documents(source, ledger):
                    if self.limit_bytes is not None:
                        self.cut = bytes_read >= self.limit_bytes
                        bytes_read += len(document.text.encode())
                    if self.cut:
                        counts.hashes[source.shown] = _check_hash(source, hash_file(source.path))
                        break
                    counts.documents += 1
                    yield document
                if self.cut:
                    break
            ledger.finish()
            if not self.cut:
                ledger.require_notes()


def with_form(
    sources: Sequence[Source], reading: ReadingOptions
) -> tuple[ReadingOptions, Finding | None]:
    """Decide how plain text splits into documents where the reading does not say.

    Each file is one document if there are at least `FEWEST_FILES` of them and at least half of
    their text is in files no longer than `BOOK`. Otherwise documents end at blank lines.

    Returns:
        The reading, and a finding that names the choice (None if nothing had to be chosen).
    """
    text_sources = [source for source in sources if source.format == "text"]
    if reading.form != "auto" or not text_sources:
        return reading, None
    sizes = [source.text_bytes for source in text_sources]
    large = 2 * sum(size for size in sizes if size > BOOK) > sum(sizes)
    form: Form = "file" if len(text_sources) >= FEWEST_FILES and not large else "blank-line"
    choice, other_form = {
        "file": ("each text file is one document", "blank-line"),
        "blank-line": ("text files are split at blank lines", "file"),
    }[form]
    reason = f"{len(text_sources)} files" + (", most of the text in large ones" if large else "")
    remedy = f"otherwise: --read form={other_form} or form=line"
    return replace(reading, form=form), Finding("document-form", choice, reason, remedy)


def read(paths: Paths, reading: ReadingOptions = DEFAULT) -> Iterator[Document]:
    """Return an iterator over the documents of `paths`; use `Reader` to also get the counts.

    Raises:
        As `Reader`; a missing path raises immediately, not at the first document.
    """
    return iter(Reader(paths, reading))


def _documents(source: Source, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents of one file of any format."""
    counts = ledger.counts
    rows_before = counts.rows
    if source.format == "columns":
        raise UsageError(
            "a file of tagged words is not running text",
            where=source.shown,
            wanted="text, or a table with a column of texts",
            do="use the file with finetune",
        )
    with RegularFile(source) as opened:
        counts.files += 1
        if source.format in ("parquet", "arrow"):
            if source.compression:
                raise UsageError(
                    f"a {source.format} file inside a compressed file is not read",
                    where=source.shown,
                    wanted=f"a {source.suffix} file",
                    do="decompress it first",
                )
            yield from parquet.documents(opened, source, ledger)
        else:
            checked = text_blocks(opened, source, ledger)
            whole_file = source.format == "page" or ledger.reading.form == "file"
            if source.format == "text" and ledger.reading.form == "line":
                documents = _by_line(checked, source.shown, ledger)
            elif source.format in ("text", "page"):
                documents = _by_pieces(checked, source.shown, ledger, whole_file=whole_file)
            elif source.format == "jsonl":
                documents = jsonl.documents(checked, source, ledger)
            else:
                documents = csv_file.documents(checked, source, ledger)
            yield from _limit_length(documents, source.shown, ledger)
        counts.hashes[source.shown] = _check_hash(source, opened.finish())
    if counts.rows == rows_before:
        counts.empty_files.append(source.shown)


def _check_hash(source: Source, digest: str) -> str:
    """Return `digest` after comparing it with the hash in the manifest, if there is one."""
    saved.require_same_text(source.path, digest, source.sha256)
    return digest


def _limit_length(documents: Iterator[Document], file: str, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents, rejecting those that are too long."""
    limit = ledger.reading.max_document_characters
    for document in documents:
        if len(document.text) <= limit:
            yield document
            continue
        error = too_long(document.id, f"{len(document.text):,} characters", limit)
        ledger.reject(error, file=file, line=int(document.id.rpartition(":")[2]))


def text_blocks(
    opened: RegularFile, source: Source, ledger: Ledger, *, as_given: bool = False
) -> Iterator[TextBlock]:
    """Return the checked lines of a text file of any encoding and compression; with `as_given`,
    control characters and CRLF are kept.

    Raises:
        DataError: not text, of another encoding, damaged; a bad line, when the policy is strict.
    """
    reading, file = ledger.reading, source.shown
    chunks = expand(opened.chunks(), source.compression, file, reading)
    head = b""
    while len(head) < HEAD and (chunk := next(chunks, b"")):
        head += chunk
        if opened.pipe is not None and b"\n" in head:
            break  # of a growing pipe, a complete line is processed before the next arrives
    encoding = encoding_of(head, source, reading)
    if encoding.instead_of and all(note.name != STALE for note in ledger.counts.notes):
        message = f"read as UTF-8, which it is, though it declares {encoding.instead_of!r}"
        ledger.counts.notes.append(Finding(STALE, f"{file}: {message}", remedy=REMEDY))
    mark_length = check_head(head, file, encoding.codec)
    ledger.counts.byte_order_marks += mark_length > 0
    chunks = itertools.chain([head[mark_length:]] if head[mark_length:] else [], chunks)
    start = mark_length
    if encoding.codec != "utf-8":
        chunks, start = to_utf8(chunks, file, reading, encoding, start=mark_length), -1
    return blocks(chunks, file, ledger, start=start, as_given=as_given, encoding=encoding)


# ------------------------------------------------------------------------------ plain text
def _by_line(blocks: Iterator[TextBlock], file: str, ledger: Ledger) -> Iterator[Document]:
    counts = ledger.counts
    for block in blocks:
        for number, line in block.lines():
            if not line or line.isspace():
                counts.blank += 1
            else:
                yield Document(line, file, f"{file}:{number}")


def _by_pieces(
    blocks: Iterator[TextBlock], file: str, ledger: Ledger, *, whole_file: bool
) -> Iterator[Document]:
    """Yield documents separated by blank lines, or the `whole_file`, across block borders."""
    pending = _DocumentBuilder(file, ledger, whole_file)
    limit = ledger.reading.max_document_characters
    for block in blocks:
        # The leading LF lets blank lines at the start of a block match like all others.
        text, offset, line = "\n" + block.text, 1, block.line
        for gap in () if whole_file else BLANK_LINES.finditer(text):
            start, end = gap.span()
            piece = text[offset:start]
            if not pending.size and 0 < len(piece) <= limit and not piece.isspace():
                yield Document(piece, file, f"{file}:{line}")
            else:
                pending.add(piece, line)
                if document := pending.take():
                    yield document
            line += text.count("\n", offset, end)
            offset = end
        if offset < len(text):
            pending.add(text[offset:], line)
    if document := pending.take():
        yield document


class _DocumentBuilder:
    """Assembles one document from pieces, up to the size limit."""

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
            shown, remedy = f"more than {limit:,} characters", "read the file with form='line'"
            if not self.whole_file:
                shown = f"{shown} without a blank line"
                remedy = f"separate documents by blank lines, {remedy}"
            error = too_long(line_in(self.file, self.line), shown, limit, remedy)
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
