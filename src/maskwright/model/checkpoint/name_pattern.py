"""Patterns of module names as adapter folders have them, without a regular expression.

A pattern from a file never reaches `re`: one such as `(a+)+$` would not end (Davis et al. 2018,
doi:10.1145/3236024.3236027). What `peft` and those who use it write is simple, and is read here in
time that grows with the name times the pattern:

    attn.c_attn      .*\\.(q|v)_proj      layers\\.[0-9]+\\.fc1      encoder\\.layer\\.(?:0|1)\\..*

letters, digits, `_`, `-`; `.` (any character) and `\\.`; `\\d`, `[0-9]`; `*` and `+` after one of
these; groups of alternatives; `^` at the beginning and `$` at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

LONGEST, DEEPEST = 1024, 8  # characters of a pattern, groups in groups
DIGITS = "0123456789"
Fits = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern is not of a form that is read."""


@dataclass(frozen=True)
class _Character:
    fits: Fits
    repeats: str  # "", "*" or "+"


@dataclass(frozen=True)
class _Alternatives:
    alternatives: tuple[tuple[_Character | _Alternatives, ...], ...]


_Part = _Character | _Alternatives


def fits(pattern: str, name: str) -> bool:
    """Whether `pattern` is all of the dotted `name`, or its end behind a dot.

    Raises:
        PatternError: the pattern is not of a form that is read.
    """
    group = _parsed(pattern)
    if pattern.startswith("^"):  # and not behind a dot
        if len(group.alternatives) > 1:
            raise PatternError("alternatives of which one begins with '^'")
        return len(name) in _through(group, name, {0})
    starts = {0, *(place + 1 for place, letter in enumerate(name) if letter == ".")}
    return len(name) in _through(group, name, starts)


@cache
def _parsed(pattern: str) -> _Alternatives:
    if len(pattern) > LONGEST:
        raise PatternError(f"a pattern of {len(pattern):,} characters")
    group, end = _group(pattern, pattern.startswith("^"), 0)
    if end != len(pattern):
        raise PatternError(f"{pattern[end]!r} at character {end + 1}")
    return group


def _group(text: str, place: int, depth: int) -> tuple[_Alternatives, int]:
    """The alternatives from `place` on, and where they end: at a bracket, or at the end."""
    if depth > DEEPEST:
        raise PatternError("groups in groups in groups")
    alternatives: list[tuple[_Part, ...]] = []
    alternative: list[_Part] = []
    while place < len(text) and text[place] != ")":
        if text[place] == "|":
            alternatives.append(tuple(alternative))
            alternative, place = [], place + 1
        elif text[place] == "(":
            inner, place = _group(
                text, place + (3 if text[place : place + 3] == "(?:" else 1), depth + 1
            )
            if text[place : place + 1] != ")":
                raise PatternError("a group that does not end")
            place += 1
            if text[place : place + 1] in ("*", "+", "?", "{"):
                raise PatternError("a group that repeats")
            alternative.append(inner)
        elif text[place:] == "$" and depth == 0:
            place += 1
        else:
            character, place = _character(text, place)
            alternative.append(character)
    return _Alternatives((*alternatives, tuple(alternative))), place


def _character(text: str, place: int) -> tuple[_Character, int]:
    rest = text[place:]
    found: Fits
    if rest.startswith("\\d") or rest.startswith("[0-9]"):
        found, length = DIGITS.__contains__, 2 if rest[0] == "\\" else 5
    elif rest.startswith(("\\.", "\\-", "\\_")):
        found, length = rest[1].__eq__, 2
    elif rest[0] == ".":
        found, length = bool, 1
    elif rest[0].isalnum() or rest[0] in "_-":
        found, length = rest[0].__eq__, 1
    else:
        raise PatternError(f"{rest[0]!r} at character {place + 1}")
    repeats = rest[length : length + 1]
    if repeats in ("*", "+"):
        length += 1
        if rest[length : length + 1] in ("*", "+", "?", "{"):
            raise PatternError("what repeats twice")
        return _Character(found, repeats), place + length
    if repeats in ("?", "{"):
        raise PatternError(f"{repeats!r} at character {place + length + 1}")
    return _Character(found, ""), place + length


def _through(part: _Part, name: str, places: set[int]) -> set[int]:
    """The positions in `name` after `part`, from any of these positions."""
    if isinstance(part, _Alternatives):
        reached_after: set[int] = set()
        for alternative in part.alternatives:
            reached = places
            for element in alternative:
                reached = _through(element, name, reached)
            reached_after |= reached
        return reached_after
    one = {place + 1 for place in places if place < len(name) and part.fits(name[place])}
    if not part.repeats:
        return one
    found = set(one) if part.repeats == "+" else places | one
    while one:
        one = {p + 1 for p in one if p < len(name) and part.fits(name[p])} - found
        found |= one
    return found
