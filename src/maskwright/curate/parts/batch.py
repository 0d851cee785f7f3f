"""A batch: the documents that a step sees at once, with views of their words that are made once.

On disk and between processes a batch is an Arrow table with the columns `row`, `id`, `text` and a
column `note.NAME` for each note (`source`, `url`, `language`, ...), all strings but the first, and
`values`, a JSON object of the notes that were no strings where they were read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.characters import Characters, characters_of
from maskwright.curate.parts.lines import Lines, lines_of
from maskwright.curate.parts.words import Words, words_of

if TYPE_CHECKING:
    import pyarrow as pa

ROW, ID, TEXT, NOTE, VALUES = "row", "id", "text", "note.", "values"


@dataclass(frozen=True)
class Batch:
    """Documents in the order in which they were read.

    Attributes:
        rows: (B,) int64, the number of each document in its shard; it never changes.
        ids: where each stands: `path:line`.
        texts: never blank, and always text that UTF-8 can write.
        notes: further columns by name, each of B strings or None.
        values: B JSON objects of those notes that were no strings, or None; empty: there are none.
    """

    rows: NDArray[np.int64]
    ids: Sequence[str]
    texts: Sequence[str]
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    values: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def words(self) -> Words:
        """The words of all texts, without regard to case."""
        return words_of(self.texts)

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of all texts, behind each other."""
        return characters_of(self.texts)

    @functools.cached_property
    def lines(self) -> Lines:
        """The lines of all texts that are not blank."""
        return lines_of(self.characters)

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(B,) characters of each text."""
        return np.fromiter(map(len, self.texts), np.int64, len(self.texts))

    @functools.cached_property
    def _no_notes(self) -> Sequence[None]:
        return [None] * len(self)  # made once, as records ask for each document

    def note(self, name: str) -> Sequence[str | None]:
        """A column, or B times None where there is none."""
        return self.notes.get(name) or self._no_notes

    def with_texts(self, texts: Sequence[str]) -> Batch:
        return replace(self, texts=texts)

    def with_notes(self, notes: Mapping[str, Sequence[str | None]]) -> Batch:
        """The same documents with further or other notes; the texts' views are kept."""
        changed = replace(self, notes={**self.notes, **notes})
        for view in ("words", "characters", "lines", "lengths"):
            if view in self.__dict__:
                changed.__dict__[view] = self.__dict__[view]
        return changed

    def differing(self, notes: Mapping[str, Sequence[str | None]]) -> dict[str, int]:
        """Of columns with the names of further ones: how many documents have another value."""
        found = {}
        for name in notes.keys() & self.notes.keys():
            pairs = zip(self.notes[name], notes[name], strict=True)
            if differ := sum(old is not None and old != new for old, new in pairs):
                found[name] = differ
        return found

    def take(self, chosen: NDArray[np.bool_]) -> Batch:
        """The documents where `chosen`, (B,), is true; their words need not be found again."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen).tolist()
        taken = Batch(
            rows=self.rows[chosen],
            ids=[self.ids[i] for i in places],
            texts=[self.texts[i] for i in places],
            notes={name: [column[i] for i in places] for name, column in self.notes.items()},
            values=[self.values[i] for i in places] if self.values else (),
        )
        if "words" in self.__dict__:
            taken.__dict__["words"] = self.words.of(chosen)
        return taken

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        return pa.table(
            {
                ROW: pa.array(self.rows, pa.int64()),
                ID: pa.array(self.ids, pa.large_string()),
                TEXT: pa.array(self.texts, pa.large_string()),
                VALUES: pa.array(self.values or [None] * len(self), pa.large_string()),
                **{
                    NOTE + name: pa.array(column, pa.large_string())
                    for name, column in sorted(self.notes.items())
                },
            }
        )

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> Batch:
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        rows = columns.pop(ROW).to_numpy()
        ids, texts = columns.pop(ID).to_pylist(), columns.pop(TEXT).to_pylist()
        values = columns.pop(VALUES).to_pylist()
        notes = {name.removeprefix(NOTE): c.to_pylist() for name, c in columns.items()}
        return cls(rows, ids, texts, notes, values)
