"""Which column of a file of words holds the words and which the tags.

    Kalomi NNP B-PER        the first and the last, where nothing speaks against it
    1 Kalomi B-PER          numbers of the words are left out
    Kalomi B-PER doc7       refused: the last holds no tags, and the second may

The first sentences show what a column holds. Nothing is guessed that would change the tags:
where two columns may be meant, the user has to name all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from maskwright.errors import DataError, UsageError

# Also as other programs spell them: b-per, B_PER, PER-B.
TAG = re.compile(r"O|o|[BIESLUMW][-_]\w.*|[bieslumw]-\w.*|[A-Z]\w+[-_][BIESLUMW]")
NUMBER = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+([.,]\d+)?[eE][-+]?\d+)")
LOOKED_AT = 20_000  # lines
# So few lines show whether a column has one value for all words of a sentence.
MIN_VALUES = 3
# Of more values than these a column holds no classes; from so many lines on the number decides.
CLASSES, MANY = 60, 20
SHOWN = 8
MOSTLY = 0.95
TOKENS, TAGS = "tokens", "tags"


@dataclass(frozen=True)
class Layout:
    """The columns of a file.

    Attributes:
        names: of each column, None of one that is left out.
    """

    names: tuple[str | None, ...]

    def row(self, words: Sequence[Sequence[str]]) -> dict[str, Any]:
        """A sentence by column."""
        return {
            name: [columns[place] for columns in words]
            for place, name in enumerate(self.names)
            if name is not None
        }


class _Column:
    """What a column holds in the lines looked at."""

    def __init__(self, sentences: Sequence[Sequence[Sequence[str]]], place: int) -> None:
        self.place = place
        self.by_sentence = [[columns[place] for columns in words] for words in sentences]
        self.values = [value for values in self.by_sentence for value in values]
        self.distinct = set(self.values)
        self.tags = sum(bool(TAG.fullmatch(value)) for value in self.values)

    @property
    def has_tags(self) -> bool:
        return self.tags >= MOSTLY * len(self.values)

    @property
    def has_entity_tags(self) -> bool:
        """Tags, and not all of them O."""
        return self.has_tags and self.distinct != {"O"}

    @property
    def may_have_tags(self) -> bool:
        return 2 * self.tags > len(self.values) and self.distinct != {"O"}

    @property
    def has_entity_types(self) -> bool:
        """Entity types without a scheme: PER, and O of most words."""
        others = self.distinct - {"O"}
        return "O" in self.distinct and 0 < len(others) <= CLASSES and all(map(_is_name, others))

    @property
    def has_classes(self) -> bool:
        """Few names that come back, such as parts of speech."""
        few = 1 < len(self.distinct) <= min(CLASSES, len(self.values) // 2)
        return few and 2 * sum(map(_is_name, self.distinct)) > len(self.distinct)

    @property
    def is_number(self) -> bool:
        return all(value.isdecimal() for value in self.distinct)

    @property
    def is_fraction(self) -> bool:
        fractions = sum(bool(NUMBER.fullmatch(value)) for value in self.distinct)
        return fractions > 0 and all(
            NUMBER.fullmatch(value) or value.isdecimal() for value in self.distinct
        )

    @property
    def counts_words(self) -> bool:
        """Whether each word's number is the one before it and one more."""
        if not self.is_number or max(map(len, self.by_sentence)) < 2:
            return False
        return all(
            [int(value) - int(values[0]) for value in values] == list(range(len(values)))
            for values in self.by_sentence
        )

    @property
    def is_of_sentence(self) -> bool:
        """Whether it has one value for all words of a sentence, such as a document's name."""
        longer = [values for values in self.by_sentence if len(values) > 1]
        same = all(len(set(values)) == 1 for values in longer)
        return same and sum(map(len, longer)) >= MIN_VALUES

    @property
    def is_lettered(self) -> bool:
        """Whether most of it is written in letters alone, as words are."""
        return sum(value.isalpha() for value in self.values) * 2 > len(self.values)


def layout_of(
    sentences: Sequence[Sequence[Sequence[str]]], where: str, header: Sequence[str]
) -> Layout:
    """The columns of sentences that have as many.

    Args:
        sentences: the columns of each line of the first of them.
        where: the place of the first, for messages.
        header: the names of all columns, where the user gives them.

    Raises:
        DataError: it is not clear which column is what.  UsageError: not so many names as columns.
    """
    width = len(sentences[0][0])
    if header:
        require_names(header, sentences[0][0], where)
        return Layout(tuple(header))
    alike = list(_sample(sentences))
    columns = [_Column(alike, place) for place in range(width)]
    left = 0
    if width > 1 and columns[0].counts_words and not (width == 2 and columns[1].has_tags):
        left = 1  # numbers of the words
    _require_words(columns[left:], where, width)
    if width - left > 1:
        _require_tags(columns[left:], where, width)
    names: list[str | None] = [f"column {place + 1}" for place in range(width)]
    names[0], names[left] = None, TOKENS
    if width - left > 1:
        names[-1] = TAGS
    return Layout(tuple(names))


def require_names(header: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Refuse names given by the user that are not one for each of the `columns` of a row.

    Raises:
        UsageError: more or fewer names than columns, or one twice.
    """
    if len(header) != len(columns):
        raise UsageError(
            "the names given do not fit the file",
            where=where,
            found=f"{len(header)} names for {len(columns)} columns: {', '.join(columns)}",
            wanted=f"{len(columns)} names",
            do="name every column: --read header=NAME,NAME,…",
        )
    if twice := [name for name in header if header.count(name) > 1]:
        raise UsageError(
            "two columns have the same name",
            where="--read header",
            found=twice[0],
            wanted="every name once",
            do="rename one of them",
        )


def _sample(sentences: Sequence[Sequence[Sequence[str]]]) -> Iterator[Sequence[Sequence[str]]]:
    lines = 0
    for words in sentences:
        lines += len(words)
        if lines <= LOOKED_AT or lines == len(words):
            yield words


def _is_name(value: str) -> bool:
    return any(sign.isalpha() for sign in value)


def _require_words(columns: Sequence[_Column], where: str, width: int) -> None:
    """Refuse a first column that holds no words."""
    first, others = columns[0], columns[1:]
    if not others:
        return
    tags = next((c.place for c in others[::-1] if c.has_entity_tags), others[-1].place)
    if first.may_have_tags and len(first.values) >= MIN_VALUES and not others[-1].has_tags:
        words = next((c for c in others if c.is_lettered), others[0])
        raise _unclear(
            "the tags stand before the words", where, first, width, words.place, first.place
        )
    if len(others) > 1:
        words = next((c for c in others if not c.is_of_sentence and not c.is_number), others[0])
        if first.is_of_sentence and not words.is_of_sentence:
            raise _unclear(
                "the first column holds no words, but the same for all words of a sentence",
                where,
                first,
                width,
                words.place,
                tags,
            )
        if first.is_number and len(first.values) >= MIN_VALUES and words.is_lettered:
            raise _unclear(
                "the first column holds no words, but numbers",
                where,
                first,
                width,
                words.place,
                tags,
            )
        richer = next(
            (
                c
                for c in others[:-1]
                if c.is_lettered
                and not c.is_of_sentence
                and len(c.distinct) > MIN_VALUES * len(first.distinct)
            ),
            None,
        )
        if richer is not None and first.has_classes and len(first.values) >= MANY:
            raise _unclear(
                "the first column holds few different values, and another many words",
                where,
                first,
                width,
                richer.place,
                tags,
            )


def _require_tags(columns: Sequence[_Column], where: str, width: int) -> None:
    """Refuse a last column that holds no tags, where another may."""
    words, last, between = columns[0], columns[-1], columns[1:-1]
    if last.has_tags:
        return
    other = (
        next((c for c in between[::-1] if c.has_entity_tags), None)
        or next(
            (c for c in between[::-1] if c.has_entity_types and not last.has_entity_types), None
        )
        or next((c for c in between if c.has_classes), None)
    )
    doubtful = (
        len(last.distinct) == 1
        or last.is_fraction
        or not any(map(_is_name, last.distinct))
        # Nearly as many as words, and many more than the other: lemmas.
        or (
            other is not None
            and 2 * len(last.distinct) > len(words.distinct)
            and len(last.distinct) > MIN_VALUES * len(other.distinct)
        )
    )
    if other is not None and (
        other.has_entity_tags or (other.has_entity_types and not last.has_entity_types)
    ):
        raise _unclear(
            "the last column holds no tags, and another seems to",
            where,
            last,
            width,
            words.place,
            other.place,
        )
    if other is not None and doubtful:
        raise _unclear(
            "the last column seems to hold no tags", where, last, width, words.place, other.place
        )
    if last.is_fraction:
        raise DataError(
            "the last column holds numbers, not tags",
            where=where,
            found=_shown(last),
            wanted="a word, and its tag in the last column",
            do="put the tags into the last column",
        )


def _unclear(
    what: str, where: str, column: _Column, width: int, words: int, tags: int
) -> DataError:
    names = [f"column{place + 1}" for place in range(width)]
    names[tags] = TAGS
    names[words] = TOKENS
    return DataError(
        what,
        where=where,
        found=f"column {column.place + 1} of {width}: {_shown(column)}",
        wanted="words in the first column and their tags in the last, or the names of the columns",
        do=f"name all columns in their order, words as {TOKENS} and tags as {TAGS}, perhaps "
        f"--read header={','.join(names)}",
    )


def _shown(column: _Column) -> str:
    values = list(dict.fromkeys(column.values))
    return ", ".join(map(repr, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")
