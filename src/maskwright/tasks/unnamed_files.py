"""Files whose endings say no kind: two languages line by line, and texts in the folders of classes.

    train.en, train.de          line n of one is line n of the other; the languages are the columns
    20news/sci.med/59284        a text each, where there are such folders side by side

Such files are looked for in folders that hold no tables; corpus/files.py names the known endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.corpus.files import COMPRESSIONS, Source, shown
from maskwright.corpus.ledger import Ledger, at
from maskwright.corpus.lines import Block
from maskwright.errors import DataError
from maskwright.tasks import class_folders
from maskwright.tasks.parts import ALL, said_by_folder

# en, deu, pt-BR, zh_Hant
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")


@dataclass(frozen=True)
class Parallel(Source):
    """A text and its translation; `path` is the first of the two languages."""

    other: Source
    languages: tuple[str, str]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path, self.other.path)


def sources(paths: Sequence[Path]) -> list[Source]:
    """What `paths`, none of them of a known kind, are; empty where they are none of the two."""
    if found := _parallel(paths):
        return list(found)
    texts = [_text(path, _compression(path)) for path in paths if not path.suffix]
    inside = class_folders.in_folders(texts, lambda name: said_by_folder(name) != ALL)
    return texts if inside else []


def aligned(
    blocks: tuple[Iterable[Block], Iterable[Block]], source: Parallel, ledger: Ledger
) -> Iterator[tuple[dict[str, str], int]]:
    """The rows of two such texts and their lines; those blank in both are counted. The partner of
    a line that was dropped is dropped, too.

    Raises:
        DataError: one of them has more lines.
    """
    first, second = source.languages
    sides = [(each for block in some for each in block.lines()) for some in blocks]
    one, two = (next(side, None) for side in sides)
    while one and two:
        if one[0] == two[0]:
            if one[1].strip() or two[1].strip():
                yield {first: one[1], second: two[1]}, one[0]
            else:
                ledger.counts.blank += 1
            one, two = (next(side, None) for side in sides)
        elif one[0] < two[0]:
            one = next(sides[0], None)
        else:
            two = next(sides[1], None)
    for left, side, file in ((one, sides[0], source), (two, sides[1], source.other)):
        while left and not left[1].strip():
            left = next(side, None)
        if left:
            short = source.other if file is source else source
            raise DataError(
                "two files of one text have different numbers of lines",
                where=at(file.shown, left[0]),
                found=f"a line of which {short.shown} has none",
                wanted="line n of one to be the translation of line n of the other",
                do="align the files anew",
            )


def _parallel(paths: Sequence[Path]) -> list[Parallel]:
    """Pairs of files that differ in their last ending alone, which is a language and the same two
    in every pair."""
    by_name: dict[Path, dict[str, Source]] = {}
    for path in paths:
        compression = _compression(path)
        plain = path.with_suffix("") if compression else path
        language = plain.suffix.removeprefix(".")
        if LANGUAGE.fullmatch(language):
            by_name.setdefault(plain.with_suffix(""), {})[language] = _text(path, compression)
    named = [tuple(sorted(texts)) for texts in by_name.values()]
    if not named or len(set(named)) > 1 or len(named[0]) != 2:
        return []
    first, second = named[0]
    return [
        Parallel(**vars(texts[first]), other=texts[second], languages=(first, second))
        for texts in by_name.values()
    ]


def _compression(path: Path) -> str | None:
    return COMPRESSIONS.get(path.suffix.lower())


def _text(path: Path, compression: str | None) -> Source:
    return Source(path, shown(path), ".txt", compression)
