"""From a stream of bytes to whole lines of checked text: the only way in for raw text.

The encoding is the one that the options or the file declare; others than UTF-8 are converted before
the stream is split into lines. Undecodable bytes become 0xFF, which is not UTF-8, so that the line
reader rejects the line; with a strict policy they raise an error here, with their exact offset in
the file.

Rows end at LF (CRLF is trimmed), or at CR in a file that has no LF near its beginning; other CR,
VT, FF, U+0085 and U+2028 are text. A block is about 1 MiB of whole lines, checked at once: is it
UTF-8, has it a NUL, is a line too long? Only a block that fails is checked line by line, so a good
file costs no Python per line here.

    bytes  ->  whole lines (bounded)  ->  UTF-8, NUL, control characters  ->  TextBlock(text, line)
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from maskwright.base.errors import DataError, near
from maskwright.text.corpus.files import KINDS, PAGES, Source
from maskwright.text.corpus.reading import (
    AUTO,
    ENCODINGS,
    OR_SKIP,
    Counts,
    Ledger,
    ReadingOptions,
    known_codec,
    line_in,
    nul_error,
)
from maskwright.text.corpus.sniff import BYTE_ORDER_MARKS, HEAD

# ------------------------------------------------------------------------------ encodings
# Guesses for western text, and for text with most letters outside ASCII.
GUESSES = ("cp1252", "latin-1")
WIDE_GUESSES = ("gb18030", "shift_jis", "euc-kr", "cp1251", "cp1252", "latin-1")


# The supersets that browsers use for declared encodings (WHATWG, Encoding, 4.2). A declaration of
# UTF-16 in ASCII bytes is wrong.
ON_PAGES = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874"},
    **{"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"},
    **{"utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8"},
}
REMEDY = "name the right encoding (encoding=…), which counts more than what a file declares"
LABELS = {"x-sjis": "cp932", "x-gbk": "gb18030", "x-cp1251": "cp1251", "tis-620": "cp874"}
IN_MARKUP = (
    re.compile(rb"\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE),
    re.compile(rb"<meta\b[^>]*?(?:[\s\"'/]|;\s*)charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.IGNORECASE),
)
IS_MARKUP = re.compile(rb"\s*<(?:!doctype\b|\?xml\b|html\b|head\b|meta\b)", re.IGNORECASE)
COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
# PEP 263, on the first or second line, for an editor or alone (headings may have such words, too).
IN_CODE = re.compile(
    rb"\A(?:[ \t\f]*(?:#[^\r\n]*)?\r?\n)?[ \t\f]*#[ \t]*(?P<editor>(?:-\*-|vim?:)[^\r\n]*?\b)?"
    rb"(?:file)?(?:en)?coding[:=][ \t]*(?P<label>[\w.-]+)(?(editor)|(?=[ \t]*(?:[\r\n]|\Z)))"
)


@dataclass(frozen=True)
class Encoding:
    """The encoding of a file by its Python name, the words with which the file declares it, and the
    wrong declaration `instead_of` which it is used."""

    codec: str
    declaration: str = ""
    instead_of: str = ""

    def __str__(self) -> str:
        words = f", which the file declares ({self.declaration})" if self.declaration else ""
        return self.codec + words


UTF_8 = Encoding("utf-8")


def encoding_of(head: bytes, source: Source, reading: ReadingOptions) -> Encoding:
    """Return the encoding of a file that begins with `head`: from the options, from a declaration
    in the file, or UTF-8.

    Raises:
        DataError: markup declares an unknown encoding.
    """
    if reading.encoding != AUTO:
        return Encoding(reading.codec)
    head = head[:HEAD]
    for mark, name in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return Encoding(name, "a byte order mark")
    is_text = KINDS.get(source.suffix) == "text"
    if source.suffix in PAGES or (is_text and IS_MARKUP.match(head)):
        markup = COMMENT.sub(b"", head)
        match = next(filter(None, (pattern.search(markup) for pattern in IN_MARKUP)), None)
        if match is None:
            return Encoding(reading.codec)
        label, declaration = match[1].decode("latin-1").lower(), match[0].decode("latin-1").strip()
        codec = known_codec(LABELS.get(label, label))
        if codec is None:
            raise DataError(
                "the file declares an unknown encoding",
                where=source.shown,
                found=declaration,
                wanted=near(label, ENCODINGS),
                do="name the right one (encoding=…), or correct the declaration",
            )
        return _fitting(head, ON_PAGES.get(codec, codec), declaration)
    for line in IN_CODE.finditer(head) if is_text else ():
        if codec := known_codec(line["label"].decode("latin-1")):
            return _fitting(head, codec, line[0].decode("latin-1").strip().rpartition("\n")[2])
    return Encoding(reading.codec)


def _fitting(head: bytes, codec: str, words: str) -> Encoding:
    """Return the declared encoding, but UTF-8 if `head` (which may end within a character) has
    non-ASCII characters that are all valid UTF-8, which is unlikely in other encodings."""
    try:
        stale = codec != "utf-8" and not codecs.utf_8_decode(head, "strict", False)[0].isascii()
    except UnicodeDecodeError:
        stale = False
    return Encoding("utf-8", instead_of=words) if stale else Encoding(codec, words)


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", max(error.end, error.start + 1)


codecs.register_error("maskwright-mark", _mark)


def to_utf8(
    chunks: Iterator[bytes],
    file: str,
    reading: ReadingOptions,
    encoding: Encoding,
    *,
    start: int = 0,
) -> Iterator[bytes]:
    """Convert a stream to UTF-8; `start` is the offset of its first byte in the file.

    Raises:
        DataError: undecodable bytes, when the policy is strict.
    """
    strict = reading.on_bad == "strict" and reading.on_undecodable == "bad"
    make_decoder = codecs.getincrementaldecoder(encoding.codec)
    decoder = make_decoder("strict" if strict else "maskwright-mark")
    line, pos = 1, start
    for chunk, final in itertools.chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        previous_state = decoder.getstate()
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            pending_bytes = len(previous_state[0])
            valid_decoder = make_decoder("strict")
            valid_decoder.setstate(previous_state)
            prefix = valid_decoder.decode(bytes(error.object)[pending_bytes : error.start])
            raise DataError(
                f"not {encoding.codec}",
                where=line_in(file, line + prefix.count("\n"), pos - pending_bytes + error.start),
                found=f"the bytes {bytes(error.object)[error.start : error.end].hex(' ')}"
                f" ({error.reason})",
                wanted=f"text in {encoding}",
                do=f"{REMEDY}, correct the bytes, "
                "or read with on_bad='skip' or on_undecodable='replace'",
            ) from error
        pos += len(chunk)
        line += text.count("\n")
        yield text.encode("utf-8", "strict" if strict else "surrogateescape")


def guess(line: bytes) -> str:
    """Return the encodings that can decode `line`, the likeliest first: `valid as cp1252`."""
    high = sum(b > 127 for b in line[:4096])
    letters = sum(b > 64 for b in line[:4096])
    names = WIDE_GUESSES if high * 2 > letters and high > 3 else GUESSES
    valid = [name for name in names if _decodes(line, name)]
    return "valid as " + " or ".join(valid[: 3 if names is WIDE_GUESSES else 1])


def _decodes(line: bytes, name: str) -> bool:
    try:
        text = line.decode(name)
    except UnicodeDecodeError:
        return False
    return name == "latin-1" or not any("\x80" <= c <= "\x9f" for c in text)


# ------------------------------------------------------------------------------ lines
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
        start: offset of the first byte in the file, -1 if offsets differ from those in the file.
        as_given: keep control characters and CRLF, because character offsets count them.

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
            counts.controls[f"U+{code:04X}"] += number
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
            counts.controls[f"U+{code:04X}"] += controls.count(code)
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
    shown = f"{data.count(0):,} NUL in {data[max(0, data.index(0) - 20) :][:60]!r}"
    return nul_error(line_in(file, line, byte_offset), shown), byte_offset


def _length_error(file: str, line: int, size: int, limit: int, *, more: bool = False) -> DataError:
    return DataError(
        "the line is too long",
        where=line_in(file, line),
        found=f"{'more than ' if more else ''}{size:,} bytes without a line feed",
        wanted=f"at most {limit:,} bytes (max_line_bytes)",
        do=f"break the line, raise max_line_bytes, {OR_SKIP}",
    )
