"""Find telephone numbers and identity numbers of persons in a text.

A telephone number is one of:

    international  + or 00 and a number that is possible in the country of its code
    national       of North America (3-3-4), or valid in one of `ZERO` (those that begin with 0) or
                   `OTHERS` and grouped as is usual there, by the package phonenumbers
    any            6 digits or more behind a word for telephone, in some thirty languages

An identity number has one of:

    form and check digits     Brazil (CPF), Chile (RUT), China, Finland, France (NIR), Italy (codice
                              fiscale), Norway, Spain (DNI, NIE), Sweden, Switzerland (AHV)
    form alone, a strict one  Mexico (CURP), South Korea, United Kingdom (National Insurance)
    a word for it before      any of 5 digits or more, with letters (passport, Steuer-ID, PESEL,
                              BSN, Aadhaar, licence, …)

Dates, and numbers behind a word such as ISBN, are no telephone numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

REACH = 48  # characters before a number
NUMBER = r"(?:no|nr|num|number|nummer|num[eé]ro|n[º°]|номер|号码?|號碼?|番号|번호)"
BETWEEN = " \t\n\r.:：#№-"
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
        between = "[" + re.escape(BETWEEN) + "]{0,3}"
        link = rf"(?:(?:{'|'.join([*links, NUMBER])}){between}){{0,2}}"
        words = rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)"
        apart = f"|{'|'.join(letters)}" if letters else ""
        self._whole = re.compile(rf"(?:{words}{apart}){between}{link}\Z", re.IGNORECASE)

    def before(self, text: str, position: int) -> bool:
        """Whether one of the phrases precedes `position`."""
        piece = text[max(0, position - REACH) : position].rstrip(BETWEEN)
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


_ODD = dict(zip("0123456789", (1, 0, 5, 7, 9, 13, 15, 17, 19, 21), strict=True)) | dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (
            *(1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18),
            *(20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        ),
        strict=True,
    )
)


def _italy(number: str) -> bool:
    odd_sum = sum(_ODD[c] for c in number[:15:2])
    even_sum = sum(int(c) if c.isdigit() else ord(c) - 65 for c in number[1:15:2])
    return chr(65 + (odd_sum + even_sum) % 26) == number[15]


def _norway(number: str) -> bool:
    check_1 = -_weighted(number[:9], (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11
    check_2 = -_weighted(number[:10], (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return f"{check_1}{check_2}" == number[9:]


def _spain(number: str) -> bool:
    digits = str("XYZ".find(number[0])) + number[1:-1] if number[0] in "XYZ" else number[:-1]
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == number[-1]


def _sweden(number: str) -> bool:
    digits = number.replace("+", "")[-10:]
    doubled = [int(d) * (2 - n % 2) for n, d in enumerate(digits)]
    return sum(d // 10 + d % 10 for d in doubled) % 10 == 0


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
