"""Sentences whose words have tags, and the files they come in.

{"tokens": ["Kalomi", "sat"], "tags": ["B-PER", "O"]}        a row of JSON Lines

Kalomi NNP B-PER                                             columns, as CoNLL has them: a word
sat    VBD O                                                 a line, an empty line between
                                                             sentences; -DOCSTART- lines and
Tion   NNP B-LOC                                             comments before a sentence, such
                                                             as "# id 7", are no words

Which column is what can be said instead (`header`). Columns are apart by tabs where a line has one,
so that a word may hold blanks; else by blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from maskwright.corpus.ledger import at
from maskwright.corpus.lines import Block
from maskwright.errors import DataError, UsageError

DOCUMENT = "-DOCSTART-"
# As CoNLL-U and MultiCoNER write them; a tweet may begin with the word "#".
COMMENT = re.compile(
    r"#\s*([\w.:]+\s*=|(id|newdoc|newpar|doc(ument)?|sent(ence)?|(begin|end) document)\b)", re.I
)
LOOKED_AT = 200  # lines
LAST = re.compile(r"O|[BIESLUM](-\w.*)?")  # of one kind of entity, which has no name
TAG = re.compile(r"O|[BIESLUM]-\w.*")


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


# Of so many columns and lines, a first column that is the same in all lines holds no words.
MANY, SOME = 6, 3


# ------------------------------------------------------------------------------ files
def is_one(text: str) -> bool:
    """Whether a .tsv that begins with `text` is of this kind, and no table with a header: a word
    and its tag in the first line, and lines of as many columns with tags up to an empty one."""
    lines = text.lstrip("\n").partition("\n\n")
    words = [line.split("\t") for line in lines[0].split("\n")]
    if len(words) > 1 and words[0][0].startswith("#") and len(words[0]) != len(words[1]):
        words = words[1:]  # a comment
    width = len(words[0])
    return bool(lines[1]) and width > 1 and all(
        len(columns) == width and LAST.fullmatch(columns[-1]) and len(columns[0].split()) <= 1
        for columns in words
    )  # fmt: skip


def is_words(text: str) -> bool:
    """Whether a text that begins so is words with tags, and no prose: columns of which the last
    holds tags of entities or chunks in every line, up to an empty one."""
    lines = text.split("\n")[:LOOKED_AT]
    if lines and lines[0].startswith(DOCUMENT):
        return True
    if "" not in (line.strip() for line in lines):
        return False  # no sentence ends
    words = [_columns(line) for line in lines if line.strip() and not COMMENT.match(line)]
    width = len(words[0]) if words else 0
    tags = [columns[-1] for columns in words]
    return (
        width > 1
        and all(len(columns) == width for columns in words)
        and all(TAG.fullmatch(tag) for tag in tags)
        and any(tag != "O" for tag in tags)
    )


def rows(
    blocks: Iterable[Block], file: str, header: Sequence[str] = ()
) -> Iterator[tuple[dict[str, Any], int]]:
    """The sentences of a file of columns as rows `{"tokens": […], "tags": […]}`, each with the line
    that it begins at. The first column is the word, the last its tag; a single column has none;
    those between are called by their places, `column 2`.

    Args:
        header: the names of all columns, where it is not so.

    Raises:
        DataError: a line with another number of columns than the first of its sentence.
        UsageError: more or fewer names than columns.
    """
    words: list[list[str]] = []
    first = 1
    for number, line in (each for block in blocks for each in block.lines()):
        if not words and COMMENT.match(line):
            continue
        columns = _columns(line)
        if not columns or columns[0] == DOCUMENT:
            if words:
                yield _row(words, at(file, first), header), first
            words = []
            continue
        if len(words) == 1 and words[0][0].startswith("#") and len(columns) != len(words[0]):
            words = []  # it was a comment, such as a source: "#", "http://…"
        if words and len(columns) != len(words[0]):
            raise DataError(
                "a line with another number of columns than the one before",
                where=at(file, number),
                found=f"{len(columns)}: {line[:60]!r}",
                wanted=f"{len(words[0])}",
                do="correct the line; between sentences is an empty one",
            )
        first = first if words else number
        words.append(columns)
    if words:
        yield _row(words, at(file, first), header), first


def _columns(line: str) -> list[str]:
    apart = line.split("\t") if "\t" in line else line.split(" ")
    return [column.strip(" ") for column in apart if column.strip(" ")]


def _row(words: list[list[str]], where: str, header: Sequence[str]) -> dict[str, Any]:
    if header:
        if len(header) != len(words[0]):
            raise UsageError("the names given do not fit the file", where=where,
                             found=f"{len(header)} names for {len(words[0])} columns: "
                             f"{' '.join(words[0])}", wanted=f"{len(words[0])} names")  # fmt: skip
        return {name: [columns[n] for columns in words] for n, name in enumerate(header)}
    if len(words[0]) >= MANY and len(words) >= SOME and len({columns[0] for columns in words}) == 1:
        raise DataError("the first column holds no words", where=where,
                        found=f"{words[0][0]!r} in {len(words)} lines",
                        wanted="words in the first column, their tags in the last",
                        do="name the columns: --read header=NAME,NAME,… with token for the words, "
                        "tags for their tags")  # fmt: skip
    left = 0
    numbered = [columns[0] for columns in words] == [str(n) for n in range(1, len(words) + 1)]
    if numbered and len(words) > 1 and len(words[0]) > 2:
        words, left = [columns[1:] for columns in words], 1
    marked = [bool(TAG.fullmatch(columns[0])) for columns in words]
    some = len(words) > 2 and len(words[0]) > 1 and any(columns[0] != "O" for columns in words)
    if some and all(marked) and not any(TAG.fullmatch(columns[-1]) for columns in words):
        raise DataError("the tags stand before the words", where=where, found=" ".join(words[0]),
                        wanted="a word, then its tag",
                        do="put the columns in this order")  # fmt: skip
    row: dict[str, Any] = {"tokens": [columns[0] for columns in words]}
    if len(words[0]) > 1:
        row["tags"] = [columns[-1] for columns in words]
    for place in range(1, len(words[0]) - 1):
        row[f"column {place + left + 1}"] = [columns[place] for columns in words]
    return row
