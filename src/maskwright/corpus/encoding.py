"""Other encodings than UTF-8: the stream is converted to UTF-8 before it is cut into lines.

Bytes that do not decode become 0xFF, which is not UTF-8, so that the line reader treats the line
like any other that is not text; with a strict policy they are an error here, at their exact offset
in the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from maskwright.corpus.ledger import at
from maskwright.corpus.reading import Reading
from maskwright.errors import DataError

# For western text first; the others are tried when most of the letters are outside ASCII.
GUESSES = ("cp1252", "latin-1")
WIDE_GUESSES = ("gb18030", "shift_jis", "euc-kr", "cp1251", "cp1252", "latin-1")


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", max(error.end, error.start + 1)


codecs.register_error("maskwright-mark", _mark)


def to_utf8(
    chunks: Iterator[bytes], file: str, reading: Reading, *, start: int = 0
) -> Iterator[bytes]:
    """The stream as UTF-8; `start` is the offset of its first byte in the file.

    Raises:
        DataError: bytes that are not `reading.codec`, when bad rows stop the reading.
    """
    strict = reading.on_bad == "strict" and reading.on_undecodable == "bad"
    make = codecs.getincrementaldecoder(reading.codec)
    decoder = make("strict" if strict else "maskwright-mark")
    line, fed = 1, start
    for chunk, final in _with_last(chunks):
        before = decoder.getstate()
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            waiting = len(before[0])
            good = make("strict")
            good.setstate(before)
            prefix = good.decode(bytes(error.object)[waiting : error.start])
            raise DataError(
                f"not {reading.codec}",
                where=at(file, line + prefix.count("\n"), fed - waiting + error.start),
                found=f"the bytes {bytes(error.object)[error.start : error.end].hex(' ')}"
                f" ({error.reason})",
                wanted=f"text in {reading.codec}",
                do="name the right encoding, correct the bytes, "
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


def _with_last(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, False
    yield b"", True
