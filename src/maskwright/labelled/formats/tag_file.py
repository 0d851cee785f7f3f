"""Sentences whose words have tags, and the files they come in.

{"tokens": ["Kalomi", "sat"], "tags": ["B-PER", "O"]}        a row of JSON Lines

Kalomi NNP B-PER                                             columns, as CoNLL has them: a word
sat    VBD O                                                 a line, an empty line between
                                                             sentences; -DOCSTART- lines and
Tion   NNP B-LOC                                             comments before a sentence, such
                                                             as "# id 7", are no words

The columns can be named instead (`header`); the user has to name them where the first holds no
words, or another looks like tags and the last does not. Columns are apart by tabs where a line has
one, so that a word may hold blanks; else by blanks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from maskwright.corpus.ledger import OR_SKIP, Counts, Ledger, at
from maskwright.corpus.lines import Block
from maskwright.corpus.reading import Reading
from maskwright.errors import DataError
from maskwright.labelled.formats.conllu_file import blank_word, sentence_lines
from maskwright.labelled.formats.word_columns import TAG, Layout, layout_of

DOCUMENT = "-DOCSTART-"
# As CoNLL-U and MultiCoNER write them; a tweet may begin with the word "#".
COMMENT = re.compile(
    r"#\s*([\w.:]+\s*=|(id|newdoc|newpar|doc(ument)?|sent(ence)?|(begin|end) document)\b)", re.I
)
LOOKED_AT = 200  # lines
LAST = re.compile(r"O|[BIESLUM](-\w.*)?")  # of one entity type, which has no name


@dataclass(frozen=True)
class Sentence:
    """Words and, where they are known, a tag for each, None where that of a word is not; checked
    when it is made.

    Attributes:
        text: what the words stand in, in order; by default the words with a blank between them.
        where: file and row, for messages.
    Raises:
        DataError: not one tag for each word, or a word that is not in the text.
    """

    words: tuple[str, ...]
    tags: tuple[str | None, ...] | None = None
    text: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if self.tags is not None and len(self.words) != len(self.tags):
            raise DataError(
                "words and tags differ in number",
                where=self.where or None,
                found=f"{len(self.tags)} tags",
                wanted=f"{len(self.words)}, one for each word",
                do="correct the row",
            )
        if not self.text:
            object.__setattr__(self, "text", " ".join(self.words))
        self.spans  # noqa: B018  a word that is not in the text is refused here

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """(begin, end) in the text of each word."""
        spans, at = [], 0
        for number, word in enumerate(self.words, 1):
            begin = self.text.find(word, at)
            if begin < 0:
                raise DataError(
                    "a word that is not in the text",
                    where=self.where or None,
                    found=f"{word!r}, word {number}",
                    wanted=f"a part of {self.text[at : at + 40]!r}",
                    do="correct the row",
                )
            at = begin + len(word)
            spans.append((begin, at))
        return tuple(spans)


# ------------------------------------------------------------------------------ files
def is_one(text: str) -> bool:
    """Whether a .tsv that begins with `text` is such a file, and no table with a header: a word
    and its tag in the first line, and lines of as many columns with tags up to an empty one."""
    lines = text.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
    words = [line.split("\t") for line in lines[0].split("\n")]
    if len(words) > 1 and words[0][0].startswith("#") and len(words[0]) != len(words[1]):
        words = words[1:]  # a comment
    width = len(words[0])
    if not lines[1] or width < 2 or any(len(columns) != width for columns in words):
        return False
    return all(len(columns[0].split()) <= 1 for columns in words) and any(
        all(LAST.fullmatch(columns[place]) for columns in words) for place in range(width)
    )


def is_words(text: str) -> bool:
    """Whether a text that begins so is words with tags, and no prose: columns of which one holds
    tags of entities or chunks in every line, up to an empty one."""
    lines = text.split("\n")[:LOOKED_AT]
    if lines and lines[0].startswith(DOCUMENT):
        return True
    if "" not in (line.strip() for line in lines):
        return False  # no sentence ends
    words = [_columns(line) for line in lines if line.strip() and not COMMENT.match(line)]
    width = len(words[0]) if words else 0
    if width < 2 or any(len(columns) != width for columns in words):
        return False
    columns = [{line[place] for line in words} for place in range(width)]
    return any(values != {"O"} and all(map(TAG.fullmatch, values)) for values in columns)


def rows(
    blocks: Iterable[Block], file: str, header: Sequence[str] = (), ledger: Ledger | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """The sentences of a file of columns as rows `{"tokens": […], "tags": […]}`, each with the line
    that it begins at. The first column is the word, the last its tag; a single column has none, and
    one that numbers the words is none; those between are called by their places, `column 2`. A
    sentence with a bad line is dropped whole, where that is the policy.

    Args:
        blocks: the lines.
        file: the name, for messages.
        header: the names of all columns, where it is not so.
        ledger: takes the bad sentences; without one, a bad line stops the reading.

    Raises:
        DataError: columns that seem to be something else; when the policy is strict, a line with
            another number of columns than the others, or a word of blanks.
        UsageError: more or fewer names than columns.
    """
    blocks, ledger = iter(blocks), ledger or Ledger(Reading(), Counts(), None)
    first = next(blocks, None)
    if first is None:
        return
    sample = list(_sentences(iter([first]), file, None, 0))
    widths = [len(words[0]) for words, _ in sample]
    usual = max(set(widths), key=widths.count, default=0)
    layouts: dict[int, Layout] = {}  # sentences of another width are looked at by themselves
    for words, line in _sentences(itertools.chain([first], blocks), file, ledger, usual):
        width = len(words[0])
        if width not in layouts:
            alike = [each for each in sample if len(each[0][0]) == width] or [(words, line)]
            where = at(file, alike[0][1])
            layouts[width] = layout_of([words for words, _ in alike], where, header)
        yield layouts[width].row(words), line


def _sentences(
    blocks: Iterator[Block], file: str, ledger: Ledger | None, usual: int
) -> Iterator[tuple[list[list[str]], int]]:
    """The columns of each line of each sentence, and its first line; without a ledger, of those
    that have no fault. `usual` is the number of columns of most sentences."""
    words: list[list[str]] = []
    start_line, fault = 0, None
    for number, line in sentence_lines(blocks, ledger):
        columns = _columns(line) if line is not None else []
        if line is None or not columns or columns[0] == DOCUMENT:
            if ledger is not None:
                ledger.counts.rows += start_line > 0
            if fault is not None and ledger is not None:
                ledger.reject(fault, file=file, line=start_line, last=number - 1, rows=1)
            elif words and fault is None:
                yield words, start_line
            words, start_line, fault = [], 0, None
            continue
        if not words and COMMENT.match(line):
            continue
        if len(words) == 1 and words[0][0].startswith("#") and len(columns) != len(words[0]):
            words, fault = [], None  # it was a comment, such as a source: "#", "http://…"
        start_line = start_line if words else number
        width = len(words[0]) if words else len(columns)
        fault = fault or _fault(line, columns, width, usual, at(file, number))
        if fault is not None and ledger is not None and ledger.reading.on_bad == "strict":
            raise fault
        words.append(columns)


def _fault(line: str, columns: list[str], width: int, usual: int, where: str) -> DataError | None:
    if "\r" in line:
        return DataError(
            "a carriage return within a line",
            where=where,
            found=repr(line[:60]),
            wanted="lines that end with LF or CRLF",
            do=f"do lines end in CR? then read with line_ends='any', {OR_SKIP}",
        )
    if len(columns) < max(width, usual) and len(columns) == usual - 1 and line[:1] in " \t":
        return blank_word(where, line)
    if len(columns) == width and not width == 1 < usual:
        return None
    return DataError(
        "a line with another number of columns than the one before",
        where=where,
        found=f"{len(columns)}: {line[:60]!r}",
        wanted=f"{max(width, usual) if width == 1 else width}",
        do=f"correct the line (between sentences is an empty one), {OR_SKIP}",
    )


def _columns(line: str) -> list[str]:
    apart = line.split("\t") if "\t" in line else line.split(" ")
    return [column.strip(" ") for column in apart if column.strip(" ")]
