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

from collections.abc import Iterable, Iterator
from typing import Any

from maskwright.corpus.ledger import at
from maskwright.corpus.lines import Block
from maskwright.errors import DataError

COLUMNS = 10
# The line that a word stands at, and its columns.
NumberedWord = tuple[int, list[str]]
WORD, NOTHING = 1, "_"
# By place; upos is taken for tags, another where that is said.
TOLD = {3: "upos", 4: "xpos", 7: "deprel", 2: "lemma"}


def is_treebank(text: str) -> bool:
    """Whether a text that begins so is of this kind: ten columns apart by tabs, the first of which
    numbers the words."""
    lines = [line for line in text.split("\n")[:20] if line.strip() and not line.startswith("#")]
    columns = [line.split("\t") for line in lines]
    return bool(columns) and columns[0][0] == "1" and all(len(each) == 10 for each in columns)


def rows(blocks: Iterable[Block], file: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The sentences of a file as rows, each with the line of its first word.

    Raises:
        DataError: a line without ten columns.
    """
    for numbered in sentences(blocks, file):
        words = [columns for _, columns in numbered]
        row = {"tokens": [word[WORD] for word in words]}
        for place, name in TOLD.items():
            if any(word[place] != NOTHING for word in words):
                row[name] = [word[place] for word in words]
        yield row, numbered[0][0]


def sentences(blocks: Iterable[Block], file: str) -> Iterator[list[NumberedWord]]:
    """The words of each sentence.

    Raises:
        DataError: a line without ten columns.
    """
    words: list[NumberedWord] = []
    for block in blocks:
        for number, line in block.lines():
            if not line.strip():
                if words:
                    yield words
                words = []
            elif not line.startswith("#"):
                columns = line.split("\t")
                if len(columns) != COLUMNS:
                    raise DataError(
                        "not a line of CoNLL-U",
                        where=at(file, number),
                        found=f"{len(columns)} columns: {line[:60]!r}",
                        wanted=f"{COLUMNS}, apart by tabs",
                        do="correct the line; a file of words and tags alone is called .conll",
                    )
                if columns[0].isdecimal():
                    words.append((number, columns))
    if words:
        yield words
