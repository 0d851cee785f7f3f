"""Tags of words: entities in the usual schemes, repair of tags, and the CoNLL scores.

                  Alice  met  Bob  Lee  Ann  in  Rome        Bob Lee and Ann are two persons
    IOB1          I-P    O    I-P  I-P  B-P  O   I-L         B only where two of a type touch
    IOB2 (BIO)    B-P    O    B-P  I-P  B-P  O   B-L
    IOBES         S-P    O    B-P  E-P  S-P  O   S-L
    BILOU         U-P    O    B-P  L-P  U-P  O   U-L        other names, as BMES, BMEWO

All schemes are decoded by the rules of CoNLL's `conlleval`, extended by E and S: an entity begins
at B and S, after O, E and S, and wherever the type changes. Each scheme encodes entities in exactly
one way, so a sequence is legal if decoding and encoding reproduce it, and repair does just that
(Ramshaw and Marcus 1995; Tjong Kim Sang and De Meulder 2003).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from maskwright.base.errors import ConfigError, DataError, IncompatibleError, near

OUTSIDE = "O"
ALSO = {"L": "E", "U": "S", "M": "I", "W": "S"}
PREFIXES = "BIES" + "".join(ALSO)
SCHEMES = ("BIO", "IOB1", "IOB2", "IOBES")
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
        ConfigError: no such scheme.  DataError: entities overlap or extend beyond the words.
    """
    if scheme not in SCHEMES:
        raise ConfigError(
            "no such scheme of tags", found=repr(scheme), wanted=near(scheme, SCHEMES)
        )
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


@dataclass(frozen=True)
class TagScore:
    """Scores over all entities and by type, and the accuracy of the tags of words."""

    overall: EntityScore
    by_type: dict[str, EntityScore]
    accuracy: float


def score(predicted: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]) -> TagScore:
    """Return precision, recall and F1 of entities, micro-averaged over all sentences.

    Raises:
        IncompatibleError: the numbers of sentences, or of words in a sentence, differ.
        DataError: no words, or a tag that is not the tag of an entity.
    """
    tag_accuracy = accuracy(predicted, golds)
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
    return TagScore(
        EntityScore(*(counts[name].total() for name in counts)),
        {
            entity_type: EntityScore(*(counts[name][entity_type] for name in counts))
            for entity_type in types
        },
        tag_accuracy,
    )


def accuracy(predicted: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]) -> float:
    """Return the share of words with the right tag, for tags of any kind.

    Raises:
        IncompatibleError: numbers of sentences or of words differ.  DataError: there are no words.
    """
    if len(predicted) != len(golds):
        raise IncompatibleError(
            "predictions and gold tags differ in number of sentences",
            found=len(predicted),
            wanted=len(golds),
        )
    correct = words = 0
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, golds, strict=True), 1):
        if len(predicted_tags) != len(gold_tags):
            raise IncompatibleError(
                "words and tags differ in number",
                where=f"sentence {number}",
                found=len(predicted_tags),
                wanted=len(gold_tags),
            )
        correct += sum(a == b for a, b in zip(predicted_tags, gold_tags, strict=True))
        words += len(gold_tags)
    if not words:
        raise DataError("there are no words to score")
    return correct / words
