"""Spellings of entity tags in files: `B-PER`, `b-per`, `B_PER`, `PER-B`, and the tag for outside.

All are interpreted as the tags of tags.py, but keep their spelling in data and predictions. `I-O`
and `B-O` are outside, too: they result from putting a prefix before every tag.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from maskwright.base.findings import Finding
from maskwright.text.tables.tags import ALSO, OUTSIDE, PREFIXES, Scheme, split_tag

MARKS = ("-", "_", ":", "|", "/")
# Tags that may be used outside of entities instead of O.
OUTSIDES = ("o", "0", "_", "-", "--", "none", "out", "outside", "other")
LISTED = 3


@dataclass(frozen=True)
class Spelling:
    """The spelling of a set of tags.

    Attributes:
        mark: the separator between prefix and entity type.
        last: whether the prefix comes last; lower: whether it is a lower-case letter.
        outside: the tag of words outside of entities.
        empty: tags of the type O, such as I-O, which are outside, too.
    """

    mark: str = "-"
    last: bool = False
    lower: bool = False
    outside: str = OUTSIDE
    empty: frozenset[str] = frozenset()

    @property
    def usual(self) -> bool:
        """Whether tags are spelled as in tags.py."""
        return self == Spelling()

    def split(self, tag: str) -> tuple[str, str] | None:
        """Return (prefix, entity type) of a tag, or None if it does not have this spelling."""
        prefix, entity_type = (tag[-1:], tag[:-2]) if self.last else (tag[:1], tag[2:])
        mark = tag[-2:-1] if self.last else tag[1:2]
        is_prefix = prefix in (PREFIXES.lower() if self.lower else PREFIXES)
        if len(tag) == 1 and is_prefix and not self.last:
            return prefix.upper(), ""
        return (
            (prefix.upper(), entity_type)
            if is_prefix and entity_type and mark == self.mark
            else None
        )

    def read(self, tag: str) -> str:
        """Convert a tag to the spelling of tags.py."""
        if tag == self.outside or tag in self.empty or (prefix_and_type := self.split(tag)) is None:
            return OUTSIDE
        return "-".join(prefix_and_type) if prefix_and_type[1] else prefix_and_type[0]

    def write(self, tag: str) -> str:
        """Convert a tag from the spelling of tags.py; the reverse of `read`."""
        if tag == OUTSIDE:
            return self.outside
        prefix, _, entity_type = tag.partition("-")
        prefix = prefix.lower() if self.lower else prefix
        if not entity_type:
            return prefix
        return (
            f"{entity_type}{self.mark}{prefix}"
            if self.last
            else f"{prefix}{self.mark}{entity_type}"
        )


def spelling_of(names: Iterable[str]) -> Spelling | None:
    """Return the spelling of all tags of a task, or None if they do not follow a scheme."""
    return _spelling_of(tuple(sorted(set(names))))


@lru_cache(maxsize=256)
def _spelling_of(names: tuple[str, ...]) -> Spelling | None:
    """Try all spellings, and return the first in which all tags but one for outside are valid."""
    for mark in MARKS:
        for prefix_last in (False, True):
            for lower in (False, True):
                spelling = Spelling(mark, prefix_last, lower)
                without_prefix = [
                    name for name in names if name != OUTSIDE and spelling.split(name) is None
                ]
                outside = OUTSIDE if OUTSIDE in names else "".join(without_prefix)
                if without_prefix and (
                    outside == OUTSIDE or without_prefix[0].casefold() not in OUTSIDES
                ):
                    continue
                if len(without_prefix) < 2 and _is_scheme(
                    spelling, prefixed := set(names) - {outside, *without_prefix}
                ):
                    return replace(
                        spelling,
                        outside=outside or OUTSIDE,
                        empty=frozenset(_outside_tags(spelling, prefixed, outside or OUTSIDE)),
                    )
    return None


def _is_scheme(spelling: Spelling, marked: set[str]) -> bool:
    """Whether `marked` are entity tags; in an unusual spelling one must begin an entity."""
    prefixes_and_types = [split for name in marked if (split := spelling.split(name)) is not None]
    has_beginning = any(prefix in "BSUW" for prefix, _ in prefixes_and_types)
    is_usual = (spelling.mark, spelling.last, spelling.lower) == ("-", False, False)
    with_types = all(entity_type for _, entity_type in prefixes_and_types)
    without_types = all(not entity_type for _, entity_type in prefixes_and_types)
    return bool(prefixes_and_types) and (
        (with_types and (is_usual or has_beginning))
        or (without_types and "B" in {prefix for prefix, _ in prefixes_and_types})
    )


def _outside_tags(spelling: Spelling, marked: Iterable[str], outside: str) -> list[str]:
    """Return the tags of the type O; none if all other types are single letters, as O then is."""
    entity_types = {
        name: split[1] for name in marked if (split := spelling.split(name)) is not None
    }
    empty = [
        name
        for name, entity_type in entity_types.items()
        if entity_type.casefold() in ("o", outside.casefold())
    ]
    other_types = {entity_types[name] for name in entity_types if name not in empty}
    return [] if all(len(entity_type) == 1 for entity_type in other_types) else empty


@lru_cache(maxsize=256)
def scheme_of(names: tuple[str, ...]) -> Scheme | None:
    """Return the scheme that sequences of these tags must follow; None if any sequence is valid."""
    if (spelling := spelling_of(names)) is None:
        return None
    prefixes = {split_tag(spelling.read(name))[0] for name in names}
    if prefixes & {"E", "S"}:
        return "IOBES" if prefixes & {"B", "S"} else None
    return "IOB2" if "B" in prefixes else None


def meanings(names: Iterable[str]) -> Callable[[str], set[str]]:
    """Return a function that gives the meanings of a tag independent of its spelling (`B-PER`,
    `PER_B`, `b:per`); none if no tag in `names` begins an entity as `B-PER` does."""
    names = set(names)
    if not any(tag[:2] in ("B-", "S-", "U-") and tag[2:] for tag in names):
        return lambda tag: set()
    return lambda tag: {as_usual(tag, names).casefold()}


def as_usual(tag: str, names: Collection[str]) -> str:
    """Convert a tag of any spelling to that of tags.py; others stay. A type without a prefix is
    inside an entity if `names` has this type with a prefix."""
    for prefix_last, lower, mark in itertools.product((False, True), (False, True), MARKS):
        if (
            prefix_and_type := Spelling(mark, prefix_last, lower).split(tag)
        ) is not None and prefix_and_type[1]:
            return f"{ALSO.get(prefix_and_type[0], prefix_and_type[0])}-{prefix_and_type[1]}"
    inside = next((name for name in (f"I-{tag}", f"B-{tag}") if name in names), tag)
    return OUTSIDE if tag.casefold() in OUTSIDES else inside


def as_entities(tags: Sequence[str], names: Iterable[str]) -> list[str]:
    """Convert `tags` to the spelling of tags.py; `names` are all tags of the task."""
    spelling = spelling_of(names)
    return list(tags) if spelling is None else [spelling.read(tag) for tag in tags]


def findings(names: Sequence[str]) -> Iterator[Finding]:
    """Yield findings on unusual tags of a task."""
    spelling = spelling_of(names)
    if spelling is None:
        without_scheme = [
            name for name in names if name != OUTSIDE and Spelling().split(name) is None
        ]
        shown = ", ".join(map(repr, (without_scheme or list(names))[:LISTED]))
        yield Finding(
            "tags-without-scheme",
            f"no entities are scored: tags such as {shown} are of no scheme of entities (B-LOC, "
            "I-LOC, O)",
            "the figure is the share of words with the right tag",
        )
        return
    entity_types = {name: split[1] for name in names if (split := spelling.split(name)) is not None}
    entity_of_type_o = next(
        (n for n, k in entity_types.items() if k == OUTSIDE and n not in spelling.empty), None
    )
    if entity_of_type_o is not None:
        yield Finding(
            "entity-of-kind-o",
            f"{entity_of_type_o!r} is read as an entity of the type O",
            remedy=f"where it is outside, write {spelling.outside}",
        )
        return
    if spelling.usual:
        return
    marked = next(name for name in names if spelling.split(name) and name not in spelling.empty)
    read = [f"{marked!r} as {spelling.read(marked)!r}"] if marked != spelling.read(marked) else []
    if spelling.outside != OUTSIDE and spelling.outside in names:
        read.append(f"{spelling.outside!r} as outside")
    read += [f"{name!r} as outside" for name in names if name in spelling.empty]
    if read:
        yield Finding("tags-translated", f"tags are read as those of entities: {', '.join(read)}")
