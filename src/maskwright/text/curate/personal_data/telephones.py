"""Find telephone numbers in a text.

By format: international, North American (3-3-4), national with a leading 0, of Russia, Brazil and
China; after a word for telephone, in some thirty languages, any number. Dates, and numbers after a
word such as ISBN, are excluded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from maskwright.text.curate.personal_data.cues import Cues

# An extension is a part of the number, but none of its digits count.
_EXTENSION = r"(?:,? ?(?:x|ext\.?|extension|#) ?\d{1,6})?"
_TAIL = _EXTENSION + r"(?![\w-]|[.,/:]\d| ?[%€$£])"
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
    # 07911123456, 0612345678: without groups
    re.compile(r"(?<![\w.,/+:-])(?<!\d )0[1-9]\d{8,9}" + _TAIL + r"(?! \d)", re.ASCII),
    # 8 (495) 123-45-67, 8-800-555-35-35; (11) 91234-5678; 138 0013 8000
    re.compile(
        r"(?<![\w.,/+:-])(?<!\d )(?:8[ -]?(?:\(\d{3}\) ?|\d{3}[ -])\d{3}[ -]\d\d[ -]\d\d|"
        r"\([1-9]\d\) ?9?\d{4}-\d{4}|1[3-9]\d([ -])\d{4}\1\d{4})" + _TAIL + r"(?! \d)",
        re.ASCII,
    ),
)
_PAIRS = re.compile(r"0\d(?:[ .-]\d\d)+", re.ASCII)
UNGROUPED = 3  # the place of the pattern without groups
COUNTING = ("0123456789", "01234567890")
_BYTE = re.compile(r"(?<!\w)[0-9a-fA-F]{2}\s\Z")
_ANY = re.compile(
    r"(?<![\w.,/+-])\(?\d(?:[ ./-]?[ ./()-]?\d){5,14}" + _EXTENSION + r"(?!\w|[.,]\d)(?! ?[%€$£])",
    re.ASCII,
)
_CUES = Cues(
    (
        *("tel", "tél", "telephone", "telefono", "telefone", "telefoon", "telefon", "téléphone"),
        *("teléfono", "telefonnr", "telefonnummer", "telefonszám", "telefón", "telp", "telepon"),
        *("phones?", "ph", "fono", "fone", "fax", "mobile", "mobil", "mob", "móvil", "movil"),
        *("cell", "cellulare", "celular", "portable", "handy", "gsm", "tlf", "puh", "puhelin"),
        *("cep", "kom", "komórka", "hp", "simu", "whatsapp", "viber", "sms", "dial", "ring"),
        *("call", "call me", "call us", "call him", "call her", "điện thoại", "đt"),
        *(r"тел", r"телефон\w{0,2}", "моб", "τηλ", "τηλέφωνο", "κινητό", "טלפון", "נייד", "טל"),
        *("هاتف", "الهاتف", "تلفون", "جوال", "موبايل", "تلفن", "موبایل", "همراه"),
        *("फोन", "फ़ोन", "मोबाइल", "दूरभाष", "ফোন", "মোবাইল"),
    ),
    (
        *("电话", "電話", "手机", "手機", "联系方式", "聯絡", "携帯"),
        *("전화", "휴대폰", "연락처", "핸드폰"),
        *("โทร", "โทรศัพท์", "มือถือ", "เบอร์"),
    ),
    ("is", "at", "on"),
)
_NO_PHONE = re.compile(
    r"\b(?:isbn(?:-1[03])?|issn|doi|pmid|arxiv|order|invoice|serial|id|part|sku|ref(?:erence)?|case|"
    r"ticket|zip|model|item|article|patent)\b(?:[\s.]{0,2}(?:no|nr|number|code)\b)?[\s.:#]{0,3}\Z",
    re.IGNORECASE,
)
DATE = re.compile(r"\(?(?:[0-3]?\d[./ -][01]?\d[./ -](?:19|20)\d\d|(?:19|20)\d\d[./-]\d\d)")


def phones(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the telephone numbers in `text[begin:end]`."""
    for number, pattern in enumerate(_PHONES):
        for match in pattern.finditer(text, begin, end):
            value = match.group()
            digits = sum(c.isdigit() for c in re.split("[xe#]", value)[0])
            least, most = ((8, 15), (10, 11), (9, 12), (10, 11), (10, 11))[number]
            if _PAIRS.fullmatch(value) and (
                digits != 10
                or _counting(value)
                or _BYTE.search(text, max(0, match.start() - 4), match.start())
            ):
                continue  # of dumps and lists; France writes five pairs
            if number == UNGROUPED and (len(set(value)) < 4 or value in COUNTING or isbn(value)):
                continue
            if least <= digits <= most and not _other_number(text, *match.span()):
                yield match.span()
    for match in _ANY.finditer(text, begin, end):
        if _CUES.before(text, match.start()) and not _other_number(text, *match.span()):
            yield match.span()


def _counting(pairs: str) -> bool:
    """Whether pairs of digits count up: `04 05 06 07 08`."""
    numbers = [int(pair) for pair in re.findall(r"\d\d", pairs)]
    return all(b == a + 1 for a, b in itertools.pairwise(numbers))


def isbn(digits: str) -> bool:
    """Whether ten digits are a valid ISBN (ISO 2108), by the check digit."""
    return len(digits) == 10 and sum(int(d) * (10 - n) for n, d in enumerate(digits)) % 11 == 0


def _other_number(text: str, begin: int, end: int) -> bool:
    """Whether `text[begin:end]` is a date, or follows a word for another kind of number."""
    return bool(DATE.match(text, begin, end) or _NO_PHONE.search(text, max(0, begin - 24), begin))
