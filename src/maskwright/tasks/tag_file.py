"""Sentences whose words have tags, and the files they come in.

{"tokens": ["Kalomi", "sat"], "tags": ["B-PER", "O"]}        a row of JSON Lines

Kalomi NNP B-PER                                             columns, as CoNLL has them: a word
sat    VBD O                                                 a line, an empty line between
                                                             sentences; -DOCSTART- lines are
Tion   NNP B-LOC                                             no words
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.errors import DataError, IncompatibleError, near
from maskwright.tasks.tags import entities
from maskwright.tasks.whole_file import whole_text

DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class Sentence:
    """Words and, where they are known, a tag for each; checked when it is made.

    Attributes:
        text: what the words stand in, in order; by default the words with a blank between them.
        where: file and row, for messages.
    Raises:
        DataError: not one tag for each word, or a word that is not in the text.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    text: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if self.tags is not None and len(self.words) != len(self.tags):
            raise DataError("not one tag for each word", where=self.where or None,
                            found=f"{len(self.tags)} tags", wanted=f"{len(self.words)}, one for"
                            " each word", do="correct the row")  # fmt: skip
        if not self.text:
            object.__setattr__(self, "text", " ".join(self.words))
        self.spans  # noqa: B018  a word that is not in the text is refused here

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """(begin, end) in the text of each word."""
        found, at = [], 0
        for number, word in enumerate(self.words, 1):
            begin = self.text.find(word, at)
            if begin < 0:
                raise DataError("a word that is not in the text", where=self.where or None,
                                found=f"{word!r}, word {number}",
                                wanted=f"a part of {self.text[at : at + 40]!r}")  # fmt: skip
            at = begin + len(word)
            found.append((begin, at))
        return tuple(found)


@dataclass(frozen=True)
class Located:
    """An entity in the original text: `text` is its slice from `begin` to `end`."""

    kind: str
    text: str
    begin: int
    end: int


def locate(sentence: Sentence, tags: Sequence[str]) -> list[Located]:
    """The entities that `tags` mark, as slices of the sentence's text.

    Raises:
        IncompatibleError: not one tag for each word.  DataError: a tag that is none of an entity.
    """
    if len(tags) != len(sentence.words):
        raise IncompatibleError("not one tag for each word", where=sentence.where or None,
                                found=len(tags), wanted=len(sentence.words))  # fmt: skip
    found = []
    for entity in entities(tags, sentence.where):
        begin, end = sentence.spans[entity.first][0], sentence.spans[entity.stop - 1][1]
        found.append(Located(entity.kind, sentence.text[begin:end], begin, end))
    return found


# ------------------------------------------------------------------------------ files
def from_rows(
    rows: Iterable[tuple[Mapping[str, Any], str]],
    *,
    words: str = "tokens",
    tags: str | None = "tags",
    text: str | None = None,
) -> list[Sentence]:
    """Sentences of parsed rows, each with its place for messages.

    Args:
        words, tags: the fields that hold the lists; no `tags` where they are not known.
        text: the field of the text the words stand in, if there is one.
    Raises:
        DataError: a field that is missing or no list of texts, words and tags that differ in
            number, or words that are not in the text.
    """
    found = []
    for row, where in rows:
        given = {name: _field(row, name, where) for name in (words, tags, text) if name}
        for name in (words, tags):
            if name:
                _require_texts(given[name], name, where)
        if text and type(given[text]) is not str:
            raise DataError(f'the field "{text}" is no text', where=where,
                            found=repr(given[text])[:80])  # fmt: skip
        found.append(
            Sentence(
                tuple(given[words]),
                tuple(given[tags]) if tags else None,
                given[text] if text else "",
                where,
            )
        )
    return found


def _field(row: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise DataError("the field is missing", where=where, found=", ".join(row),
                        wanted=f'"{name}"', do=near(name, row))  # fmt: skip
    return row[name]


def _require_texts(value: Any, name: str, where: str) -> None:
    if type(value) is not list or not all(type(part) is str for part in value):
        raise DataError(f'the field "{name}" is no list of texts', where=where,
                        found=repr(value)[:80])  # fmt: skip


def read_columns(
    path: Path | str, *, word: int = 0, tag: int | None = -1, separator: str | None = None
) -> list[Sentence]:
    """The sentences of a file of columns, also compressed.

    Args:
        word, tag: the columns, from 0, or from the last with -1; no `tag` where there are none.
        separator: what stands between columns; by default any blanks.
    Raises:
        UsageError: no such file.  DataError: a line without one of the columns.
    """
    content, name = whole_text(path)
    found: list[Sentence] = []
    rows: list[tuple[str, str]] = []
    first = 1
    for number, line in enumerate([*content.split("\n"), ""], 1):
        if line.strip():
            columns = line.rstrip("\r").split(separator)
            wanted = [word] if tag is None else [word, tag]
            if not all(-len(columns) <= place < len(columns) for place in wanted):
                raise DataError("a line without one of the columns", where=f"{name}, line {number}",
                                found=f"{len(columns)} columns", wanted=f"columns {wanted}",
                                do="say which columns, and what separates them")  # fmt: skip
            if tag is not None and len(columns) == 1:
                raise DataError("a word without a tag", where=f"{name}, line {number}",
                                found=repr(line[:40]))  # fmt: skip
            if columns[word] != DOCUMENT:
                first = first if rows else number
                rows.append((columns[word], columns[tag] if tag is not None else ""))
        elif rows:
            words, tags = zip(*rows, strict=True)
            known = tuple(tags) if tag is not None else None
            found.append(Sentence(tuple(words), known, where=f"{name}, line {first}"))
            rows = []
    return found
