"""Why a place in a text is wrong: in what else it may be counted than in characters."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Sequence

from maskwright.labelled.formats.as_given import CONTROL, as_read

# (its name in messages, the text that the place counts in).
Counting = tuple[str, Callable[[str], str]]
COUNTINGS: tuple[Counting, ...] = (
    ("the text without the blanks it begins with", str.lstrip),
    ("a text that begins with a byte order mark", lambda text: "\ufeff" + text),
    ("the text with LF for CRLF", lambda text: text.replace("\r\n", "\n")),
    ("the text with CRLF for LF", lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n")),
    ("the text without control characters", as_read),
    ("the text in Unicode form NFC", lambda text: unicodedata.normalize("NFC", text)),
    ("the text in Unicode form NFD", lambda text: unicodedata.normalize("NFD", text)),
    ("the text with single blanks", lambda text: " ".join(text.split())),
)


# (its name in messages, the size of a character before another).
UNITS: tuple[tuple[str, Callable[[str, str], int]], ...] = (
    ("UTF-16 units, as JavaScript and Java do", lambda one, _: 1 + (ord(one) > 0xFFFF)),
    ("bytes of UTF-8", lambda one, _: len(one.encode("utf-8", "surrogatepass"))),
    ("the text with LF for CRLF", lambda one, other: int((one, other) != ("\r", "\n"))),
    ("the text with CRLF for LF", lambda one, _: 1 + (one == "\n")),
    ("the text without control characters", lambda one, _: int(CONTROL.match(one) is None)),
)


def cause_of_place(text: str, part: str, begin: int) -> str | None:
    """What `begin` seems to count, where `part` does not begin at that character of `text`; None
    where no other counting explains it."""
    if begin < 0 or not part:
        return None
    if _utf16(text, begin, len(part.encode("utf-16-le", "surrogatepass")) // 2) == part:
        return "it seems to be counted in UTF-16 units, as JavaScript and Java do: count characters"
    if _bytes(text, begin, len(part.encode("utf-8", "surrogatepass"))) == part:
        return "it seems to be counted in bytes of UTF-8: count characters"
    for what, change in COUNTINGS:
        changed, wanted = change(text), change(part)
        if changed != text and wanted and changed[begin : begin + len(wanted)] == wanted:
            return f"it seems to be counted in {what}: count characters of the text as given"
    if begin and text[begin - 1 : begin - 1 + len(part)] == part:
        return "it seems to be counted from 1: count from 0"
    return None


def cause_of_part(text: str, part: str, begin: int, end: int) -> str | None:
    """The same of a part with an end."""
    if part and text[begin : end + 1] == part:
        return "the end seems to be the last character: it is the one behind it here"
    return cause_of_place(text, part, begin)


def counting_that_fits(
    text: str, parts: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> str:
    """In what (begin, end) of all `parts` of `text` may be counted, so that they begin and end
    where `words` do; empty where no other counting than characters does that."""
    begins, ends = ({word[side] for word in words} for side in (0, 1))
    for what, size in UNITS:
        before = [0, *itertools.accumulate(map(size, text, text[1:] + " "))]
        if before[-1] == len(text):
            continue
        # Characters of no size stand before the one that begins at the same place.
        first = {place: number for number, place in enumerate(before)}
        last = {place: number for number, place in reversed([*enumerate(before)])}
        if all(first.get(begin) in begins and last.get(end) in ends for begin, end in parts):
            return what
    blanks = len(text) - len(text.lstrip())
    if blanks and all(b + blanks in begins and e + blanks in ends for b, e in parts):
        return "the text without the blanks it begins with"
    return ""


def _utf16(text: str, begin: int, length: int) -> str:
    units = text.encode("utf-16-le", "surrogatepass")[2 * begin : 2 * (begin + length)]
    return units.decode("utf-16-le", "replace")


def _bytes(text: str, begin: int, length: int) -> str:
    return text.encode("utf-8", "surrogatepass")[begin : begin + length].decode("utf-8", "replace")
