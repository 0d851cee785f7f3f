"""Sentences of a treebank in CoNLL-U, the format of Universal Dependencies: a word a line, ten
columns apart by tabs, an empty line between sentences.

1   The   the   DET    DT   …   2   det   _   _        {"tokens": ["The", "cat"],
2   cat   cat   NOUN   NN   …   3   nsubj _   _    ->   "upos": ["DET", "NOUN"],
                                                        "xpos": …, "deprel": …, "lemma": …}

Where several words are written as one ("zum": "zu", "dem") the words are meant, not what is written
(the lines 3-4); words that are not there (empty nodes, 8.1) are left out. A column with nothing but
"_" in a sentence is not one of its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.corpus.ledger import OR_SKIP, Ledger, line_in
from maskwright.text.corpus.lines import TextBlock

COLUMNS = 10
LOOKED_AT = 1000  # lines
# A word, a word written as one with others (3-4), one that is not there (8.1).
NUMBER = re.compile(r"\d+([-.]\d+)?")
# The line that a word stands at, and its columns.
NumberedWord = tuple[int, list[str]]
WORD, HEAD, NOTHING = 1, 6, "_"
# By place; upos is taken for tags, unless another is given.
ANNOTATION_COLUMNS = {3: "upos", 4: "xpos", 7: "deprel", 2: "lemma"}


def is_one(text: str, may_be_table: bool) -> bool:
    """Whether a file that begins with `text` is CoNLL-U whatever its name ends in: all lines
    of its first sentences have ten columns apart by tabs, and the first numbers the words. One that
    `may_be_table`, whose rows may be numbered, has sentences apart and numbers of heads, too."""
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")[:LOOKED_AT]]
    before, words, ends = 0, 0, 0
    for line in lines:
        if not line.strip() or line.startswith("#"):
            before, ends = 0, ends + 1
            continue
        columns = line.split("\t")
        if len(columns) != COLUMNS or not NUMBER.fullmatch(columns[0]):
            return False
        if columns[0].isdecimal():
            if int(columns[0]) != before + 1:
                return False
            if may_be_table and columns[HEAD] != NOTHING and not columns[HEAD].isdecimal():
                return False
            before, words = before + 1, words + 1
    return words > 0 and (ends > 0 or not may_be_table)


def rows(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """The sentences of a file as rows, each with the line of its first word.

    Raises:
        DataError: a line without ten columns, or a word of blanks, when the policy is strict.
    """
    for numbered in sentences(blocks, file, ledger):
        words = [columns for _, columns in numbered]
        row = {"tokens": [word[WORD] for word in words]}
        for column, name in ANNOTATION_COLUMNS.items():
            if any(word[column] != NOTHING for word in words):
                row[name] = [word[column] for word in words]
        yield row, numbered[0][0]


def sentences(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[list[NumberedWord]]:
    """The words of each sentence; one with a bad line is dropped whole, where that is the policy.

    Raises:
        DataError: a line without ten columns, or a word of blanks, when the policy is strict.
    """
    words: list[NumberedWord] = []
    fault: DataError | None = None
    start_line = 0
    for number, line in sentence_lines(blocks, ledger):
        if line is None:
            ledger.counts.rows += start_line > 0
            if fault is not None:
                ledger.reject(fault, file=file, line=start_line, last_line=number - 1, rows=1)
            elif words:
                yield words
            words, fault, start_line = [], None, 0
        elif not line.startswith("#"):
            start_line = start_line or number
            columns = line.split("\t")
            if len(columns) != COLUMNS:
                error = DataError(
                    "not a line of CoNLL-U",
                    where=line_in(file, number),
                    found=f"{len(columns)} columns: {line[:60]!r}",
                    wanted=f"{COLUMNS}, apart by tabs",
                    do="correct the line; a file of words and tags alone is called .conll; "
                    f"{OR_SKIP}",
                )
                fault = fault or error
            elif columns[0].isdecimal():
                if not columns[WORD].strip(" "):
                    fault = fault or blank_word(line_in(file, number), line)
                words.append((number, columns))
            if fault is not None and ledger.reading.on_bad == "strict":
                raise fault


def sentence_lines(
    blocks: Iterable[TextBlock], ledger: Ledger | None
) -> Iterator[tuple[int, str | None]]:
    """Each line with its number; None in place of an empty one, and once more behind the last. The
    lines are taken out of the ledger's count of rows: sentences are rows here."""
    number = 0
    for block in blocks:
        for number, line in block.lines():
            if ledger is not None:
                ledger.counts.rows -= 1
            yield number, line if line.strip(" \t\r") else None
    yield number + 1, None


def blank_word(where: str, line: str) -> DataError:
    """The error for a word of blanks only."""
    return DataError(
        "a word of blanks",
        where=where,
        found=repr(line[:60]),
        wanted="a word, and its tag behind it",
        do=f"correct or remove the line, {OR_SKIP}",
    )
