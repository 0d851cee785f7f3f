"""Convert texts with marked spans, as annotation programs export them, to words with tags:

    {"text": "John lives in Rome", "label": [[0, 4, "PER"], [14, 18, "LOC"]]}
    {"text": "…", "entities": [{"start": 0, "end": 4, "label": "PER"}]}

Offsets count characters of the original text, as in Python. The text of a span, if given, must
match the text at its offsets. White space at the borders of a span is ignored; a span that begins
or ends within a word is widened to the whole word, which is counted.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from maskwright.base.errors import DataError
from maskwright.text.tables.raw_text import CONTROL, CONTROLS, as_read
from maskwright.text.tables.spellings import plain
from maskwright.text.tables.tags import OUTSIDE

# Scripts without spaces between words (or, in Korean, before endings): Thai to Tibetan, Burmese,
# Hangul, Khmer, Chinese and Japanese.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f"
    "\ua980-\ua9df\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)
JOINERS = "\u200c\u200d\u00ad\u2060"
LONGEST = 40  # characters of a word; longer runs, such as hashes, are not words


def words_in(text: str) -> Iterator[tuple[int, int]]:
    """Return an iterator over (begin, end) of every word and punctuation sign."""
    return (match.span() for match in _word_pattern().finditer(text))


def whole_words(text: str, begin: int, end: int) -> tuple[int, int]:
    """Widen a span of `text` to whole words and return (begin, end); in scripts without spaces
    only to whole letters with their combining marks."""
    word_begin, word_end = begin, end
    while word_begin > 0 and _is_within_word(text, word_begin):
        word_begin -= 1
    while word_end < len(text) and _is_within_word(text, word_end):
        word_end += 1
    return (
        begin if begin - word_begin > LONGEST else word_begin,
        end if word_end - end > LONGEST else word_end,
    )


def _is_within_word(text: str, at: int) -> bool:
    """Whether the characters before and after the offset `at` belong to one word."""
    previous, next_character = text[at - 1], text[at]
    if _is_mark(next_character):
        return not previous.isspace()
    return _is_letter(previous) and _is_letter(next_character)


def _is_letter(sign: str) -> bool:
    is_word_character = sign.isalnum() or sign == "_" or sign in JOINERS or _is_mark(sign)
    return is_word_character and not UNSPACED.match(sign)


def _is_mark(sign: str) -> bool:
    return sign > "\u02ff" and unicodedata.category(sign)[0] == "M"


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of words and signs. A letter may consist of several characters (combining
    marks, joiners, soft hyphens), and so may a sign (flags, emoji with modifiers)."""
    characters = map(chr, range(0x300, 0x20000))
    marks = re.escape("".join(sign for sign in characters if unicodedata.category(sign)[0] == "M"))
    colours, flag = "\U0001f3fb-\U0001f3ff", "[\U0001f1e6-\U0001f1ff]{2}"
    sign = rf"[^\w\s{re.escape(CONTROLS)}](?:[{marks}{colours}]|\u200d[^\w\s])*"
    # Characters that are removed when a text is read are no signs, and do not split words.
    left_out = re.escape(CONTROLS)
    word = rf"\w(?:[\w{marks}\u200c\u200d\u00ad\u2060]|[{left_out}]+(?=\w))*"
    return re.compile(rf"{word}|{flag}|{sign}")


# (name in messages, function that returns the text in which the offset counts characters).
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


# (name in messages, function that returns the size of a character, given the next one).
UNITS: tuple[tuple[str, Callable[[str, str], int]], ...] = (
    ("UTF-16 units, as JavaScript and Java do", lambda one, _: 1 + (ord(one) > 0xFFFF)),
    ("bytes of UTF-8", lambda one, _: len(one.encode("utf-8", "surrogatepass"))),
    ("the text with LF for CRLF", lambda one, other: int((one, other) != ("\r", "\n"))),
    ("the text with CRLF for LF", lambda one, _: 1 + (one == "\n")),
    ("the text without control characters", lambda one, _: int(CONTROL.match(one) is None)),
)


def cause_of_place(text: str, span_text: str, begin: int) -> str | None:
    """Explain why `span_text` does not begin at the offset `begin` of `text`: the unit that the
    offset seems to count, or None if no other unit explains it."""
    if begin < 0 or not span_text:
        return None
    if _utf16(text, begin, len(span_text.encode("utf-16-le", "surrogatepass")) // 2) == span_text:
        return "it seems to be counted in UTF-16 units, as JavaScript and Java do: count characters"
    if _bytes(text, begin, len(span_text.encode("utf-8", "surrogatepass"))) == span_text:
        return "it seems to be counted in bytes of UTF-8: count characters"
    for counting, change in COUNTINGS:
        changed_text, changed_span = change(text), change(span_text)
        if (
            changed_text != text
            and changed_span
            and changed_text[begin : begin + len(changed_span)] == changed_span
        ):
            return f"it seems to be counted in {counting}: count characters of the text as given"
    if begin and text[begin - 1 : begin - 1 + len(span_text)] == span_text:
        return "it seems to be counted from 1: count from 0"
    return None


def cause_of_part(text: str, span_text: str, begin: int, end: int) -> str | None:
    """As `cause_of_place`, for a span with an end."""
    if span_text and text[begin : end + 1] == span_text:
        return "the end seems to be the last character: it is the one behind it here"
    return cause_of_place(text, span_text, begin)


def counting_that_fits(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> str:
    """Return the unit in which all `spans` (begin, end) of `text` begin and end where `words` do;
    "" if no unit other than characters fits."""
    begins, ends = ({word[side] for word in words} for side in (0, 1))
    for counting, size in UNITS:
        offsets = [0, *itertools.accumulate(map(size, text, text[1:] + " "))]
        if offsets[-1] == len(text):
            continue
        # Several characters have the same offset if some have size 0.
        first_index = {offset: number for number, offset in enumerate(offsets)}
        last_index = {offset: number for number, offset in reversed([*enumerate(offsets)])}
        if all(
            first_index.get(begin) in begins and last_index.get(end) in ends for begin, end in spans
        ):
            return counting
    blanks = len(text) - len(text.lstrip())
    if blanks and all(b + blanks in begins and e + blanks in ends for b, e in spans):
        return "the text without the blanks it begins with"
    return ""


def _utf16(text: str, begin: int, length: int) -> str:
    units = text.encode("utf-16-le", "surrogatepass")[2 * begin : 2 * (begin + length)]
    return units.decode("utf-16-le", "replace")


def _bytes(text: str, begin: int, length: int) -> str:
    return text.encode("utf-8", "surrogatepass")[begin : begin + length].decode("utf-8", "replace")


BEGINS = ("start", "begin", "startoffset")
ENDS = ("end", "stop", "endoffset")
LABEL_KEYS = (
    *("label", "labels", "entitygroup", "type", "entitytype", "entitylabel", "tag", "entity"),
)
# Keys of the text of a span; in Rasa, `value` may also hold a synonym.
TEXTS = (
    *("text", "word", "surface", "surfaceform", "mention", "string", "phrase", "quote"),
    *("coveredtext", "entitytext", "spantext", "exact", "entity"),
)
VALUES = ("value",)
DO = "correct the row, or take it out (--read on_bad=skip drops and counts it)"


class MarkedSpan(NamedTuple):
    """A marked span; `own` is its text, if given, and `loose` whether this may be a synonym. Spans
    without exactly one label have `labels` (possibly empty), others None."""

    begin: int
    end: int
    label: str
    own: str = ""
    loose: bool = False
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TaggedText:
    """The words of a text with their tags.

    Attributes:
        widened: number of spans that begin or end within a word.
        miscounted: the unit of offsets in which no span would, or "".
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    widened: int
    miscounted: str = ""


def are_marked_spans(value: Any) -> bool:
    """Whether a value is a non-empty list of marked spans."""
    return (
        type(value) is list and bool(value) and all(_span(element) is not None for element in value)
    )


def tag_words(text: str, value: Any, where: str) -> TaggedText:
    """Split `text` into words with B- and I- tags for the spans in `value`.

    Raises:
        DataError: not a list of spans; a span is outside the text, contains no word, or shares a
            word with another span.
    """
    spans = [_span(element) for element in value] if type(value) is list else [None]
    if None in spans:
        raise DataError(
            "no list of marked parts",
            where=where,
            found=repr(value)[:80],
            wanted='[[0, 4, "PER"]]: begin, end and label of each',
            do=DO,
        )
    word_spans = list(words_in(text))
    tags, widened = [OUTSIDE] * len(word_spans), 0
    for span in sorted(span for span in spans if span is not None):
        begin, end, label = span[:3]
        shown_span = f"{text[max(0, begin) : max(0, end)]!r} at {begin} to {end}, {label}"
        if span.labels is not None:
            raise DataError(
                "a marked part with several labels"
                if span.labels
                else "a marked part without a label",
                where=where,
                found=f"{shown_span}{', '.join(span.labels) or 'none'}",
                wanted="one label for each part",
                do="keep one of them, or take the row out (--read on_bad=skip drops and counts it)",
            )
        if not 0 <= begin < end <= len(text):
            raise DataError(
                "a marked part that is not in the text",
                where=where,
                found=shown_span,
                wanted=f"0 <= begin < end <= {len(text)}, in characters",
                do=_advice(text, span),
            )
        if _text_differs(text, span):
            raise DataError(
                "a marked part has another text than the one at its place",
                where=where,
                found=shown_span,
                wanted=repr(span.own[:80]),
                do=_advice(text, span),
            )
        word_indices = [
            n
            for n, (word_begin, word_end) in enumerate(word_spans)
            if word_begin < end and begin < word_end
        ]
        if not word_indices:
            raise DataError(
                "a marked part without a word",
                where=where,
                found=shown_span,
                wanted="a word or a sign",
                do=DO,
            )
        if any(tags[n] != OUTSIDE for n in word_indices):
            raise DataError(
                "two marked parts share a word",
                where=where,
                found=shown_span,
                wanted="one label for each word: of parts within others keep one",
                do=DO,
            )
        first_word, last_word = word_spans[word_indices[0]], word_spans[word_indices[-1]]
        widened += first_word[0] < begin or end < last_word[1]
        tags[word_indices[0]] = f"B-{label}"
        for n in word_indices[1:]:
            tags[n] = f"I-{label}"
    offsets = [(span.begin, span.end) for span in spans if span is not None]
    cause = counting_that_fits(text, offsets, word_spans) if widened else ""
    return TaggedText(
        tuple(text[word_begin:word_end] for word_begin, word_end in word_spans),
        tuple(tags),
        widened,
        cause,
    )


def _text_differs(text: str, span: MarkedSpan) -> bool:
    """Whether the text of a span differs from that at its offsets, but for space, case, accents."""
    own_text = _normalised(span.own)
    if not own_text or _normalised(text[span.begin : span.end]) == own_text:
        return False
    return not span.loose or own_text in _normalised(text)


def _normalised(text: str) -> str:
    plainly = unicodedata.normalize("NFKD", as_read(text)).casefold().replace("##", "")
    return "".join(c for c in plainly if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _advice(text: str, span: MarkedSpan) -> str:
    """Return the advice for a span with wrong offsets."""
    own_text = span.own.strip()
    if own_text and (cause := cause_of_part(text, own_text, span.begin, span.end)):
        return f"{cause}; {DO}"
    if own_text and text.count(own_text) == 1:
        distance = span.begin - text.index(own_text)
        change = "taken out before it" if distance > 0 else "put before it"
        return (
            f"{own_text[:40]!r} stands at {text.index(own_text)}, {abs(distance)} characters "
            f"{'before' if distance > 0 else 'behind'} that: were blanks or other signs {change}? "
            f"{DO}"
        )
    unit_count = len(text.encode("utf-16-le", "surrogatepass")) // 2
    byte_count = len(text.encode("utf-8", "surrogatepass"))
    if len(text) < span.end <= unit_count:
        return f"are places counted in UTF-16 units? Count characters; {DO}"
    if len(text) < span.end <= byte_count:
        return f"are places counted in bytes? Count characters; {DO}"
    return DO


def _span(value: Any) -> MarkedSpan | None:
    """Parse a marked span from a list or mapping; None for other values."""
    own_text, is_loose = "", False
    if type(value) is dict:
        value, own_text, is_loose = _parse_mapping(value)
    if type(value) is not list or len(value) != 3:
        return None
    begin, end, label = value
    if type(begin) is not int or type(end) is not int:
        return None
    if type(label) is list and len(label) != 1 and all(type(text) is str for text in label):
        return MarkedSpan(begin, end, "", own_text, is_loose, tuple(label))
    if type(label) is not str or not label.strip():
        return None
    return MarkedSpan(begin, end, label.strip(), own_text, is_loose)


def _parse_mapping(value: Mapping[str, Any]) -> tuple[list[Any] | None, str, bool]:
    """Return ([begin, end, label] or None, the text of the span, whether it may be a synonym)."""
    value_by_key = {plain(name): field for name, field in value.items()}
    values, names_used = [], set()
    spellings: tuple[tuple[str, ...], ...] = (BEGINS, ENDS, LABEL_KEYS)
    for names in spellings:
        name = next((name for name in names if name in value_by_key), None)
        if name is None:
            return None, "", False
        names_used.add(name)
        field = value_by_key[name]
        values.append(field[0] if type(field) is list and len(field) == 1 else field)
    for name in (*TEXTS, *VALUES):
        if name not in names_used and type(value_by_key.get(name)) is str:
            return values, value_by_key[name], name in VALUES
    return values, "", False
