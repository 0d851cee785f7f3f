"""The texts of evaluation files: every column that holds text, of any format that can be read.

Running text (`.txt`, `.md`) gives its documents, everything else its rows: labelled rows, questions
with their contexts, tagged words. A list of single words is one text; other lists are one text for
each item. Files that only name classes (`labels.json`) are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.corpus.files import Source, find_all
from maskwright.corpus.read import Reader
from maskwright.labelled.formats import unnamed_files
from maskwright.labelled.formats.parts import separate_class_names
from maskwright.labelled.formats.rows import read_rows


@dataclass(frozen=True)
class EvaluationText:
    """A text of an evaluation file.

    Attributes:
        file: as the user named it.
        row: its number in the file, from 1; a line, row or item, as the format counts.
        unit: what `row` counts.
        column: where the text stands; empty in running text.
    """

    file: str
    row: int
    unit: str
    column: str
    text: str

    @property
    def place(self) -> str:
        column = f", {self.column}" if self.column else ""
        return f"{self.file}, {self.unit} {self.row}{column}"


def sources_of(paths: Sequence[str | Path]) -> list[Source]:
    """The files of rows and texts that the paths mean.

    Raises:
        UsageError: a path does not exist, or is nothing that can be read.
    """
    return separate_class_names(find_all(list(paths), unnamed_files.sources))[0]


def read_texts(source: Source) -> Iterator[EvaluationText]:
    """The texts of a file.

    Raises:
        DataError, StorageError, UsageError: bad rows; the file cannot be read.
    """
    if source.format == "text":
        for document in Reader(source.path):
            number = int(document.id.rpartition(":")[2])
            yield EvaluationText(source.shown, number, "line", "", document.text)
        return
    for row in read_rows([source]):
        for column, value in row.values.items():
            for text in texts_in(value):
                yield EvaluationText(source.shown, row.number, row.unit, str(column), text)


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value of a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(item, str) and len(item.split()) == 1 for item in value):
            yield " ".join(value)
        else:
            for inner in value:
                yield from texts_in(inner)
