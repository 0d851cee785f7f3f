"""Texts of tables: cleaned, and with marked spans as words with tags.

Offsets of spans and answers, including those predicted by a model, count the characters of the
original text, whatever is removed from it.

Texts with marked spans, as annotation programs export them, become words with tags:

    {"text": "John lives in Rome", "label": [[0, 4, "PER"], [14, 18, "LOC"]]}
    {"text": "…", "entities": [{"start": 0, "end": 4, "label": "PER"}]}

Offsets count characters of the original text, as in Python. The text of a span, if given, must
match the text at its offsets. White space at the borders of a span is ignored; a span that begins
or ends within a word is widened to the whole word, which is counted.
"""

from __future__ import annotations

import copy
import itertools
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.text.corpus.lines import STRIPPED, strip_controls
from maskwright.text.corpus.reading import Ledger
from maskwright.text.tables.rows import FIX_ROW, plain
from maskwright.text.tables.tags import OUTSIDE
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ cleaning
CONTROLS = "".join(map(chr, STRIPPED))
CONTROL = re.compile(f"[{re.escape(CONTROLS)}]")
LEFT_OUT = re.compile(f"[{re.escape(CONTROLS)}]|\r(?=\n)")


def as_read(text: str) -> str:
    """Return the text without the characters that are removed before a model reads it."""
    return LEFT_OUT.sub("", text) if LEFT_OUT.search(text) else text


def places_read(text: str) -> NDArray[np.int64]:
    """Return (len(as_read(text)) + 1,) offsets in `text` of each character of `as_read(text)` and
    of its end."""
    is_kept = np.ones(len(text) + 1, bool)
    is_kept[[match.start() for match in LEFT_OUT.finditer(text)]] = False
    return np.flatnonzero(is_kept)


def raw_slice(raw_text: str, text: str, start: int) -> slice | None:
    """Return the slice of `raw_text` that contains `text` after cleaning, at `start` as an offset
    in `raw_text`, else in the cleaned text. None if at neither, or if cleaning changes nothing."""
    clean_text, clean_raw_text = as_read(text), as_read(raw_text)
    if len(clean_raw_text) == len(raw_text) or not clean_text or start < 0:
        return None
    raw_offsets = places_read(raw_text)
    for begin in (int(np.searchsorted(raw_offsets, start)), start):
        if clean_raw_text[begin : begin + len(clean_text)] == clean_text:
            return slice(int(raw_offsets[begin]), int(raw_offsets[begin + len(clean_text) - 1]) + 1)
    return None


def encode_raw(tokenizer: Tokenizer, texts: Iterable[str]) -> list[tuple[Any, NDArray[np.integer]]]:
    """Tokenize the cleaned texts; return for each its token ids and (T, 2) offsets (begin, end) in
    the original text."""
    raw_texts = list(texts)
    encoded = tokenizer.encode_batch(map(as_read, raw_texts), offsets=True)
    for number, text in enumerate(raw_texts):
        if LEFT_OUT.search(text):
            ids, spans = encoded[number]
            raw_offsets = places_read(text)
            begin = raw_offsets[spans[:, 0]]
            # The end follows the last character read, not precedes the next one.
            end = np.where(
                spans[:, 1] > spans[:, 0], raw_offsets[np.maximum(spans[:, 1], 1) - 1] + 1, begin
            )
            encoded[number] = ids, np.stack([begin, end], axis=1)
    return encoded


def clean_row(
    values: dict[str, Any], ledger: Ledger, *, line_ends: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Clean the texts in a row; return (the cleaned row, the original values of changed columns).

    Args:
        line_ends: for tables: also replace CRLF by LF, and remove a byte order mark at the
            beginning of the first column.
    """
    texts = [value for value in values.values() if type(value) is str]
    if len(texts) == len(values):  # most rows of tables: nothing to do
        all_text = "".join([*values, *texts])
        if not LEFT_OUT.search(all_text) and "\ufeff" not in all_text:
            return values, {}
    cleaned = _clean_value(values, ledger, line_ends)
    first_column = next(iter(cleaned), "")
    if (
        line_ends
        and type(cleaned.get(first_column)) is str
        and cleaned[first_column].startswith("\ufeff")
    ):
        cleaned = {**cleaned, first_column: cleaned[first_column].removeprefix("\ufeff")}
        ledger.counts.byte_order_marks += 1
    if cleaned is values or len(cleaned) != len(values):
        return cleaned, {}
    original_values = {
        name: old
        for (name, new), old in zip(cleaned.items(), values.values(), strict=True)
        if new is not old
    }
    return cleaned, original_values


def _clean_value(value: Any, ledger: Ledger, line_ends: bool) -> Any:
    """Clean each text in a value; return the same object if nothing changes."""
    if type(value) is str:
        return text_as_read(value, ledger, line_ends)
    if isinstance(value, list):
        cleaned = [_clean_value(element, ledger, line_ends) for element in value]
        if all(map(operator.is_, cleaned, value)):
            return value
        cleaned_list = copy.copy(value)
        cleaned_list[:] = cleaned
        return cleaned_list
    if isinstance(value, dict):
        names = [text_as_read(name, ledger, line_ends) for name in value]
        cleaned = [_clean_value(element, ledger, line_ends) for element in value.values()]
        if all(map(operator.is_, names, value)) and all(map(operator.is_, cleaned, value.values())):
            return value
        row = copy.copy(value)
        row.clear()
        row.update(zip(names, cleaned, strict=True))
        return row
    return value


def text_as_read(text: str, ledger: Ledger, line_ends: bool) -> str:
    """Remove and count control characters; with `line_ends`, also replace CRLF by LF."""
    if CONTROL.search(text):
        text = strip_controls(text, ledger.counts)
    return text.replace("\r\n", "\n") if line_ends and "\r\n" in text else text


# ------------------------------------------------------------------------------ marked spans
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


# A unit of offsets, as in "counted in …" -> the size of each character of a text in it.
UNITS: dict[str, Callable[[str], list[int]]] = {
    "UTF-16 units, as JavaScript and Java do": lambda text: [1 + (c > "\uffff") for c in text],
    "bytes of UTF-8": lambda text: [len(c.encode("utf-8", "surrogatepass")) for c in text],
    "the text with LF for CRLF": lambda text: [int(pair != "\r\n") for pair in _pairs(text)],
    "the text with CRLF for LF": lambda text: [1 + (c == "\n") for c in text],
    "the text without control characters": lambda text: [
        int(CONTROL.match(c) is None) for c in text
    ],
    "the text in Unicode form NFC": lambda text: [
        int(len(unicodedata.normalize("NFC", pair)) == len(pair)) for pair in _pairs(text)
    ],
    "the text in Unicode form NFD": lambda text: [
        len(unicodedata.normalize("NFD", c)) for c in text
    ],
    "the text without the blanks it begins with": lambda text: [
        int(bool(text[: n + 1].strip())) for n in range(len(text))
    ],
    "the text with single blanks": lambda text: [
        int(not pair.isspace() or len(pair) < 2) for pair in _pairs(text)
    ],
}
# Offsets of the first character other than 0: of a text with a byte order mark, too.
FROM_ONE = "characters from 1"


def _pairs(text: str) -> list[str]:
    """Return each character with the next one; the last alone."""
    return [text[n : n + 2] for n in range(len(text))]


def _indices(text: str) -> Iterator[tuple[str, dict[int, int], dict[int, int]]]:
    """Yield (unit, offset -> last index, offset -> first index) for each unit in which offsets in
    `text` differ from those in characters; characters of size 0 share an offset."""
    for unit, sizes in UNITS.items():
        offsets = [0, *itertools.accumulate(sizes(text))]
        if offsets[-1] != len(text):
            by_offset = list(zip(offsets, range(len(offsets)), strict=True))
            yield unit, dict(by_offset), dict(reversed(by_offset))
    from_one = {index + 1: index for index in range(len(text) + 1)}
    yield FROM_ONE, from_one, from_one


def cause_of_place(text: str, span_text: str, begin: int) -> str | None:
    """Explain why `span_text` does not begin at the offset `begin` of `text`: the unit that the
    offset seems to count, or None if no other unit explains it."""
    for unit, index_of, _ in _indices(text) if span_text else ():
        if (index := index_of.get(begin)) is not None and text.startswith(span_text, index):
            return f"it seems to be counted in {unit}: count characters of the text as given from 0"
    return None


def counting_that_fits(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> str:
    """Return the unit in which all `spans` (begin, end) of `text` begin and end where `words` do;
    "" if no unit other than characters fits."""
    begins, ends = ({word[side] for word in words} for side in (0, 1))
    for unit, last_index, first_index in _indices(text):
        if all(last_index.get(b) in begins and first_index.get(e) in ends for b, e in spans):
            return unit
    return ""


BEGINS = ("start", "begin", "startoffset")
ENDS = ("end", "stop", "endoffset")
LABEL_KEYS = (
    *("label", "labels", "entitygroup", "type", "entitytype", "entitylabel", "tag", "entity"),
)
TEXTS = (
    *("text", "word", "surface", "surfaceform", "mention", "string", "phrase", "quote"),
    *("coveredtext", "entitytext", "spantext", "exact", "entity", "value"),
)


class MarkedSpan(NamedTuple):
    """A marked span; `own_text` is its text, if the row has it. Spans without exactly one label
    have `labels` (possibly empty), others None."""

    begin: int
    end: int
    label: str
    own_text: str = ""
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
    parsed = [_span(element) for element in value] if type(value) is list else [None]
    spans = [span for span in parsed if span is not None]
    if len(spans) < len(parsed):
        expected = '[[0, 4, "PER"]]: begin, end and label of each'
        shown = repr(value)[:80]
        raise DataError(
            "no list of marked parts", where=where, found=shown, wanted=expected, do=FIX_ROW
        )
    word_spans = list(words_in(text))
    tags, widened = [OUTSIDE] * len(word_spans), 0
    for span in sorted(spans):
        begin, end, label = span[:3]
        indices = [n for n, word in enumerate(word_spans) if word[0] < end and begin < word[1]]
        problem, expected, do = "", "", FIX_ROW
        if span.labels is not None:
            labels = "with several labels" if span.labels else "without a label"
            problem = f"a marked part {labels}"
            expected = "one label for each part"
        elif not 0 <= begin < end <= len(text):
            problem, do = "a marked part that is not in the text", _advice(text, span)
            expected = f"0 <= begin < end <= {len(text)}, in characters"
        elif _text_differs(text, span):
            problem = "a marked part has another text than the one at its place"
            expected, do = repr(span.own_text[:80]), _advice(text, span)
        elif not indices:
            problem, expected = "a marked part without a word", "a word or a sign"
        elif any(tags[n] != OUTSIDE for n in indices):
            problem = "two marked parts share a word"
            expected = "one label for each word: of parts within others keep one"
        if problem:
            shown = f"{text[max(0, begin) : max(0, end)]!r} at {begin} to {end}, "
            shown += label or ", ".join(span.labels or ()) or "none"
            raise DataError(problem, where=where, found=shown, wanted=expected, do=do)
        widened += word_spans[indices[0]][0] < begin or end < word_spans[indices[-1]][1]
        for n in indices:
            tags[n] = f"{'B' if n == indices[0] else 'I'}-{label}"
    offsets = [(span.begin, span.end) for span in spans]
    return TaggedText(
        tuple(text[word_begin:word_end] for word_begin, word_end in word_spans),
        tuple(tags),
        widened,
        counting_that_fits(text, offsets, word_spans) if widened else "",
    )


def _text_differs(text: str, span: MarkedSpan) -> bool:
    """Whether the text of a span differs from that at its offsets, but for space, case, accents."""
    own_text = _normalised(span.own_text)
    return bool(own_text) and _normalised(text[span.begin : span.end]) != own_text


def _normalised(text: str) -> str:
    plainly = unicodedata.normalize("NFKD", as_read(text)).casefold().replace("##", "")
    return "".join(c for c in plainly if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _advice(text: str, span: MarkedSpan) -> str:
    """Return the advice for a span with wrong offsets."""
    own_text = span.own_text.strip()
    if own_text and text[span.begin : span.end + 1] == own_text:
        return f"the end seems to be the last character: it is the one behind it here; {FIX_ROW}"
    if cause := cause_of_place(text, own_text, span.begin):
        return f"{cause}; {FIX_ROW}"
    if own_text and text.count(own_text) == 1:
        return f"{own_text[:40]!r} stands at {text.index(own_text)}; {FIX_ROW}"
    for unit, sizes in UNITS.items():
        if not own_text and len(text) < span.end <= sum(sizes(text)):
            return f"are places counted in {unit}? Count characters; {FIX_ROW}"
    return FIX_ROW


def _span(value: Any) -> MarkedSpan | None:
    """Parse a marked span from a list or mapping; None for other values."""
    own_text = ""
    if type(value) is dict:
        value, own_text = _parse_mapping(value)
    if type(value) is not list or len(value) != 3:
        return None
    begin, end, label = value
    if type(begin) is not int or type(end) is not int:
        return None
    if type(label) is list and len(label) != 1 and all(type(text) is str for text in label):
        return MarkedSpan(begin, end, "", own_text, tuple(label))
    if type(label) is not str or not label.strip():
        return None
    return MarkedSpan(begin, end, label.strip(), own_text)


def _parse_mapping(value: Mapping[str, Any]) -> tuple[list[Any] | None, str]:
    """Return ([begin, end, label] or None, the text of the span)."""
    fields = {plain(name): field for name, field in value.items()}
    span = []
    for names in (BEGINS, ENDS, LABEL_KEYS):
        key = next((name for name in names if name in fields), None)
        if key is None:
            return None, ""
        field = fields.pop(key)  # a label is not the text, too
        # Some programs write a list of labels, also of a single one.
        span.append(field[0] if type(field) is list and len(field) == 1 else field)
    texts = (fields.get(name) for name in TEXTS)
    return span, next((text for text in texts if type(text) is str), "")
