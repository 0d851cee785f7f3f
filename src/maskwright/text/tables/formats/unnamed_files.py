"""Files whose endings determine no format: line-aligned texts in two languages, tagged words, and
texts in class folders.

    train.en, train.de          line n of one translates line n of the other; a column per language
    test.en                     a text in one language, for prediction
    esp.train, esp.testa        tagged words, as named in CoNLL 2002 and 2003
    20news/sci.med/59284        one text per file, if there are several such folders

They are searched for in folders without known file endings (text/corpus/files.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.files import COMPRESSIONS, Source, shown
from maskwright.text.corpus.ledger import Ledger, line_in
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
    """Return the sources of `paths`, whose endings determine no format; empty if none is known."""
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
    """Return files of tagged words with the names of CoNLL 2002 and 2003.

    Raises:
        UsageError: the files are of several languages.
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
    """Yield (row, line number) for each pair of aligned lines; lines blank in both are counted. The
    partner of a rejected line is dropped.

    Raises:
        DataError: one text has more lines.
    """
    first_language, second_language = source.languages
    rejected_before, unpaired = ledger.counts.rejected, 0
    sides = [
        (numbered_line for block in side_blocks for numbered_line in block.lines())
        for side_blocks in blocks
    ]
    first_line, second_line = (next(side, None) for side in sides)
    while first_line and second_line:
        if first_line[0] == second_line[0]:
            if first_line[1].strip() or second_line[1].strip():
                yield (
                    {first_language: first_line[1], second_language: second_line[1]},
                    first_line[0],
                )
            else:
                ledger.counts.blank += 1
            first_line, second_line = (next(side, None) for side in sides)
        elif first_line[0] < second_line[0]:
            first_line, unpaired = next(sides[0], None), unpaired + 1
        else:
            second_line, unpaired = next(sides[1], None), unpaired + 1
    for current, side, file in (
        (first_line, sides[0], source),
        (second_line, sides[1], source.other),
    ):
        rest = [current, *side] if current else []
        extra_lines = [number for number, line in rest if line.strip()]
        if (
            len(extra_lines) > ledger.counts.rejected - rejected_before - unpaired
        ):  # else partners of bad lines
            shorter = source.other if file is source else source
            raise DataError(
                "two files of one text have different numbers of lines",
                where=line_in(file.shown, extra_lines[0]),
                found=f"a line of which {shorter.shown} has none",
                wanted="line n of one to be the translation of line n of the other",
                do="align the files again",
            )


def _parallel(paths: Sequence[Path]) -> list[ParallelText]:
    """Return the pairs of files that differ only in their last ending, a language; empty unless all
    pairs have the same two languages. Unpaired files are left out."""
    by_name: dict[Path, dict[str, Source]] = {}
    for path in paths:
        compression, plain = _compression(path), _plain(path)
        language = plain.suffix.removeprefix(".")
        if LANGUAGE.fullmatch(language):
            by_name.setdefault(plain.with_suffix(""), {})[language] = _text(path, compression)
    pairs = [texts for texts in by_name.values() if len(texts) > 1]
    language_pairs = {tuple(sorted(texts)) for texts in pairs}
    if len(language_pairs) != 1 or len(languages := language_pairs.pop()) != 2:
        return []
    first_language, second_language = languages
    return [
        ParallelText(
            **vars(texts[first_language]),
            other=texts[second_language],
            languages=(first_language, second_language),
        )
        for texts in pairs
    ]


def _plain(path: Path) -> Path:
    """Return the path without the ending of a compression."""
    return path.with_suffix("") if _compression(path) else path


def _compression(path: Path) -> str | None:
    return COMPRESSIONS.get(path.suffix.lower())


def _text(path: Path, compression: str | None) -> Source:
    return Source(path, shown(path), ".txt", compression)
