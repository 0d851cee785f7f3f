"""Telephone numbers in a text.

By their form: international, North American (3-3-4), national with a leading 0 in groups; behind a
word for telephone any number. Dates, and numbers behind a word such as ISBN, are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TAIL = r"(?![\w-]|[.,/:]\d| ?[%€$£])"
_PHONES = (
    # +44 20 7946 0018, +1 (212) 555-0123, 0049 30 123456
    re.compile(
        r"(?<![\w+.,-])(?:\+\s?|(?<!\d )00(?=[1-9]\d?\d?[ ./-]))"
        r"[1-9](?:[ ./-]?(?:\(\d{1,5}\)|\d)){6,14}" + _TAIL,
        re.ASCII,
    ),
    # (212) 555-0123, 212-555-0123, 212.555.0123, 1 212 555 0123
    re.compile(
        r"(?<![\w.,/+-])(?<!\d )(?:\+?1[ .-]?)?(?:\([2-9]\d\d\) ?|[2-9]\d\d([ .-])(?=\d{3}\1))"
        r"[2-9]\d\d[ .-]\d{4}" + _TAIL + r"(?! \d)",
        re.ASCII,
    ),
    # 020 7946 0018, (01632) 960 001, 01 23 45 67 89, 030/1234567
    re.compile(
        r"(?<![\w.,/+:-])(?<!\d )(?:\(0[1-9]\d{0,4}\) ?|0[1-9]\d{0,4}[ ./-])"
        r"\d{2,8}(?:[ .-]\d{2,8}){0,4}" + _TAIL + r"(?! \d)",
        re.ASCII,
    ),
)
_PAIRS = re.compile(r"0\d(?:[ .-]\d\d)+", re.ASCII)
_BYTE = re.compile(r"(?<!\w)[0-9a-fA-F]{2}\s\Z")
_ANY = re.compile(
    r"(?<![\w.,/+-])\(?\d(?:[ ./-]?[ ./()-]?\d){5,14}(?!\w|[.,]\d)(?! ?[%€$£])", re.ASCII
)
_CUE = re.compile(
    r"\b(?:tel|telephone|tele?fono?|telefoon|téléphone|teléfono|phones?|ph|fax|mobile|cell|handy|"
    r"whatsapp|sms|call(?: (?:me|us|him|her))?(?: (?:at|on))?|dial|ring)\b[\s.:#]{0,3}"
    r"(?:(?:no|nr|number|is|at|on)\b[\s.:#]{0,3}){0,2}\Z",
    re.IGNORECASE,
)
_NO_PHONE = re.compile(
    r"(?:\bisbn(?:-1[03])?|\bissn|\bdoi|\bpmid|\barxiv|\border|\binvoice|\bserial|\bid)\b"
    r"[\s.:#]{0,3}\Z",
    re.IGNORECASE,
)
_DATE = re.compile(r"\(?(?:[0-3]?\d[./ -][01]?\d[./ -](?:19|20)\d\d|(?:19|20)\d\d[./-]\d\d)")


def phones(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where telephone numbers stand that begin in `begin:end`."""
    for number, pattern in enumerate(_PHONES):
        for match in pattern.finditer(text, begin, end):
            digits = sum(c.isdigit() for c in match.group())
            least, most = ((8, 15), (10, 11), (9, 12))[number]
            pairs = _PAIRS.fullmatch(match.group())
            if pairs and (
                digits != 10 or _BYTE.search(text, max(0, match.start() - 4), match.start())
            ):
                continue  # of dumps; France writes five pairs
            if least <= digits <= most and not _other_number(text, *match.span()):
                yield match.span()
    for match in _ANY.finditer(text, begin, end):
        cue = _CUE.search(text, max(0, match.start() - 40), match.start())
        if cue and not _other_number(text, *match.span()):
            yield match.span()


def _other_number(text: str, begin: int, end: int) -> bool:
    """Whether it is a date, or a word before it says that it is another number."""
    return bool(_DATE.match(text, begin, end) or _NO_PHONE.search(text, max(0, begin - 24), begin))
