r"""Whole lines of checked text from a stream of bytes: the only way in for raw text.

Rows end at LF (CRLF is trimmed), or at CR in a file that has no LF near its beginning; other CR,
VT, FF, U+0085 and U+2028 are text. A block is about 1 MiB of whole lines, checked at once: is it
UTF-8, has it a NUL, is a line too long? Only a block that fails is checked line by line, so a good
file costs no Python per line here.

    bytes  ->  whole lines (bounded)  ->  UTF-8, NUL, control characters  ->  Block(text, line)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from maskwright.base.errors import DataError
from maskwright.text.corpus.encoding import REMEDY, UTF_8, Encoding, guess
from maskwright.text.corpus.ledger import OR_SKIP, Counts, Ledger, line_in

# C0 except TAB, LF, VT, FF and CR, and DEL; NUL has its own policy.
CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r")) + b"\x7f"
NOT_CONTROLS = bytes(set(range(256)) - set(CONTROLS))
STRIPPED = b"\0" + CONTROLS
NOT_STRIPPED = bytes(set(range(256)) - set(STRIPPED))
STRIPPED_TABLE = dict.fromkeys(STRIPPED)
MARK = "\ufffd".encode()
ORDER_MARKS = re.compile("^\ufeff", re.MULTILINE)
# In texts that are kept as given, only marks that surely do not belong to a text.
OUTER_MARKS = re.compile(r'^\ufeff(?=["{\[])', re.MULTILINE)
LONE_CR = re.compile(rb"\r(?!\n)")
# A file with CR but no LF in this many first bytes has lines that end in CR.
LOOKED_AT = 1 << 16


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Consecutive whole lines; `line` is the number of the first, counted from 1."""

    text: str
    line: int

    def lines(self) -> Iterator[tuple[int, str]]:
        """Return (number, line) pairs. Text after the last line end counts if it is not empty."""
        return enumerate(self.text.removesuffix("\n").split("\n"), self.line)


@dataclass(frozen=True, slots=True)
class _RawBlock:
    data: bytes
    line: int
    offset: int


def blocks(
    chunks: Iterator[bytes],
    file: str,
    ledger: Ledger,
    *,
    start: int = 0,
    as_given: bool = False,
    encoding: Encoding = UTF_8,
) -> Iterator[TextBlock]:
    """Yield the valid lines of a byte stream in blocks.

    Args:
        chunks: UTF-8 bytes without a byte order mark.
        file: the name, for messages.
        ledger: receives bad lines and counts.
        start: offset of the first byte in the file, -1 if offsets differ from those in the file.
        as_given: keep control characters and CRLF, because character offsets count them.
        encoding: the encoding of the file, for messages.

    Raises:
        DataError: a bad line, when the policy is strict.
    """
    chunks = _with_line_feeds(chunks, file, ledger)
    for raw in _whole_lines(chunks, file, ledger, max(0, start)):
        text = None if _has_long_line(raw.data, ledger) else _decode(raw.data, ledger, as_given)
        if text is not None:
            yield TextBlock(text, raw.line)
        else:
            yield from _valid_lines(raw, file, ledger, encoding, start >= 0, as_given)


def strip_controls(text: str, counts: Counts) -> str:
    """Remove NUL and control characters from `text`, and count them."""
    for code in STRIPPED:
        number = text.count(chr(code))
        if code == 0:
            counts.nul_stripped += number
        elif number:
            _count(counts, code, number)
    return text.translate(STRIPPED_TABLE)


# ------------------------------------------------------------------------------ line ends
def _with_line_feeds(chunks: Iterator[bytes], file: str, ledger: Ledger) -> Iterator[bytes]:
    """Replace each CR that ends a line by LF: every CR not followed by LF if `line_ends` is "any",
    and by default only in files without LF near their beginning."""
    line_ends = ledger.reading.line_ends
    if line_ends == "lf":
        return chunks
    if line_ends == "auto":
        head = b""
        while len(head) < LOOKED_AT and b"\n" not in head and (chunk := next(chunks, b"")):
            head += chunk
        if head.endswith(b"\r"):
            head += next(chunks, b"")  # may begin with the LF of a CRLF
        chunks = itertools.chain([head] if head else [], chunks)
        if b"\r" not in head or b"\n" in head:
            return chunks
        ledger.counts.cr_files.append(file)
    return _without_lone_cr(chunks)


def _without_lone_cr(chunks: Iterator[bytes]) -> Iterator[bytes]:
    pending = b""
    for chunk in chunks:
        data = pending + chunk
        pending = b"\r" if data.endswith(b"\r") else b""
        yield LONE_CR.sub(b"\n", data[: len(data) - len(pending)])
    if pending:
        yield b"\n"


# ------------------------------------------------------------------------------ whole lines
def _whole_lines(
    chunks: Iterator[bytes], file: str, ledger: Ledger, offset: int
) -> Iterator[_RawBlock]:
    """Yield blocks that end with LF (except the last); buffers at most one line of legal length."""
    limit = ledger.reading.max_line_bytes
    buffered: list[bytes] = []
    size, line = 0, 1
    overlong = 0  # bytes read of a line beyond the limit, 0 if there is none
    for chunk in chunks:
        ledger.counts.bytes += len(chunk)
        data = chunk
        if overlong:
            end = data.find(b"\n") + 1
            overlong += end or len(data)
            if not end:
                continue
            ledger.counts.rows += 1
            ledger.reject(_length_error(file, line, overlong - 1, limit), file=file, line=line)
            offset, line, overlong = offset + overlong, line + 1, 0
            data = data[end:]
        end = data.rfind(b"\n") + 1
        if end:
            buffered.append(data[:end])
            block = b"".join(buffered)
            line_count = block.count(b"\n")
            ledger.counts.rows += line_count
            yield _RawBlock(block, line, offset)
            offset, line = offset + len(block), line + line_count
            buffered, size = [], 0
        if end < len(data):
            buffered.append(data[end:])
            size += len(data) - end
            if size > limit:
                if ledger.reading.on_bad == "strict":
                    raise _length_error(file, line, size, limit, more=True)
                overlong, buffered, size = size, [], 0
    if overlong:
        ledger.counts.rows += 1
        ledger.reject(_length_error(file, line, overlong, limit), file=file, line=line)
    elif size:
        ledger.counts.rows += 1
        yield _RawBlock(b"".join(buffered), line, offset)


# ------------------------------------------------------------------------------ checks
def _has_long_line(data: bytes, ledger: Ledger) -> bool:
    limit = ledger.reading.max_line_bytes
    return len(data) > limit and max(map(len, data.split(b"\n"))) > limit


def _decode(data: bytes, ledger: Ledger, as_given: bool) -> str | None:
    """Decode `data` and clean its text; return None if a line in it is bad."""
    reading, counts = ledger.reading, ledger.counts
    zeros = data.count(0)
    if zeros and reading.on_nul == "error":
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    controls = b"" if as_given else data.translate(None, NOT_CONTROLS)
    if controls or (zeros and not as_given):
        counts.nul_stripped += zeros
        for code in sorted(set(controls)):
            _count(counts, code, controls.count(code))
        text = data.translate(None, STRIPPED).decode()
    if "\ufeff" in text:  # concatenated files have one at the start of each
        text, marks = (OUTER_MARKS if as_given else ORDER_MARKS).subn("", text)
        counts.byte_order_marks += marks
    if "\r" in text:
        counts.lone_cr += text.count("\r") - text.count("\r\n")
        return text if as_given else text.replace("\r\n", "\n")
    return text


def _valid_lines(
    raw: _RawBlock, file: str, ledger: Ledger, encoding: Encoding, with_offset: bool, as_given: bool
) -> Iterator[TextBlock]:
    """Yield the valid lines of a block with bad ones, in runs; reject the bad lines."""
    valid_lines: list[str] = []
    number, start = raw.line, 0
    while start < len(raw.data):
        end = raw.data.find(b"\n", start) + 1 or len(raw.data)
        data = raw.data[start:end]
        text = None
        if not _has_long_line(data, ledger):
            text = _decode(data, ledger, as_given)
            if text is None:
                text = _decode_replacing(data, ledger, as_given)
        if text is not None:
            valid_lines.append(text)
        else:
            if valid_lines:
                yield TextBlock("".join(valid_lines), number - len(valid_lines))
                valid_lines = []
            offset = raw.offset + start
            offset_in_file = offset if with_offset else None
            error, byte_offset = _line_error(data, file, number, offset_in_file, ledger, encoding)
            ledger.reject(error, file=file, line=number, offset=byte_offset)
        number, start = number + 1, end
    if valid_lines:
        yield TextBlock("".join(valid_lines), number - len(valid_lines))


def _decode_replacing(data: bytes, ledger: Ledger, as_given: bool) -> str | None:
    """Decode a line with U+FFFD for undecodable bytes; None if not allowed or otherwise bad."""
    if ledger.reading.on_undecodable != "replace":
        return None
    replaced_data = data.decode("utf-8", "replace").encode()
    text = _decode(replaced_data, ledger, as_given)
    if text is not None:
        ledger.counts.replaced += replaced_data.count(MARK) - data.count(MARK)
    return text


def _line_error(
    data: bytes, file: str, line: int, offset: int | None, ledger: Ledger, encoding: Encoding
) -> tuple[DataError, int | None]:
    """Return (the error for the bad line `data`, its byte offset in the file or None)."""
    length = len(data) - data.endswith(b"\n")
    if length > ledger.reading.max_line_bytes:
        return _length_error(file, line, length, ledger.reading.max_line_bytes), offset
    try:
        if ledger.reading.on_undecodable == "bad":
            data.decode()
    except UnicodeDecodeError as error:
        byte_offset = None if offset is None else offset + error.start
        bad = data[error.start : error.end]
        description = f"the byte{'s' if len(bad) > 1 else ''} {bad.hex(' ')} ({error.reason})"
        if byte_offset is None:
            description = f"bytes that are not {encoding.codec}"
        else:
            description += f"; the line is {guess(data)}"
        return DataError(
            f"not {encoding.codec}",
            where=line_in(file, line, byte_offset),
            found=description,
            wanted=f"text in {encoding}",
            do=f"{REMEDY}, correct the byte, read with on_undecodable='replace', {OR_SKIP}",
        ), byte_offset
    byte_offset = None if offset is None else offset + data.index(0)
    return DataError(
        "the text has a NUL character",
        where=line_in(file, line, byte_offset),
        found=f"{data.count(0):,} NUL in {data[max(0, data.index(0) - 20) :][:60]!r}",
        wanted="text without NUL",
        do=f"take it out, read with on_nul='strip', {OR_SKIP}",
    ), byte_offset


def _length_error(file: str, line: int, size: int, limit: int, *, more: bool = False) -> DataError:
    return DataError(
        "the line is too long",
        where=line_in(file, line),
        found=f"{'more than ' if more else ''}{size:,} bytes without a line feed",
        wanted=f"at most {limit:,} bytes (max_line_bytes)",
        do=f"break the line, raise max_line_bytes, {OR_SKIP}",
    )


def _count(counts: Counts, code: int, number: int) -> None:
    name = f"U+{code:04X}"
    counts.controls[name] = counts.controls.get(name, 0) + number
