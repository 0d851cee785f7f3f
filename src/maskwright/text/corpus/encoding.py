"""Determine the encoding that a file declares, and convert other encodings than UTF-8 to UTF-8
before the stream is split into lines.

Undecodable bytes become 0xFF, which is not UTF-8, so that the line reader rejects the line; with a
strict policy they raise an error here, with their exact offset in the file.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from maskwright.base.errors import DataError, near
from maskwright.text.corpus.files import KINDS, PAGES, Source
from maskwright.text.corpus.ledger import line_in
from maskwright.text.corpus.reading import AUTO, ENCODINGS, ReadingOptions, known_codec
from maskwright.text.corpus.sniff import BYTE_ORDER_MARKS, HEAD

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
