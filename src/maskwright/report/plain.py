"""Values as plain texts for a page: a fact, and what a model added to its prompt."""

from __future__ import annotations

import contextlib
import difflib
import re
from typing import Any

from maskwright.findings import Finding
from maskwright.report.wording import count

COMPARED = 3000  # longer texts are shown without marks
ALIKE = 0.3  # a text less like its prompt than this (0 to 1) stands for itself
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def fact(value: object) -> str:
    """A single value as a person reads it."""
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else count(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def with_sentences(value: Any) -> Any:
    """Nested plain values, with a sentence in the place of each finding in its JSON form."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("what"), str):
            with contextlib.suppress(TypeError, ValueError):
                return str(Finding.from_json(value))
        return {name: with_sentences(each) for name, each in value.items()}
    return [with_sentences(each) for each in value] if isinstance(value, list) else value


def is_digest(value: object) -> bool:
    """Whether it is a long hexadecimal number, of which a few digits are enough to see."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,128}", value) is not None


def marked(written: str, prompt: str) -> list[tuple[str, bool]]:
    """`written` in pieces, each with whether the model added it to or changed it in `prompt`.

    A continuation repeats the prompt and goes on; a filled mask repeats it but for the masks. A
    text that does not repeat its prompt is all the model's, and nothing in it needs a mark.
    """
    if prompt and written.startswith(prompt):
        return _split(written, [(len(prompt), len(written))])
    if len(prompt) + len(written) > COMPARED:
        return [(written, False)]
    before, after = _PIECES.findall(prompt), _PIECES.findall(written)
    matcher = difflib.SequenceMatcher(
        None, [p.lower() for p in before], [p.lower() for p in after], autojunk=False
    )
    if matcher.ratio() < ALIKE:
        return [(written, False)]
    ends = [0]
    for piece in after:
        ends.append(ends[-1] + len(piece))
    changed = (each for each in matcher.get_opcodes() if each[0] in ("insert", "replace"))
    return _split(written, [(ends[start], ends[stop]) for _, _, _, start, stop in changed])


def _split(text: str, spans: list[tuple[int, int]]) -> list[tuple[str, bool]]:
    """`text` cut at the ends of `spans`, which leave out the blanks they begin with."""
    pieces, done = [], 0
    for start, stop in spans:
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        pieces += [(text[done:start], False), (text[start:stop], True)]
        done = stop
    return [(piece, new) for piece, new in [*pieces, (text[done:], False)] if piece]
