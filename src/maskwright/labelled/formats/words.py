"""Plain text cut into words and signs, the units that have tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from maskwright.labelled.formats.as_given import CONTROLS

# Scripts whose words are not separated by blanks, or, as in Korean, whose endings are not: Thai to
# Tibetan, Burmese, Hangul, Khmer, Chinese and Japanese.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f"
    "\ua980-\ua9df\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)
JOINERS = "\u200c\u200d\u00ad\u2060"
LONGEST = 40  # characters of a word; what is longer, such as a hash, is none


def words_in(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of every word and sign."""
    return (match.span() for match in _words().finditer(text))


def whole_words(text: str, begin: int, end: int) -> tuple[int, int]:
    """The slice of `text`, widened to the ends of its words; in scripts without blanks between
    words only to the ends of letters with marks."""
    first, last = begin, end
    while first > 0 and _joined(text, first):
        first -= 1
    while last < len(text) and _joined(text, last):
        last += 1
    return begin if begin - first > LONGEST else first, end if last - end > LONGEST else last


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and after the place `at` are of one word."""
    before, after = text[at - 1], text[at]
    if _is_mark(after):
        return not before.isspace()
    return _is_letter(before) and _is_letter(after)


def _is_letter(sign: str) -> bool:
    known = sign.isalnum() or sign == "_" or sign in JOINERS or _is_mark(sign)
    return known and not UNSPACED.match(sign)


def _is_mark(sign: str) -> bool:
    return sign > "\u02ff" and unicodedata.category(sign)[0] == "M"


@cache
def _words() -> re.Pattern[str]:
    """A letter may be written as several: with marks over or after it, joined to the next, or with
    a hyphen that is seen at the end of a line only. So may a sign: two letters make a flag, and a
    picture may have a colour, or others joined to it."""
    every = map(chr, range(0x300, 0x20000))
    marks = re.escape("".join(sign for sign in every if unicodedata.category(sign)[0] == "M"))
    colours, flag = "\U0001f3fb-\U0001f3ff", "[\U0001f1e6-\U0001f1ff]{2}"
    sign = rf"[^\w\s{re.escape(CONTROLS)}](?:[{marks}{colours}]|\u200d[^\w\s])*"
    # What is no part of a text as it is read is no sign, and no border within a word.
    left_out = re.escape(CONTROLS)
    word = rf"\w(?:[\w{marks}\u200c\u200d\u00ad\u2060]|[{left_out}]+(?=\w))*"
    return re.compile(rf"{word}|{flag}|{sign}")
