"""Texts in which parts are marked, as programs for annotation write them, and what tags their words
have by that:

    {"text": "John lives in Rome", "label": [[0, 4, "PER"], [14, 18, "LOC"]]}
    {"text": "…", "entities": [{"start": 0, "end": 4, "label": "PER"}]}

Places count characters as Python counts them. Blanks at the borders of a part are not of it; a part
that begins or ends within a word takes the whole of it, which is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.errors import DataError
from maskwright.tasks.spellings import plain
from maskwright.tasks.tags import OUTSIDE
from maskwright.tasks.words import words_in

BEGINS = ("start", "begin", "startoffset")
ENDS = ("end", "stop", "endoffset")
KINDS = ("label", "labels", "entitygroup", "entity", "type", "tag")
DO = "correct the row, or take it out (--read on_bad=skip drops and counts it)"

Part = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Marked:
    """The words of a text with a tag each.

    Attributes:
        widened: how many of the marked parts end or begin within a word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    widened: int


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
        raise DataError("no list of marked parts", where=where, found=repr(value)[:80],
                        wanted='[[0, 4, "PER"]]: begin, end and kind of each', do=DO)  # fmt: skip
    places = list(words_in(text))
    tags, widened = [OUTSIDE] * len(places), 0
    for begin, end, kind in sorted(part for part in parts if part is not None):
        shown = f"{text[max(0, begin) : max(0, end)]!r} at {begin} to {end}, {kind}"
        if not 0 <= begin < end <= len(text):
            raise DataError("a marked part that is not in the text", where=where, found=shown,
                            wanted=f"0 <= begin < end <= {len(text)}, in characters",
                            do=DO)  # fmt: skip
        inside = [n for n, (one, other) in enumerate(places) if one < end and begin < other]
        if not inside:
            raise DataError("a marked part without a word", where=where, found=shown,
                            wanted="a word or a sign", do=DO)  # fmt: skip
        if any(tags[n] != OUTSIDE for n in inside):
            raise DataError("two marked parts share a word", where=where, found=shown,
                            wanted="one kind for each word: of parts within others keep one",
                            do=DO)  # fmt: skip
        first, last = places[inside[0]], places[inside[-1]]
        widened += first[0] < begin or end < last[1]
        tags[inside[0]] = f"B-{kind}"
        for n in inside[1:]:
            tags[n] = f"I-{kind}"
    return Marked(tuple(text[one:other] for one, other in places), tuple(tags), widened)


def _part(value: Any) -> Part | None:
    """(begin, end, kind); None of what is none."""
    if type(value) is dict:
        value = _of_mapping(value)
    if type(value) is not list or len(value) != 3:
        return None
    begin, end, kind = value
    if type(begin) is not int or type(end) is not int or type(kind) is not str or not kind.strip():
        return None
    return begin, end, kind.strip()


def _of_mapping(value: Mapping[str, Any]) -> list[Any] | None:
    named = {plain(name): inner for name, inner in value.items()}
    found = []
    for names in (BEGINS, ENDS, KINDS):
        name = next((name for name in names if name in named), None)
        if name is None:
            return None
        inner = named[name]
        found.append(inner[0] if type(inner) is list and len(inner) == 1 else inner)
    return found
