"""Document: the input and output of every step of the corpus.

A step is `Iterable[Document] -> Iterator[Document]`. A document never has empty text, never a NUL
and never a lone surrogate, so it can always be encoded as UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it came from.

    Attributes:
        text: the text; not blank.
        source: the file (as the user named it) or package it was read from.
        id: `path:line` for rows and paragraphs, `path#row` where a file has no lines.
        notes: the values of further columns, by name; see `notes.py`.
    """

    text: str
    source: str
    id: str
    notes: dict[str, str] = field(default_factory=dict, hash=False)
