"""Files whose endings name no format: two languages line by line, words with tags, and texts in the
folders of classes.

    train.en, train.de          line n of one is line n of the other; the languages are the columns
    test.en                     a text in one language, to be answered
    esp.train, esp.testa        words with tags, as CoNLL 2002 and 2003 name them
    20news/sci.med/59284        a text each, where there are such folders side by side

Such files are looked for in folders in which no ending names a format (text/corpus/files.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.files import COMPRESSIONS, Source, shown
from maskwright.text.corpus.ledger import Ledger, at
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.tables.formats import class_folders
from maskwright.text.tables.split_files import says_part

# ISO 639-1, also with a region or a script: pt-BR, zh_Hant; and deu_Latn.
CODES = (
    "a[abefkmnrsvyz]|b[aeghimnors]|c[aehorsuvy]|d[aevz]|e[elnostu]|f[afijory]|g[adlnuv]|"
    "h[aeiortuyz]|i[adegikostu]|j[av]|k[agijklmnorsuvwy]|l[abginotuv]|m[ghiklnrsty]|"
    "n[abdeglnorvy]|o[cjmrs]|p[ailst]|q[u]|r[mnouw]|s[acdegiklmnoqrstuvw]|"
    "t[aeghiklnorstwy]|u[gkrz]|v[eio]|w[ao]|x[h]|y[io]|z[ahu]"
)
WORDS = re.compile(r"[a-z]{3}\.(train|testa|testb|testc)")
LANGUAGE = re.compile(rf"({CODES})([-_][A-Za-z]{{2,4}})?|[a-z]{{3}}_[A-Z][a-z]{{3}}")


@dataclass(frozen=True)
class ParallelText(Source):
    """A text and its translation; `path` is the first of the two languages."""

    other: Source
    languages: tuple[str, str]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path, self.other.path)


def sources(paths: Sequence[Path]) -> list[Source]:
    """What `paths` are, none of which have a known format; empty where they are neither."""
    if pair := _parallel(paths):
        return list(pair)
    if words := [path for path in paths if WORDS.fullmatch(_plain(path).name)]:
        return _of_one_language(words)
    texts = [_text(path, _compression(path)) for path in paths if not path.suffix]
    if class_folders.in_folders(texts, says_part):
        return texts
    return [
        _text(path, _compression(path))
        for path in paths
        if LANGUAGE.fullmatch(_plain(path).suffix.removeprefix("."))
    ]


def _of_one_language(paths: Sequence[Path]) -> list[Source]:
    """Files of words with tags, as CoNLL 2002 and 2003 name them.

    Raises:
        UsageError: they are of several languages.
    """
    if len(languages := {path.name.partition(".")[0] for path in paths}) > 1:
        raise UsageError(
            "files of several languages",
            where=paths[0].parent,
            found=", ".join(path.name for path in paths),
            wanted="those of one",
            do=f"put each into a folder of its own, as {min(languages)}/",
        )
    return [Source(path, shown(path), ".conll", _compression(path)) for path in paths]


def aligned(
    blocks: tuple[Iterable[TextBlock], Iterable[TextBlock]], source: ParallelText, ledger: Ledger
) -> Iterator[tuple[dict[str, str], int]]:
    """The rows of two such texts and their lines; those blank in both are counted. The partner of
    a line that was dropped is dropped, too.

    Raises:
        DataError: one of them has more lines.
    """
    first, second = source.languages
    before, dropped = ledger.counts.rejected, 0
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
            one, dropped = next(sides[0], None), dropped + 1
        else:
            two, dropped = next(sides[1], None), dropped + 1
    for left, side, file in ((one, sides[0], source), (two, sides[1], source.other)):
        rest = [left, *side] if left else []
        more = [number for number, line in rest if line.strip()]
        if len(more) > ledger.counts.rejected - before - dropped:  # else partners of bad lines
            short = source.other if file is source else source
            raise DataError(
                "two files of one text have different numbers of lines",
                where=at(file.shown, more[0]),
                found=f"a line of which {short.shown} has none",
                wanted="line n of one to be the translation of line n of the other",
                do="align the files again",
            )


def _parallel(paths: Sequence[Path]) -> list[ParallelText]:
    """Pairs of files that differ in their last ending alone, which is a language and the same two
    in every pair; a file without another is in none."""
    by_name: dict[Path, dict[str, Source]] = {}
    for path in paths:
        compression, plain = _compression(path), _plain(path)
        language = plain.suffix.removeprefix(".")
        if LANGUAGE.fullmatch(language):
            by_name.setdefault(plain.with_suffix(""), {})[language] = _text(path, compression)
    pairs = [texts for texts in by_name.values() if len(texts) > 1]
    named = {tuple(sorted(texts)) for texts in pairs}
    if len(named) != 1 or len(languages := named.pop()) != 2:
        return []
    first, second = languages
    return [
        ParallelText(**vars(texts[first]), other=texts[second], languages=(first, second))
        for texts in pairs
    ]


def _plain(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if _compression(path) else path


def _compression(path: Path) -> str | None:
    return COMPRESSIONS.get(path.suffix.lower())


def _text(path: Path, compression: str | None) -> Source:
    return Source(path, shown(path), ".txt", compression)
