"""Tags of words: entities in the usual schemes, spellings of tags in files, repair, CoNLL scores.

                  Alice  met  Bob  Lee  Ann  in  Rome        Bob Lee and Ann are two persons
    IOB1          I-P    O    I-P  I-P  B-P  O   I-L         B only where two of a type touch
    IOB2 (BIO)    B-P    O    B-P  I-P  B-P  O   B-L
    IOBES         S-P    O    B-P  E-P  S-P  O   S-L
    BILOU         U-P    O    B-P  L-P  U-P  O   U-L        other names, as BMES, BMEWO

All schemes are decoded by the rules of CoNLL's `conlleval`, extended by E and S: an entity begins
at B and S, after O, E and S, and wherever the type changes. Each scheme encodes entities in exactly
one way, so a sequence is legal if decoding and encoding reproduce it, and repair does just that
(Ramshaw and Marcus 1995; Tjong Kim Sang and De Meulder 2003).

Files also spell tags as `b-per`, `B_PER` or `PER-B`, and outside in other ways. All are interpreted
as the tags above, but keep their spelling in data and predictions. `I-O` and `B-O` are outside,
too: they result from putting a prefix before every tag.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from maskwright.base.errors import DataError, Finding

OUTSIDE = "O"
ALSO = {"L": "E", "U": "S", "M": "I", "W": "S"}
PREFIXES = "BIES" + "".join(ALSO)
Scheme = Literal["BIO", "IOB1", "IOB2", "IOBES"]


@dataclass(frozen=True, order=True)
class Entity:
    """An entity of this type that consists of the words `first` … `stop` - 1."""

    first: int
    stop: int
    entity_type: str


def split_tag(tag: str, where: str = "") -> tuple[str, str]:
    """Split a tag into (prefix, entity type): `B-LOC` gives ("B", "LOC"), `O` gives ("O", ""), `I`
    gives ("I", ""), and `U-LOC` gives ("S", "LOC").

    Raises:
        DataError: not the tag of an entity.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, entity_type = tag.partition("-")
    if len(prefix) != 1 or prefix not in PREFIXES or tag.endswith("-"):
        raise DataError(
            "not the tag of an entity",
            where=where or None,
            found=repr(tag),
            wanted="O, or one of B, I, E, S with an entity type, such as B-LOC",
            do="correct the tag",
        )
    return ALSO.get(prefix, prefix), entity_type


def entities(tags: Sequence[str], where: str = "") -> list[Entity]:
    """Decode the entities of a sentence, in order, by the rules of `conlleval` for any scheme.

    Raises:
        DataError: not the tag of an entity.
    """
    result: list[Entity] = []
    start, previous_prefix, entity_type = 0, OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, next_type = split_tag(tag, f"{where}, word {index + 1}".removeprefix(", "))
        begins = prefix in "BS" or previous_prefix in "OES" or next_type != entity_type
        if previous_prefix != OUTSIDE and (begins or prefix == OUTSIDE):
            result.append(Entity(start, index, entity_type))
        if begins:
            start = index
        previous_prefix, entity_type = prefix, next_type
    return result


def write(entities: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """Encode entities, which must not overlap, as the tags of `length` words.

    Raises:
        DataError: entities overlap or extend beyond the words.
    """
    tags = [OUTSIDE] * length
    previous = Entity(0, 0, "")
    for entity in sorted(entities):
        if not previous.stop <= entity.first < entity.stop <= length:
            raise DataError(
                "entities that overlap or reach beyond the words",
                found=entity,
                wanted=f"words {previous.stop} to {length - 1}",
            )
        touches = (
            previous.stop == entity.first
            and previous.entity_type == entity.entity_type
            and previous.stop > 0
        )
        size = entity.stop - entity.first
        prefixes = ["B"] + ["I"] * (size - 1)
        if scheme == "IOB1" and not touches:
            prefixes[0] = "I"
        elif scheme == "IOBES":
            prefixes[-1] = "S" if size == 1 else "E"
        for index, prefix in enumerate(prefixes, entity.first):
            tags[index] = f"{prefix}-{entity.entity_type}" if entity.entity_type else prefix
        previous = entity
    return tags


def repair(tags: Sequence[str], scheme: Scheme, where: str = "") -> tuple[list[str], int]:
    """Return the legal tags of `scheme` for the same entities, and the number of changed tags.

    This also converts from one scheme to another.
    """
    legal = write(entities(tags, where), len(tags), scheme)
    return legal, sum(a != b for a, b in zip(tags, legal, strict=True))


# ------------------------------------------------------------------------------ spellings
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
        is_tag = is_prefix and entity_type and mark == self.mark
        return (prefix.upper(), entity_type) if is_tag else None

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
        return self.mark.join((entity_type, prefix) if self.last else (prefix, entity_type))


SPELLINGS = [
    Spelling(mark, prefix_last, lower)
    for mark, prefix_last, lower in itertools.product(MARKS, (False, True), (False, True))
]


def spelling_of(names: Iterable[str]) -> Spelling | None:
    """Return the spelling of all tags of a task, or None if they do not follow a scheme."""
    return _spelling_of(tuple(sorted(set(names))))


@lru_cache(maxsize=256)
def _spelling_of(names: tuple[str, ...]) -> Spelling | None:
    """Try all spellings, and return the first in which all tags but one for outside are valid."""
    for spelling in SPELLINGS:
        without_prefix = [n for n in names if n != OUTSIDE and spelling.split(n) is None]
        outside = OUTSIDE if OUTSIDE in names else "".join(without_prefix)
        if without_prefix and (outside == OUTSIDE or outside.casefold() not in OUTSIDES):
            continue
        prefixed = set(names) - {outside}
        if _is_scheme(spelling, prefixed):
            empty = frozenset(_outside_tags(spelling, prefixed, outside or OUTSIDE))
            return replace(spelling, outside=outside or OUTSIDE, empty=empty)
    return None


def _is_scheme(spelling: Spelling, marked: set[str]) -> bool:
    """Whether `marked` are entity tags; in an unusual spelling one must begin an entity."""
    splits = [split for name in marked if (split := spelling.split(name)) is not None]
    prefixes = {prefix for prefix, _ in splits}
    if not any(entity_type for _, entity_type in splits):
        return "B" in prefixes
    is_usual = spelling == SPELLINGS[0]
    return all(entity_type for _, entity_type in splits) and (
        is_usual or bool(prefixes & {*"BSUW"})
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
    """Convert a tag of any spelling to the usual one; others stay. A type without a prefix is
    inside an entity if `names` has this type with a prefix."""
    for spelling in sorted(SPELLINGS, key=lambda spelling: (spelling.last, spelling.lower)):
        prefix, entity_type = spelling.split(tag) or ("", "")
        if entity_type:
            return f"{ALSO.get(prefix, prefix)}-{entity_type}"
    inside = next((name for name in (f"I-{tag}", f"B-{tag}") if name in names), tag)
    return OUTSIDE if tag.casefold() in OUTSIDES else inside


def as_entities(tags: Sequence[str], names: Iterable[str]) -> list[str]:
    """Convert `tags` to the spelling of tags.py; `names` are all tags of the task."""
    spelling = spelling_of(names)
    return list(tags) if spelling is None else [spelling.read(tag) for tag in tags]


def findings(names: Sequence[str]) -> Iterator[Finding]:
    """Yield findings on unusual tags of a task."""
    if (spelling := spelling_of(names)) is None:
        without_scheme = [
            name for name in names if name != OUTSIDE and Spelling().split(name) is None
        ]
        shown = ", ".join(map(repr, (without_scheme or list(names))[:LISTED]))
        message = f"no entities are scored: tags such as {shown} are of no scheme (B-LOC, I-LOC, O)"
        evidence = "the figure is the share of words with the right tag"
        yield Finding("tags-without-scheme", message, evidence)
        return
    marked = [name for name in names if spelling.split(name) and name not in spelling.empty]
    of_type_o = [name for name in marked if (spelling.split(name) or "  ")[1] == OUTSIDE]
    if of_type_o:
        message = f"{of_type_o[0]!r} is read as an entity of the type O"
        remedy = f"where it is outside, write {spelling.outside}"
        yield Finding("entity-of-kind-o", message, remedy=remedy)
    elif not spelling.usual:
        first_tag, usual_tag = marked[0], spelling.read(marked[0])
        read = [f"{first_tag!r} as {usual_tag!r}"] if first_tag != usual_tag else []
        outside = {spelling.outside} - {OUTSIDE} | spelling.empty
        read += [f"{name!r} as outside" for name in names if name in outside]
        if read:
            message = f"tags are read as those of entities: {', '.join(read)}"
            yield Finding("tags-translated", message)


# ------------------------------------------------------------------------------ scores
@dataclass(frozen=True)
class EntityScore:
    """Counts of gold, predicted and correct entities (same words and type).

    As in `conlleval`, precision and recall are 0 if their denominator is 0.
    """

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.gold + self.predicted) if self.correct else 0.0


def score(
    predicted: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]
) -> dict[str, EntityScore]:
    """Return the score of each type of entities, over all sentences.

    Raises:
        DataError: a tag that is not the tag of an entity.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("gold", "predicted", "correct")}
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, golds, strict=True), 1):
        predicted_entities = set(entities(predicted_tags, f"prediction {number}"))
        gold_entities = set(entities(gold_tags, f"sentence {number}"))
        for name, group in (
            ("gold", gold_entities),
            ("predicted", predicted_entities),
            ("correct", predicted_entities & gold_entities),
        ):
            counts[name].update(entity.entity_type for entity in group)
    types = sorted(counts["gold"].keys() | counts["predicted"].keys())
    return {
        entity_type: EntityScore(*(counts[name][entity_type] for name in counts))
        for entity_type in types
    }
