"""The encoding of a file, by what it declares; other ones than UTF-8 are converted to UTF-8 before
the stream is cut into lines.

Bytes that do not decode become 0xFF, which is not UTF-8, so that the line reader treats the line
like any other that is not text; with a strict policy they are an error here, at their exact offset
in the file.
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

# For western text first; the others are tried when most of the letters are outside ASCII.
GUESSES = ("cp1252", "latin-1")
WIDE_GUESSES = ("gb18030", "shift_jis", "euc-kr", "cp1251", "cp1252", "latin-1")


# What browsers read where a page declares these (WHATWG, Encoding, 4.2): one that can hold more.
# A page that says UTF-16 in bytes of ASCII is none.
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
# PEP 263, on the first or second line, of an editor or alone: headings hold such words, too.
IN_CODE = re.compile(
    rb"\A(?:[ \t\f]*(?:#[^\r\n]*)?\r?\n)?[ \t\f]*#[ \t]*(?P<editor>(?:-\*-|vim?:)[^\r\n]*?\b)?"
    rb"(?:file)?(?:en)?coding[:=][ \t]*(?P<label>[\w.-]+)(?(editor)|(?=[ \t]*(?:[\r\n]|\Z)))"
)


@dataclass(frozen=True)
class Encoding:
    """The encoding of a file, by Python's name, and the words by which the file declares it, or
    declares another, `instead_of` which it is read so."""

    codec: str
    declaration: str = ""
    instead_of: str = ""

    def __str__(self) -> str:
        words = f", which the file declares ({self.declaration})" if self.declaration else ""
        return self.codec + words


UTF_8 = Encoding("utf-8")


def encoding_of(head: bytes, source: Source, reading: ReadingOptions) -> Encoding:
    """The encoding of a file that begins with `head`: as the reading says, as the file declares, or
    UTF-8.

    Raises:
        DataError: markup declares an encoding that nobody knows.
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
        label, words = match[1].decode("latin-1").lower(), match[0].decode("latin-1").strip()
        codec = known_codec(LABELS.get(label, label))
        if codec is None:
            raise DataError(
                "the file declares an unknown encoding",
                where=source.shown,
                found=words,
                wanted=near(label, ENCODINGS),
                do="name the right one (encoding=…), or correct the declaration",
            )
        return _fitting(head, ON_PAGES.get(codec, codec), words)
    for line in IN_CODE.finditer(head) if is_text else ():
        if codec := known_codec(line["label"].decode("latin-1")):
            return _fitting(head, codec, line[0].decode("latin-1").strip().rpartition("\n")[2])
    return Encoding(reading.codec)


def _fitting(head: bytes, codec: str, words: str) -> Encoding:
    """As declared; UTF-8 where `head`, which may end within a character, has other signs than ASCII
    and all are UTF-8, as those of other encodings hardly ever are."""
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
    """The stream as UTF-8; `start` is the offset of its first byte in the file.

    Raises:
        DataError: bytes that are not of the encoding, when bad rows stop the reading.
    """
    strict = reading.on_bad == "strict" and reading.on_undecodable == "bad"
    make = codecs.getincrementaldecoder(encoding.codec)
    decoder = make("strict" if strict else "maskwright-mark")
    line, fed = 1, start
    for chunk, final in itertools.chain(((chunk, False) for chunk in chunks), [(b"", True)]):
        before = decoder.getstate()
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            waiting = len(before[0])
            good = make("strict")
            good.setstate(before)
            prefix = good.decode(bytes(error.object)[waiting : error.start])
            raise DataError(
                f"not {encoding.codec}",
                where=line_in(file, line + prefix.count("\n"), fed - waiting + error.start),
                found=f"the bytes {bytes(error.object)[error.start : error.end].hex(' ')}"
                f" ({error.reason})",
                wanted=f"text in {encoding}",
                do=f"{REMEDY}, correct the bytes, "
                "or read with on_bad='skip' or on_undecodable='replace'",
            ) from error
        fed += len(chunk)
        line += text.count("\n")
        yield text.encode("utf-8", "strict" if strict else "surrogateescape")


def guess(line: bytes) -> str:
    """Encodings in which `line` would be text, the most likely first: `valid as cp1252`."""
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
