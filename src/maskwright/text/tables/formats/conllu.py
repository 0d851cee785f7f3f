"""Read sentences of a treebank in CoNLL-U, the format of Universal Dependencies: one word per line,
ten columns separated by tabs, an empty line between sentences.

1   The   the   DET    DT   …   2   det   _   _        {"tokens": ["The", "cat"],
2   cat   cat   NOUN   NN   …   3   nsubj _   _    ->   "upos": ["DET", "NOUN"],
                                                        "xpos": …, "deprel": …, "lemma": …}

Of multiword tokens ("zum": "zu", "dem"; numbered 3-4) the words are read; empty nodes (8.1) are
left out. A column that has only "_" in a sentence is left out of its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import OR_SKIP, Ledger, line_in

COLUMNS = 10
LOOKED_AT = 1000  # lines
# Number of a word, a multiword token (3-4), or an empty node (8.1).
NUMBER = re.compile(r"\d+([-.]\d+)?")
# (line number of a word, its columns).
NumberedWord = tuple[int, list[str]]
WORD, HEAD, NOTHING = 1, 6, "_"
# Names by index; upos is used as tags unless the user names another column.
ANNOTATION_COLUMNS = {3: "upos", 4: "xpos", 7: "deprel", 2: "lemma"}


def is_one(text: str, may_be_table: bool) -> bool:
    """Whether a file that begins with `text` is CoNLL-U, whatever its name: all lines of the first
    sentences have ten tab-separated columns, and the first numbers the words. If it `may_be_table`
    with numbered rows, separated sentences and numbers of heads are also required."""
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")[:LOOKED_AT]]
    last_number, words, ends = 0, 0, 0
    for line in lines:
        if not line.strip() or line.startswith("#"):
            last_number, ends = 0, ends + 1
            continue
        columns = line.split("\t")
        if len(columns) != COLUMNS or not NUMBER.fullmatch(columns[0]):
            return False
        if columns[0].isdecimal():
            if int(columns[0]) != last_number + 1:
                return False
            if may_be_table and columns[HEAD] != NOTHING and not columns[HEAD].isdecimal():
                return False
            last_number, words = last_number + 1, words + 1
    return words > 0 and (ends > 0 or not may_be_table)


def rows(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, line of its first word) for each sentence of a file.

    Raises:
        DataError: a line without ten columns, or a blank word, when the policy is strict.
    """
    for sentence in sentences(blocks, file, ledger):
        words = [columns for _, columns in sentence]
        row = {"tokens": [word[WORD] for word in words]}
        for column, name in ANNOTATION_COLUMNS.items():
            if any(word[column] != NOTHING for word in words):
                row[name] = [word[column] for word in words]
        yield row, sentence[0][0]


def sentences(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[list[NumberedWord]]:
    """Yield the words of each sentence; with the policy skip, one with a bad line is dropped.

    Raises:
        DataError: a line without ten columns, or a blank word, when the policy is strict.
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
    """Yield (number, line), with None for an empty line and once more after the last. Lines are
    subtracted from the ledger's count of rows, as rows are sentences here."""
    number = 0
    for block in blocks:
        for number, line in block.lines():
            if ledger is not None:
                ledger.counts.rows -= 1
            yield number, line if line.strip(" \t\r") else None
    yield number + 1, None


def blank_word(where: str, line: str) -> DataError:
    """Return the error for a word of white space only."""
    return DataError(
        "a word of blanks",
        where=where,
        found=repr(line[:60]),
        wanted="a word, and its tag behind it",
        do=f"correct or remove the line, {OR_SKIP}",
    )
