"""Texts in which parts are marked, as programs for annotation write them, and what tags their words
have by that:

    {"text": "John lives in Rome", "label": [[0, 4, "PER"], [14, 18, "LOC"]]}
    {"text": "…", "entities": [{"start": 0, "end": 4, "label": "PER"}]}

Places count characters of the text as given, as Python counts them. A part that brings its own text
must have it at its place. Blanks at the borders of a part are not of it; a part that begins or ends
within a word takes the whole of it, which is counted.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from maskwright.errors import DataError
from maskwright.labelled.columns.spellings import plain
from maskwright.labelled.formats.as_given import as_read
from maskwright.labelled.formats.miscounted import cause_of_part, counting_that_fits
from maskwright.labelled.formats.tags import OUTSIDE
from maskwright.labelled.formats.words import words_in

BEGINS = ("start", "begin", "startoffset")
ENDS = ("end", "stop", "endoffset")
LABEL_KEYS = (
    *("label", "labels", "entitygroup", "type", "entitytype", "entitylabel", "tag", "entity"),
)
# What a part's own text is called; a value may also be another name of the thing (Rasa).
TEXTS = (
    *("text", "word", "surface", "surfaceform", "mention", "string", "phrase", "quote"),
    *("coveredtext", "entitytext", "spantext", "exact", "entity"),
)
VALUES = ("value",)
DO = "correct the row, or take it out (--read on_bad=skip drops and counts it)"


class Part(NamedTuple):
    """A marked part; `own` is the text that it brings, where it does, and `loose` whether that may
    be another name of the thing. One without exactly one label has them, or none, in `labels`."""

    begin: int
    end: int
    label: str
    own: str = ""
    loose: bool = False
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """The words of a text with a tag each.

    Attributes:
        widened: how many of the marked parts end or begin within a word.
        miscounted: in what the places seem to be counted, if none would in that counting.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    widened: int
    miscounted: str = ""


def are_parts(value: Any) -> bool:
    """Whether a value is a list of marked parts, and not an empty one."""
    return type(value) is list and bool(value) and all(_part(each) is not None for each in value)


def marked(text: str, value: Any, where: str) -> Marked:
    """The words of `text` with B- and I- tags for the parts in `value`.

    Raises:
        DataError: what is no list of parts; a part that is not in the text, has no word, or shares
            a word with another.
    """
    parts = [_part(each) for each in value] if type(value) is list else [None]
    if None in parts:
        raise DataError(
            "no list of marked parts",
            where=where,
            found=repr(value)[:80],
            wanted='[[0, 4, "PER"]]: begin, end and label of each',
            do=DO,
        )
    places = list(words_in(text))
    tags, widened = [OUTSIDE] * len(places), 0
    for part in sorted(part for part in parts if part is not None):
        begin, end, label = part[:3]
        shown = f"{text[max(0, begin) : max(0, end)]!r} at {begin} to {end}, {label}"
        if part.labels is not None:
            raise DataError(
                "a marked part with several labels"
                if part.labels
                else "a marked part without a label",
                where=where,
                found=f"{shown}{', '.join(part.labels) or 'none'}",
                wanted="one label for each part",
                do="keep one of them, or take the row out (--read on_bad=skip drops and counts it)",
            )
        if not 0 <= begin < end <= len(text):
            raise DataError(
                "a marked part that is not in the text",
                where=where,
                found=shown,
                wanted=f"0 <= begin < end <= {len(text)}, in characters",
                do=_advice(text, part),
            )
        if _disagrees(text, part):
            raise DataError(
                "a marked part has another text than the one at its place",
                where=where,
                found=shown,
                wanted=repr(part.own[:80]),
                do=_advice(text, part),
            )
        inside = [n for n, (one, other) in enumerate(places) if one < end and begin < other]
        if not inside:
            raise DataError(
                "a marked part without a word",
                where=where,
                found=shown,
                wanted="a word or a sign",
                do=DO,
            )
        if any(tags[n] != OUTSIDE for n in inside):
            raise DataError(
                "two marked parts share a word",
                where=where,
                found=shown,
                wanted="one label for each word: of parts within others keep one",
                do=DO,
            )
        first, last = places[inside[0]], places[inside[-1]]
        widened += first[0] < begin or end < last[1]
        tags[inside[0]] = f"B-{label}"
        for n in inside[1:]:
            tags[n] = f"I-{label}"
    marks = [(part.begin, part.end) for part in parts if part is not None]
    cause = counting_that_fits(text, marks, places) if widened else ""
    return Marked(tuple(text[one:other] for one, other in places), tuple(tags), widened, cause)


def _disagrees(text: str, part: Part) -> bool:
    """Whether a part's own text is not the one at its place, blanks, case and accents aside, which
    programs change."""
    wanted = _folded(part.own)
    if not wanted or _folded(text[part.begin : part.end]) == wanted:
        return False
    return not part.loose or wanted in _folded(text)


def _folded(text: str) -> str:
    plainly = unicodedata.normalize("NFKD", as_read(text)).casefold().replace("##", "")
    return "".join(c for c in plainly if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _advice(text: str, part: Part) -> str:
    own = part.own.strip()
    if own and (cause := cause_of_part(text, own, part.begin, part.end)):
        return f"{cause}; {DO}"
    if own and text.count(own) == 1:
        apart = part.begin - text.index(own)
        signs = "taken out before it" if apart > 0 else "put before it"
        return (
            f"{own[:40]!r} stands at {text.index(own)}, {abs(apart)} characters "
            f"{'before' if apart > 0 else 'behind'} that: were blanks or other signs {signs}? "
            f"{DO}"
        )
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    size = len(text.encode("utf-8", "surrogatepass"))
    if len(text) < part.end <= units:
        return f"are places counted in UTF-16 units? Count characters; {DO}"
    if len(text) < part.end <= size:
        return f"are places counted in bytes? Count characters; {DO}"
    return DO


def _part(value: Any) -> Part | None:
    """None of what is no part."""
    own, loose = "", False
    if type(value) is dict:
        value, own, loose = _of_mapping(value)
    if type(value) is not list or len(value) != 3:
        return None
    begin, end, label = value
    if type(begin) is not int or type(end) is not int:
        return None
    if type(label) is list and len(label) != 1 and all(type(each) is str for each in label):
        return Part(begin, end, "", own, loose, tuple(label))
    if type(label) is not str or not label.strip():
        return None
    return Part(begin, end, label.strip(), own, loose)


def _of_mapping(value: Mapping[str, Any]) -> tuple[list[Any] | None, str, bool]:
    """(begin, end and label; the part's own text; whether that may be another name)."""
    named = {plain(name): inner for name, inner in value.items()}
    values, taken = [], set()
    spellings: tuple[tuple[str, ...], ...] = (BEGINS, ENDS, LABEL_KEYS)
    for names in spellings:
        name = next((name for name in names if name in named), None)
        if name is None:
            return None, "", False
        taken.add(name)
        inner = named[name]
        values.append(inner[0] if type(inner) is list and len(inner) == 1 else inner)
    for name in (*TEXTS, *VALUES):
        if name not in taken and type(named.get(name)) is str:
            return values, named[name], name in VALUES
    return values, "", False
