"""Patterns of module names in adapter folders, matched without `re`.

A pattern from an untrusted file must not reach `re`: one such as `(a+)+$` takes exponential time
(Davis et al. 2018, doi:10.1145/3236024.3236027). The subset of the syntax that `peft` and its users
need is matched here in time proportional to the length of the name times that of the pattern:

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
    """The pattern is not in the supported subset."""


@dataclass(frozen=True)
class _Character:
    fits: Fits
    repeats: str  # "", "*" or "+"


@dataclass(frozen=True)
class _Alternatives:
    alternatives: tuple[tuple[_Character | _Alternatives, ...], ...]


_Node = _Character | _Alternatives


def fits(pattern: str, name: str) -> bool:
    """Whether `pattern` matches the whole dotted `name`, or its end after a dot.

    Raises:
        PatternError: the pattern is not in the supported subset.
    """
    group = _parsed(pattern)
    if pattern.startswith("^"):  # matches at the beginning only
        if len(group.alternatives) > 1:
            raise PatternError("alternatives of which one begins with '^'")
        return len(name) in _through(group, name, {0})
    starts = {0, *(index + 1 for index, letter in enumerate(name) if letter == ".")}
    return len(name) in _through(group, name, starts)


@cache
def _parsed(pattern: str) -> _Alternatives:
    if len(pattern) > LONGEST:
        raise PatternError(f"a pattern of {len(pattern):,} characters")
    group, end = _group(pattern, pattern.startswith("^"), 0)
    if end != len(pattern):
        raise PatternError(f"{pattern[end]!r} at character {end + 1}")
    return group


def _group(text: str, index: int, depth: int) -> tuple[_Alternatives, int]:
    """Parse alternatives from `index` on; return them and the index of the closing bracket."""
    if depth > DEEPEST:
        raise PatternError("groups in groups in groups")
    alternatives: list[tuple[_Node, ...]] = []
    alternative: list[_Node] = []
    while index < len(text) and text[index] != ")":
        if text[index] == "|":
            alternatives.append(tuple(alternative))
            alternative, index = [], index + 1
        elif text[index] == "(":
            inner, index = _group(
                text, index + (3 if text[index : index + 3] == "(?:" else 1), depth + 1
            )
            if text[index : index + 1] != ")":
                raise PatternError("a group that does not end")
            index += 1
            if text[index : index + 1] in ("*", "+", "?", "{"):
                raise PatternError("a group that repeats")
            alternative.append(inner)
        elif text[index:] == "$" and depth == 0:
            index += 1
        else:
            character, index = _character(text, index)
            alternative.append(character)
    return _Alternatives((*alternatives, tuple(alternative))), index


def _character(text: str, index: int) -> tuple[_Character, int]:
    rest = text[index:]
    matches: Fits
    if rest.startswith("\\d") or rest.startswith("[0-9]"):
        matches, length = DIGITS.__contains__, 2 if rest[0] == "\\" else 5
    elif rest.startswith(("\\.", "\\-", "\\_")):
        matches, length = rest[1].__eq__, 2
    elif rest[0] == ".":
        matches, length = bool, 1
    elif rest[0].isalnum() or rest[0] in "_-":
        matches, length = rest[0].__eq__, 1
    else:
        raise PatternError(f"{rest[0]!r} at character {index + 1}")
    repeats = rest[length : length + 1]
    if repeats in ("*", "+"):
        length += 1
        if rest[length : length + 1] in ("*", "+", "?", "{"):
            raise PatternError("what repeats twice")
        return _Character(matches, repeats), index + length
    if repeats in ("?", "{"):
        raise PatternError(f"{repeats!r} at character {index + length + 1}")
    return _Character(matches, ""), index + length


def _through(node: _Node, name: str, positions: set[int]) -> set[int]:
    """Return the possible ends in `name` of matches of `node` that start at `positions`."""
    if isinstance(node, _Alternatives):
        reached_after: set[int] = set()
        for alternative in node.alternatives:
            reached = positions
            for member in alternative:
                reached = _through(member, name, reached)
            reached_after |= reached
        return reached_after
    after_one = {
        position + 1 for position in positions if position < len(name) and node.fits(name[position])
    }
    if not node.repeats:
        return after_one
    reachable = set(after_one) if node.repeats == "+" else positions | after_one
    while after_one:
        after_one = {p + 1 for p in after_one if p < len(name) and node.fits(name[p])} - reachable
        reachable |= after_one
    return reachable
