"""Plain text cut into words and signs, which is what tags are told of."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache


def words_in(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of every word and sign."""
    return (match.span() for match in _words().finditer(text))


@cache
def _words() -> re.Pattern[str]:
    """A letter may be written as several: with marks over or after it, or joined to the next."""
    every = map(chr, range(0x300, 0x20000))
    marks = "".join(sign for sign in every if unicodedata.category(sign)[0] == "M")
    return re.compile(rf"\w[\w{re.escape(marks)}\u200c\u200d]*|[^\w\s]")
