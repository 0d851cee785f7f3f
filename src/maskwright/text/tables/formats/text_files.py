"""Labelled texts without a table, and files whose endings determine no format.

    reviews/train/pos/1.txt       one text per file, in folders named after their classes
    20news/sci.med/59284          the same without endings, if there are several such folders
    __label__pos What a film!     lines that begin with the label, in the format of fastText
    train.en, train.de            line n of one translates line n of the other
    test.en                       a text in one language, for prediction
    esp.train, esp.testa          tagged words, as named in CoNLL 2002 and 2003

Texts in a folder `unsup` or `unlabelled`, and those next to the class folders, have no label and
are not read. Unknown endings are only looked at in folders without known ones
(text/corpus/files.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import COMPRESSIONS, Source, shown
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import Ledger, line_in
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION

LABEL = "__label__"
MULTI_LABEL = re.compile(rf"^{LABEL}\S+[ \t]+{LABEL}", re.MULTILINE)
LABELS = re.compile(rf"({LABEL}\S*\s*)*")
UNLABELLED = ("unsup", "unlabelled", "unlabeled")
# Words in the names of files and folders -> the part that they name.
PART_WORDS = {
    **dict.fromkeys(("train", "training", "trn"), TRAIN),
    **dict.fromkeys(
        ("validation", "valid", "val", "dev", "development", "eval", "testa"), VALIDATION
    ),
    **dict.fromkeys(("test", "tst", "testing", "testb", "testc"), TEST),
}
WORD = re.compile(r"[A-Za-z]+")
# ISO 639-1, also with a region or a script: pt-BR, zh_Hant; and deu_Latn.
CODES = (
    "a[abefkmnrsvyz]|b[aeghimnors]|c[aehorsuvy]|d[aevz]|e[elnostu]|f[afijory]|g[adlnuv]|"
    "h[aeiortuyz]|i[adegikostu]|j[av]|k[agijklmnorsuvwy]|l[abginotuv]|m[ghiklnrsty]|"
    "n[abdeglnorvy]|o[cjmrs]|p[ailst]|q[u]|r[mnouw]|s[acdegiklmnoqrstuvw]|"
    "t[aeghiklnorstwy]|u[gkrz]|v[eio]|w[ao]|x[h]|y[io]|z[ahu]"
)
CONLL_NAME = re.compile(r"[a-z]{3}\.(train|testa|testb|testc)")
LANGUAGE = re.compile(rf"({CODES})([-_][A-Za-z]{{2,4}})?|[a-z]{{3}}_[A-Z][a-z]{{3}}")


# ------------------------------------------------------------------------------ class folders
def part_of_folder(folder: str) -> str:
    """Return the part named by the last word of a folder, as in `20news-bydate-train`, or `ALL`."""
    words = WORD.findall(folder.lower())
    return PART_WORDS.get(words[-1], ALL) if words else ALL


def says_part(folder: str) -> bool:
    """Whether the name of a folder ends with that of a part."""
    return part_of_folder(folder) != ALL


def in_folders(files: Sequence[Source], says_part: Callable[[str], bool]) -> list[Source]:
    """Return the texts in class folders; empty without two class folders next to each other, or if
    there are files of other formats.

    Args:
        says_part: returns whether a folder of a name holds a part.

    Raises:
        UsageError: a folder next to class folders may be a class or a part.
    """
    if any(source.format != "text" for source in files):
        return []
    text_folders = {source.path.parent for source in files}
    parent_folders = {folder for path in text_folders for folder in path.parents}
    leaves = {
        folder for folder in text_folders - parent_folders if folder.name.lower() not in UNLABELLED
    }
    folders = {folder for folder in leaves if not says_part(folder.name)}
    between_classes = {
        folder
        for folder in leaves - folders
        if any(folder_of_class.parent == folder.parent for folder_of_class in folders)
    }
    if ambiguous := sorted(folder for folder in between_classes if folder.name.isalpha()):
        raise UsageError(
            "a folder that may be a class or a part",
            where=ambiguous[0],
            found=f"texts in it, next to {min(folders).name}",
            wanted="folders of classes in those of parts, as train/pos",
            do="rename it, if it is a class; else move it out",
        )
    folders |= between_classes  # such as `blood-test`, which is not the name of a part
    parents = {folder.parent for folder in folders}
    folders_apart = len(parents) == 1 or all(says_part(folder.name) for folder in parents)
    if not folders_apart or len({folder.name for folder in folders}) < 2:
        return []
    return [source for source in files if source.path.parent in folders]


def whole_text(blocks: Iterable[TextBlock], path: Path) -> dict[str, str]:
    """Return a file in a class folder as a row.

    Raises:
        DataError: the file holds JSON.
    """
    text = "".join(block.text for block in blocks).strip("\n")
    if text.startswith("{") and _is_json(text):
        raise DataError(
            "a file of JSON in the place of a text",
            where=str(path),
            found=repr(text[:60]),
            wanted="a text",
            do="name such files .json, and take them out of the folders of their "
            "classes if they hold the labels",
        )
    return {"text": text, "label": path.parent.name}


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except DataError:
        return False
    return True


def lines(
    blocks: Iterable[TextBlock], multi_label: bool, file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, line number) of a fastText file; with `multi_label` labels are lists.

    Raises:
        DataError: a line without a label, or with too many, when the policy is strict.
    """
    for number, line in (numbered_line for block in blocks for numbered_line in block.lines()):
        if not line.strip():
            ledger.counts.blank += 1
            continue
        match = LABELS.match(line)
        end = match.end() if match else 0
        labels = [word.removeprefix(LABEL).rstrip(",") for word in line[:end].split()]
        if not all(labels) or not labels or (len(labels) > 1 and not multi_label):
            message = "a line with several labels" if all(labels) and labels else ""
            fault = DataError(
                message or "a line without a label",
                where=line_in(file, number),
                found=repr(line[:80]),
                wanted=f"{LABEL}NAME, then the text",
                do="correct the line, or take it out",
            )
            ledger.reject(fault, file=file, line=number)
            continue
        yield {"text": line[end:], "label": labels if multi_label else labels[0]}, number


# ------------------------------------------------------------------------------ other endings
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
    if conll_paths := [path for path in paths if CONLL_NAME.fullmatch(_plain(path).name)]:
        return _tagged_words(conll_paths)
    texts = [_text(path, _compression(path)) for path in paths if not path.suffix]
    if in_folders(texts, says_part):  # else files without an ending are not read
        return texts
    return [
        _text(path, _compression(path))
        for path in paths
        if LANGUAGE.fullmatch(_plain(path).suffix.removeprefix("."))
    ]


def _tagged_words(paths: Sequence[Path]) -> list[Source]:
    """Return the sources of files of tagged words, which have to be of one language."""
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
    sides: list[dict[int, str]] = []
    num_lines: list[int] = []
    for side_blocks in blocks:
        rows_before = ledger.counts.rows  # reading the blocks counts their rows, also rejected ones
        sides.append(dict(line for block in side_blocks for line in block.lines()))
        num_lines.append(ledger.counts.rows - rows_before)
    for lines, file, shorter in (
        (sides[0], source, source.other),
        (sides[1], source.other, source),
    ):
        extra = (number for number in lines if number > min(num_lines) and lines[number].strip())
        if (number := next(extra, None)) is not None:
            raise DataError(
                "two files of one text have different numbers of lines",
                where=line_in(file.shown, number),
                found=f"a line of which {shorter.shown} has none",
                wanted="line n of one to be the translation of line n of the other",
                do="align the files again",
            )
    for number in sorted(sides[0].keys() & sides[1].keys()):
        pair = [side[number] for side in sides]
        if any(map(str.strip, pair)):
            yield dict(zip(source.languages, pair, strict=True)), number
        else:
            ledger.counts.blank += 1


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
