"""Plain text cut into words and signs, which is what tags are told of."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from maskwright.tasks.as_given import CONTROLS


def words_in(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of every word and sign."""
    return (match.span() for match in _words().finditer(text))


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
