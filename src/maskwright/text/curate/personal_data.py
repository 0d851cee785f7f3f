"""Personal details in texts: addresses, accounts, telephone and identity numbers.

Digits and `@` are rare in prose, so their positions are found with arrays first, and patterns are
applied only there. Every pattern has a bounded length, so the time is linear.

    email    a name, `@` and a domain with a top level of letters, also `name [at] domain [dot] org`
    phone    a telephone number, as below
    iban     the length of its country and the check digits (ISO 13616, ISO 7064 mod 97-10)
    card     the prefix and length of an issuer and the check digit of Luhn (ISO/IEC 7812)
    ip       version 4 and 6, of the public Internet: private addresses, those of this machine and
             of documentation stay, and so do numbers of versions and sections
    ssn      of the United States: no area 000, 666 or 9xx, no group 00, no serial 0000; without
             hyphens behind a word for it
    id       an identity number of another country, as below
    profile  the user's name in a web address (/user/NAME, /~NAME, /@NAME)

A telephone number is one of:

    international  + or 00 and a number that is possible in the country of its code
    national       of North America (3-3-4), or valid in one of `ZERO` (those that begin with 0) or
                   `OTHERS` and grouped as is usual there, by the package phonenumbers
    any            6 digits or more behind a word for telephone, in some thirty languages

Dates, and numbers behind a word such as ISBN, are no telephone numbers.

An identity number has one of:

    form and check digits     Brazil (CPF), Chile (RUT), China, Finland, France (NIR), Italy (codice
                              fiscale), Norway, Spain (DNI, NIE), Sweden, Switzerland (AHV)
    form alone, a strict one  Mexico (CURP), South Korea, United Kingdom (National Insurance)
    a word for it before      any of 5 digits or more, with letters (passport, Steuer-ID, PESEL,
                              BSN, Aadhaar, licence, …)
"""

from __future__ import annotations

import functools
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maskwright.text.store import IntArray

# ------------------------------------------------------------------- telephone and identity numbers
REACH = 48  # characters before a number
NUMBER = r"(?:no|nr|num|number|nummer|num[eé]ro|n[º°]|номер|号码?|號碼?|番号|번호)"
BETWEEN_DIGITS = " \t\n\r.:：#№-"
APART = ' \t\n/|,;()[]<>"'


class Cues:
    """Phrases before a number.

    Args:
        phrases: patterns of phrases of words separated by blanks, regardless of case.
        letters: phrases of scripts without spaces between words.
        links: patterns of words between a phrase and the number, besides those for "number".
        short: abbreviations that are also words: only before a colon or a word for "number".
    """

    def __init__(
        self,
        phrases: Sequence[str],
        letters: Sequence[str] = (),
        links: Sequence[str] = (),
        short: Sequence[str] = (),
    ) -> None:
        lasts = {phrase.rsplit(" ", 1)[-1] for phrase in phrases}
        self._last = re.compile("|".join([*lasts, *links, *short, NUMBER]), re.IGNORECASE)
        phrases = [*phrases, *(rf"{word}(?=\s?(?:[:#]|{NUMBER}(?!\w)))" for word in short)]
        self._letters = (*letters, "号", "号码", "號", "號碼", "番号", "번호")
        between = "[" + re.escape(BETWEEN_DIGITS) + "]{0,3}"
        link = rf"(?:(?:{'|'.join([*links, NUMBER])}){between}){{0,2}}"
        words = rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)"
        apart = f"|{'|'.join(letters)}" if letters else ""
        self._whole = re.compile(rf"(?:{words}{apart}){between}{link}\Z", re.IGNORECASE)

    def before(self, text: str, position: int) -> bool:
        """Whether one of the phrases precedes `position`."""
        piece = text[max(0, position - REACH) : position].rstrip(BETWEEN_DIGITS)
        last_word = piece[max(map(piece.rfind, APART)) + 1 :]
        if not (self._last.fullmatch(last_word) or piece.endswith(self._letters)):
            return False
        return bool(self._whole.search(text, max(0, position - REACH), position))


_DATE = re.compile(r"\(?(?:[0-3]?\d[./ -][01]?\d[./ -](?:19|20)\d\d|(?:19|20)\d\d[./-]\d\d)")


# ------------------------------------------------------------------------------ telephone numbers
# Countries whose national numbers begin with 0, and others by the first character of a number.
ZERO = "GB FR DE IT NL BE CH AT SE AU JP CN IN ID ZA".split()  # noqa: SIM905
OTHERS = {"(": ["BR"], "1": ["CN"], "8": ["RU"]}
FEWEST_NATIONAL = 9  # digits
_EXTENSION = r"(?:,? ?(?:x|ext\.?|extension|#) ?\d{1,6})?"
_CANDIDATE = re.compile(
    r"(?<![\w.,/+-])(?:\+\s?|(?<!\d[ :])(?!0[ .]|000|0?123456789|\d{5}-\d{4}\b))"
    r"(?:(?:\d{1,3}[ .-]?)?\(\d{1,5}\)|\d)(?:[ ./-]{0,2}\d){5,14}"
    + _EXTENSION
    + r"(?![\w-]|[.,/:]\d| ?[%€$£]| \d)",
    re.ASCII,
)
# The form of North America, also with an area code that is not in use.
_AMERICAN = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d\d\) ?|[2-9]\d\d(?:/|([ .-])(?=\d{3}\1)))[2-9]\d\d[ .-]\d{4}"
    + _EXTENSION
)
_PHONE_CUES = Cues(
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
# Words before a number of another kind, and a hexadecimal byte.
_NO_PHONE = re.compile(
    r"(?:\b(?:isbn(?:-1[03])?|issn|doi|pmid|arxiv|order|invoice|serial|id|part|sku|ref(?:erence)?|"
    r"case|ticket|zip|model|item|article|patent)\b(?:[\s.]{0,2}(?:no|nr|number|code)\b)?"
    r"[\s.:#]{0,3}|(?<!\w)(?:\d[a-f]|[a-f]\d)\s)\Z",
    re.IGNORECASE,
)


def phones(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the telephone numbers in `text[begin:end]`."""
    for match in _CANDIDATE.finditer(text, begin, end):
        start = match.start()
        if not (
            _DATE.match(text, start, match.end())
            or _NO_PHONE.search(text, max(0, start - 24), start)
        ) and (_PHONE_CUES.before(text, start) or _is_phone(match.group())):
            yield match.span()


def _is_phone(value: str) -> bool:
    """Whether a number has the form of a telephone number."""
    from phonenumbers import Leniency, PhoneNumberMatcher

    if _AMERICAN.fullmatch(value):
        return True
    if value[0] == "+":
        regions, leniency = ["US"], Leniency.POSSIBLE
    elif value.startswith("00"):
        regions, leniency = ["FR"], Leniency.VALID
    elif (value.isdigit() and value[0] != "0") or sum(map(str.isdigit, value)) < FEWEST_NATIONAL:
        return False
    else:
        regions = ZERO if value.lstrip("(")[0] == "0" else OTHERS.get(value[0], [])
        # An area code in parentheses makes up for an unusual grouping.
        leniency = Leniency.VALID if "(" in value else Leniency.STRICT_GROUPING
    return any(
        match.raw_string == value
        for region in regions
        for match in PhoneNumberMatcher(value, region, leniency=leniency)
    )


# ------------------------------------------------------------------------------ identity numbers
_BEGIN, _END = r"(?<![\w.,/+-])", r"(?![\w-]|[.,/]\d)"
_DAY, _MONTH = r"(?:0[1-9]|[12]\d|3[01])", r"(?:0[1-9]|1[0-2])"


def identity_numbers(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the identity numbers in `text[begin:end]`."""
    for candidate in _FORM.finditer(text, begin, end):
        for pattern, right in _CHECKS:
            match = pattern.match(text, candidate.start(), end)
            if match and (right is None or right(re.sub(r"[ ./-]", "", match.group()).upper())):
                yield match.span()
    for match in _ANY.finditer(text, begin, end):
        if not FEWEST <= sum(map(str.isdigit, match.group())) <= MOST:
            continue
        # Letters before it may be part of it, or the word for it.
        for start in (match.start(), match.start(1)):
            if _IDENTITY_CUES.before(text, start) and not _DATE.match(text, start, match.end()):
                yield start, match.end()
                break


# ------------------------------------------------------------------------------ check digits
def _weighted(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(d) * w for d, w in zip(digits, weights, strict=False))


def _brazil(number: str) -> bool:
    if len(set(number)) == 1:
        return False
    for check_index in (9, 10):
        rest = _weighted(number, tuple(range(check_index + 1, 1, -1))) * 10 % 11 % 10
        if rest != int(number[check_index]):
            return False
    return True


def _chile(number: str) -> bool:
    digits, check_digit = number[:-1], number[-1]
    rest = -_weighted(digits[::-1], (2, 3, 4, 5, 6, 7, 2, 3)) % 11
    return "0123456789K"[rest] == check_digit


def _china(number: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return "10X98765432"[_weighted(number[:17], weights) % 11] == number[17]


def _finland(number: str) -> bool:
    return "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(number[:6] + number[-4:-1]) % 31] == number[-1]


def _france(number: str) -> bool:
    # The two departments of Corsica have a letter.
    digits = number[:13].replace("2A", "19").replace("2B", "18")
    return digits.isdigit() and 97 - int(digits) % 97 == int(number[13:])


# Of digits and of letters, which are counted from A, at odd places.
_ODD = (
    *(1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18),
    *(20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
)


def _italy(number: str) -> bool:
    values = [int(c) if c.isdigit() else ord(c) - 65 for c in number[:15]]
    odd_sum, even_sum = sum(_ODD[value] for value in values[::2]), sum(values[1::2])
    return chr(65 + (odd_sum + even_sum) % 26) == number[15]


def _norway(number: str) -> bool:
    check_1 = -_weighted(number[:9], (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11
    check_2 = -_weighted(number[:10], (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return f"{check_1}{check_2}" == number[9:]


def _spain(number: str) -> bool:
    digits = str("XYZ".find(number[0])) + number[1:-1] if number[0] in "XYZ" else number[:-1]
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == number[-1]


def _sweden(number: str) -> bool:
    return _luhn([int(digit) for digit in number.replace("+", "")[-10:]])


def _switzerland(number: str) -> bool:
    return _weighted(number, (1, 3) * 6 + (1,)) % 10 == 0


_FORMS = (
    (r"\d{3}\.\d{3}\.\d{3}-\d\d", _brazil),
    (r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]", _chile),
    (rf"[1-9]\d{{5}}(?:19|20)\d\d{_MONTH}{_DAY}\d{{3}}[\dXx]", _china),
    (rf"{_DAY}{_MONTH}\d\d[-+A-FU-Y]\d{{3}}[\dA-FHJ-NPR-Y]", _finland),
    (rf"[12] ?\d\d ?{_MONTH} ?(?:\d\d|2[AB]) ?\d{{3}} ?\d{{3}} ?\d\d", _france),
    (r"[A-Z]{6}\d\d[ABCDEHLMPRST]\d\d[A-Z]\d{3}[A-Z]", _italy),
    (rf"[A-Z]{{4}}\d\d{_MONTH}{_DAY}[HMX][A-Z]{{5}}[A-Z\d]\d", None),
    (rf"[0-7]\d{_MONTH}\d\d ?\d{{5}}", _norway),
    (rf"\d\d{_MONTH}{_DAY}-[1-4]\d{{6}}", None),
    (r"(?:\d{8}|[XYZ]-?\d{7})-?[A-HJ-NP-TV-Z]", _spain),
    (rf"(?:19|20)?\d\d{_MONTH}{_DAY}[-+]\d{{4}}", _sweden),
    (r"756\.?\d{4}\.?\d{4}\.?\d\d", _switzerland),
    (r"(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?(?:\d\d ?){3}[A-D]", None),
)
_FORM = re.compile(_BEGIN + f"(?:{'|'.join(form for form, _ in _FORMS)})" + _END, re.ASCII)
_CHECKS = [(re.compile(form + _END, re.ASCII), right) for form, right in _FORMS]
_IDENTITY_CUES = Cues(
    (
        *("passport", "passeport", "reisepass", "pasaporte", "passaporto", "paszport"),
        *(r"(?:personal|national) (?:id|identity|identification)", "identity card", "id card"),
        *("personalausweis", "ausweis", "steuer-?id", "steueridentifikationsnummer", "idnr"),
        *("steuernummer", "sozialversicherungsnummer", "cpf", "curp", "pesel", "bsn"),
        *("burgerservicenummer", "codice fiscale", "num[ée]ro de s[ée]curit[ée] sociale"),
        *("personnummer", "cpr-nummer", "henkil[öo]tunnus", "f[øo]dselsnummer", "jmbg"),
        *("rodn[ée] [čc][íi]slo", "national insurance", "aadhaa?r", "pan card", "medicare"),
        *("social insurance", "kimlik", "driv(?:er['’]?s?|ing) licen[cs]e", "tax id"),
        *("taxpayer id", "f[üu]hrerschein(?:nummer)?", r"паспорт\w{0,2}", "снилс", "инн"),
    ),
    (*("身份证", "身份證", "護照", "护照", "マイナンバー", "個人番号", "주민등록번호", "여권"),),
    ("is", "серия"),
    (
        *("sin", "nhs", "dni", "nie", "nif", "nir", "rut", "cpr", "cnp", "egn", "oib", "tfn"),
        *("ktp", "pan"),
    ),
)
_ANY = re.compile(
    r"(?<![\w.,/+-])(?:[A-Z]{1,6}[ -]?)?(\d[A-Z\d]{0,17}(?:[ ./-]\d[A-Z\d]{0,9}){0,5})"
    r"(?![\w-]|[.,/]\d)",
    re.ASCII,
)
FEWEST, MOST = 5, 20  # digits


# ------------------------------------------------------------------------------ details
BETWEEN = "\x00"  # separates texts; no text contains it
# Of two details that overlap, the one whose type is first here is kept.
TYPES = ("email", "iban", "card", "ssn", "id", "ip", "phone", "profile")
# Most characters between two digits of one detail; characters around them that are searched.
GAP, AROUND = 8, 48


@dataclass(frozen=True)
class Detail:
    """A detail in the text number `text`, from character `begin` to before `end`."""

    text: int
    type: str
    begin: int
    end: int


def details_of(
    texts: Sequence[str], types: Sequence[str], allowed: Callable[[str], bool] = lambda value: False
) -> list[Detail]:
    """Return all details of these types, in the order of the texts, without overlaps.

    Args:
        allowed: whether a value is no personal detail, such as the address of a help desk.
    """
    joined = BETWEEN.join(texts)
    if not joined.isascii():
        joined = _foreign().sub(lambda sign: _plain_digits()[ord(sign[0])], joined)
    ends = np.cumsum([len(text) + 1 for text in texts])
    # One byte per character; those outside of Latin 1 become question marks.
    points = np.frombuffer(joined.encode("latin-1", "replace"), np.uint8)
    candidates: dict[str, list[tuple[int, int]]] = {
        "@": [(i, i + 1) for i in np.flatnonzero(points == ord("@")).tolist()],
        "digits": _clusters(
            np.flatnonzero((points >= ord("0")) & (points <= ord("9"))), len(joined)
        ),
        ":": _clusters(np.flatnonzero(points == ord(":")), len(joined), least=2),
        "://": [(m.start(), m.end()) for m in re.finditer("://", joined)],
        "at": list(_spelled_ats(joined)),
    }
    spans: list[tuple[int, int, int]] = []
    for rank, name in enumerate(TYPES):
        if name in types:
            for kind, finder in FINDERS[name]:
                for begin, end in candidates[kind]:
                    spans += ((b, e, rank) for b, e in finder(joined, begin, end))
    chosen = _apart(spans, allowed, joined)
    owners = np.searchsorted(ends, [begin for begin, _, _ in chosen], side="right")
    firsts = np.concatenate([[0], ends])
    return [
        Detail(int(n), TYPES[rank], begin - int(firsts[n]), end - int(firsts[n]))
        for n, (begin, end, rank) in zip(owners, chosen, strict=True)
    ]


@functools.cache
def _foreign() -> re.Pattern[str]:
    """Return a pattern of the characters that `_plain_digits` replaces."""
    return re.compile(f"[{''.join(map(chr, _plain_digits()))}]")


@functools.cache
def _plain_digits() -> dict[int, str]:
    """Return a translation table to ASCII for decimal digits and full-width signs."""
    digits = {
        n: str(unicodedata.decimal(chr(n))) for n in range(0x80, 0x10000) if chr(n).isdecimal()
    }
    return digits | {
        ord(wide): plain for wide, plain in zip("＋－．＠：／（）", "+-.@:/()", strict=True)
    }


def _clusters(positions: IntArray, size: int, least: int = 4) -> list[tuple[int, int]]:
    """Return (begin, end) of each span with at least `least` positions near to each other."""
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > GAP) + 1)
    return [
        (max(0, int(run[0]) - AROUND), min(size, int(run[-1]) + AROUND))
        for run in runs
        if len(run) >= least
    ]


def _apart(
    spans: list[tuple[int, int, int]], allowed: Callable[[str], bool], joined: str
) -> list[tuple[int, int, int]]:
    """Return the spans (begin, end, rank) that overlap no span of a smaller rank, or of the same
    rank that begins earlier; without allowed values."""
    chosen: list[tuple[int, int, int]] = []
    covered: set[int] = set()  # every character of those kept: details are few and short
    for begin, end, rank in sorted(set(spans), key=lambda f: (f[2], f[0], -f[1])):
        if covered.isdisjoint(range(begin, end)):
            covered.update(range(begin, end))
            chosen.append((begin, end, rank))
    return sorted(f for f in chosen if not allowed(joined[f[0] : f[1]]))


# ------------------------------------------------------------------------------ e-mail, profile
_LOCAL = re.compile(r"[\w.%+'&/=-]{1,64}\Z")
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w@])")
# `name [at] domain.org`, `name(at)domain(dot)org`, `name AT domain DOT org`
_AT = re.compile(r"[\[({<] ?(?:at|AT|At|@) ?[\])}>] ?")
_DOT_OF_AT = re.compile(r" (?:dot|DOT) ")
# `name at domain dot org` may be prose: the name is none of a word, or words before it say so.
_NAME_CUE = re.compile(
    r"\b(?:(?:e-?)?mail|contact|writ(?:e|ing) to|reach)(?: (?:me|us|at|to|via|by|is|address)){0,2}"
    r"\W{1,3}(?!(?:me|us|him|her|them|it)\Z)\w+\Z|\w[._-]\w+\Z|[^\W\d]\w*\d\w*\Z",
    re.IGNORECASE,
)
_DOT = r"(?:\.| ?[\[({<] ?(?:dot|\.) ?[\])}>] ?| dot )"
_SPELLED = re.compile(
    rf"(?:[^\W_](?:[\w-]{{0,61}}[^\W_])?{_DOT}){{1,8}}(?:(?<! )[^\W\d_]{{2,24}}|"
    r"com|org|net|edu|gov|info|io|dev|ai|app|co|uk|eu|de|fr|es|it|nl|pl|ch|at|br|in|jp|cn|ru|ca|au)"
    r"(?![\w@])",
    re.IGNORECASE,
)
_PROFILE = re.compile(
    r"://[\w.:-]{1,253}/(?:[\w.-]{1,64}/){0,3}?(?:~|@|(?:users?|profiles?|members?|in|u)/)"
    r"([\w.-]{2,64})",
    re.IGNORECASE,
)


def _spelled_ats(text: str) -> Iterator[tuple[int, int]]:
    for match in _AT.finditer(text):
        space = text[match.start() - 1 : match.start()] == " "
        yield match.start() - space, match.end()
    for match in _DOT_OF_AT.finditer(text):
        for word in (" at ", " AT "):
            if (begin := text.rfind(word, max(0, match.start() - 64), match.start())) >= 0:
                yield begin, begin + len(word)


def _emails(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    local = _LOCAL.search(text, max(0, begin - 64), begin)
    domain = (_DOMAIN if text[begin:end] == "@" else _SPELLED).match(text, end, end + 260)
    if local and domain:
        name = local.group().rpartition("=")[2].rpartition("/")[2].lstrip(".'&%+-")
        sign = text[begin:end].strip()
        if sign != "@" and re.match(r"\d+\b", domain.group()):
            return
        if sign == "at" and not _NAME_CUE.search(text, max(0, begin - 96), begin):
            return
        if name and name[-1] not in ".'&":
            yield begin - len(name), domain.end()


def _profiles(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    if match := _PROFILE.match(text, begin, begin + 600):
        yield match.span(1)


# ------------------------------------------------------------------------------ bank, card, number
# The length of an IBAN by country, from the registry of SWIFT.
_IBANS = """
    NO15 BE16 DK18 FI18 FO18 GL18 NL18 FK18 SD18 MK19 SI19 AT20 BA20 EE20 KZ20 LT20 LU20 XK20 MN20
    CH21 CR21 HR21 LI21 LV21 BG22 BH22 DE22 GB22 GE22 IE22 ME22 RS22 VA22 AE23 GI23 IL23 IQ23 TL23
    OM23 SO23 AD24 CZ24 ES24 MD24 PK24 RO24 SA24 SE24 SK24 TN24 VG24 LY25 PT25 ST25 IS26 TR26 BI27
    DJ27 FR27 GR27 IT27 MC27 MR27 SM27 AL28 AZ28 BY28 CY28 DO28 GT28 HU28 LB28 NI28 PL28 SV28 BR29
    EG29 PS29 QA29 UA29 JO30 KW30 MU30 YE30 MT31 SC31 LC32 RU33
"""
_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d\d(?:[ -]?[A-Z0-9]){11,29}", re.ASCII)
_CARD = re.compile(r"(?<![\d.,-])[2-6]\d{3}(?:[ -]?\d){9,15}(?![\d-]|[.,]\d)", re.ASCII)
_SSN = re.compile(
    r"(?<![\w-])(?!000|666|9)\d{3}([- ]?)(?!00)\d\d\1(?!0000)\d{4}(?![\w-]|[.,]\d)", re.ASCII
)
_SSN_CUE = re.compile(r"(?:\bssn\b|social security|soc\. sec\.)[^\d\x00]{0,24}\Z", re.IGNORECASE)


def _ibans(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text, begin, end):
        length = _LENGTHS.get(match.group()[:2])
        if length is None:
            continue
        signs = [i for i in range(*match.span()) if text[i].isalnum()][:length]
        value_end = signs[-1] + 1
        if len(signs) < length or text[value_end : value_end + 1].isalnum():
            continue
        value = "".join(text[i] for i in signs)
        if int("".join(str(int(c, 36)) for c in value[4:] + value[:4])) % 97 == 1:
            yield match.start(), value_end


def _cards(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _CARD.finditer(text, begin, end):
        digits = [int(c) for c in match.group() if c.isdigit()]
        if _issued(digits) and _luhn(digits):
            yield match.span()


def _issued(digits: list[int]) -> bool:
    """Whether an issuer uses numbers with this prefix and length."""
    first_digit, first_two, size = digits[0], digits[0] * 10 + digits[1], len(digits)
    if first_digit == 4:
        return size in (13, 16, 19)
    if 51 <= first_two <= 55 or 22 <= first_two <= 27:
        return size == 16
    if first_two in (34, 37):
        return size == 15
    if first_two in (30, 36, 38, 39):
        return size == 14
    return (first_two == 35 and size == 16) or (first_digit in (5, 6) and 16 <= size <= 19)


def _luhn(digits: list[int]) -> bool:
    doubled = [d * 2 - 9 * (d > 4) for d in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def _ssns(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _SSN.finditer(text, begin, end):
        cue = _SSN_CUE.search(text, max(0, match.start() - 48), match.start())
        if match.group(1) == "-" or cue:
            yield match.span()


# ------------------------------------------------------------------------------ addresses
_IP4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d|-(?:alpha|beta|dev|rc))", re.ASCII)
_IP6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:]|\.\w)", re.ASCII)
# Words before a number of a version or section, in the same sentence, and what joins it to a name.
_VERSION = re.compile(
    r"(?:\b(?:v|ver|versions?|releases?|released|builds?|firmware|rev|revisions?|sections?|sec|"
    r"chapters?|paragraphs?|clauses?|articles?|figures?|fig|tables?|appendix|see|upgrad\w+|"
    r"updat\w+|downgrad\w+|patch\w*|drivers?|bios|kernel|sdk|api|requires?|since|supports?)\b|§|"
    r"[\w.][/-]|[=~<>]=|\^|~)[^.!?\n\x00\d]{0,12}(?:[\d.]{5,15}[^.!?\n\x00\d]{1,6}){0,2}\Z",
    re.IGNORECASE,
)
# A heading's number, and a product's version: `Acme Tool 4.2.1.3`.
_HEADING = re.compile(r"(?:\A|[\n\x00])[ #*>]*\Z")
_PRODUCT = re.compile(
    r"(?:\A|[\n\x00(]|[a-z,.!?] )(?!(?:A|An|And|As|At|But|By|For|From|He|If|In|It|My|No|Of|On|Or|"
    r"Our|She|So|The|Then|They|To|Use|We|When|Which|With|Your|Add|Allow|Block|Ban|Set|Try|Visit)\b)"
    r"(?:[A-Z][\w+-]* )+\Z"
)
_TITLE = re.compile(r"\.?[ \t]+[^\W\d_a-z]")
_HOST = re.compile(
    r"(?:\b(?:ips?|ipv4|address(?:es)?|hosts?|dns|\w*server|resolver|gateway|router|proxy|ping|"
    r"traceroute|ssh|telnet|curl|client|node|peer)\b|//|@)\W{0,3}\w{0,4}\W?\Z",
    re.I,
)


def _ips(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _IP4.finditer(text, begin, end):
        if not _is_public(match.group()):
            continue
        before = (text, max(0, match.start() - 40), match.start())
        # Numbers of versions and sections have small parts.
        small = len(match.group()) < 9 and (
            (_HEADING.search(*before) and _TITLE.match(text, match.end()))
            or _PRODUCT.search(*before)
        )
        if _HOST.search(*before) or not (small or _VERSION.search(*before)):
            yield match.span()


def _ip6s(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _IP6.finditer(text, begin, end):
        value = match.group()
        groups = [group for group in value.split(":") if group]
        # Words and years with colons (std::move, 1959::) are none.
        if len(groups) >= 3 and any(c.isdigit() for c in value) and _is_public(value):
            yield match.span()


def _is_public(value: str) -> bool:
    """Whether `value` is a valid and globally routable unicast address."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return address.is_global and not address.is_multicast


# ------------------------------------------------------------------------------ tables
Finder = Callable[[str, int, int], Iterator[tuple[int, int]]]
FINDERS: dict[str, tuple[tuple[str, Finder], ...]] = {
    "email": (("@", _emails), ("at", _emails)),
    "iban": (("digits", _ibans),),
    "card": (("digits", _cards),),
    "ssn": (("digits", _ssns),),
    "id": (("digits", identity_numbers),),
    "ip": (("digits", _ips), (":", _ip6s)),
    "phone": (("digits", phones),),
    "profile": (("://", _profiles),),
}
