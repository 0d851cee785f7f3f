"""Tables of a word a row, whose sentences a column numbers, to a row for each sentence:

    Sentence #,Word,POS,Tag
    Sentence: 1,Kalomi,NNP,B-PER        {"Sentence #": "Sentence: 1", "Word": ["Kalomi", "sat"],
    ,sat,VBD,O                           "POS": ["NNP", "VBD"], "Tag": ["B-PER", "O"]}

An empty number is that of the row before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from maskwright.corpus.ledger import Ledger, at
from maskwright.errors import DataError
from maskwright.labelled.columns.spellings import plain

WORDS = ("word", "words", "token", "tokens")
SENTENCES = (
    *("sentence", "sentenceid", "sentenceidx", "sentenceno", "sentencenumber", "sentid"),
    *("sentno", "sentidx", "sent"),
)
NUMBERED = re.compile(r"(sent(ence)?)?\W*\d+(\.0)?", re.IGNORECASE)


def columns_of(names: Sequence[str], first: Sequence[str]) -> tuple[str, str] | None:
    """(what numbers the sentences, what holds the words) by the header and the first row below
    it; None of another table."""
    called = {plain(name): name for name in names}
    number, word = (
        next((called[spelling] for spelling in spellings if spelling in called), None)
        for spellings in (SENTENCES, WORDS)
    )
    if number is None or word is None:
        return None
    one = dict(zip(names, first, strict=True))
    single = len(one[word].split()) == 1 and not one[word].lstrip().startswith("[")
    return (number, word) if single and NUMBERED.fullmatch(one[number].strip()) else None


def sentences(
    rows: Iterable[tuple[Mapping[str, str], int]],
    number: str,
    word: str,
    file: str,
    ledger: Ledger,
) -> Iterator[tuple[dict[str, Any], int]]:
    """The sentences, each with the line that it begins at.

    Raises:
        DataError: a row without a word, when the policy is strict.
    """
    sentence: dict[str, Any] = {}
    start_line = 0
    for values, line in rows:
        if not values[word].strip():
            ledger.reject(
                DataError(
                    "the word is missing",
                    where=at(file, line),
                    found=repr(values[word]),
                    wanted=f"one in the column {word!r}",
                    do="correct the row",
                ),
                file=file,
                line=line,
            )
            continue
        named = values[number].strip() or sentence.get(number, "")
        if named != sentence.get(number):
            if sentence:
                yield sentence, start_line
            sentence, start_line = {number: named}, line
        for name, value in values.items():
            if name != number:
                sentence.setdefault(name, []).append(value)
    if sentence:
        yield sentence, start_line
