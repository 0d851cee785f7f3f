"""Documents kept on the disk for another reading: raw files are read and checked once.

A record is four sizes in bytes, then source, id, text and notes (JSON) as UTF-8. What is small
stays in memory; more lies in a temporary file without a name, of which a killed process leaves
nothing.
"""

from __future__ import annotations

import json
import struct
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from maskwright.corpus.document import Document
from maskwright.storage.files import existing_parent, in_our_words

IN_MEMORY = 1 << 20
BUFFER = 1 << 20
CODING = ("utf-8", "surrogatepass")  # names of files may hold bytes that are no text
_SIZES = struct.Struct("<4Q")


class Spool:
    """Documents in the order in which they were added, as often as asked for.

    Args:
        folder: on whose disk they are kept; it need not be there.
        most: bytes from which on nothing is kept any more; None: whatever there is.

    Attributes:
        complete: whether all that was added is there.
    """

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self.complete = True
        self._folder, self._most = folder, most
        self._end = self._at = 0  # of what was added, and where the file stands
        place = str(existing_parent(folder))
        file = tempfile.SpooledTemporaryFile(IN_MEMORY, "w+b", BUFFER, dir=place)  # noqa: SIM115
        self._file = file
        weakref.finalize(self, file.close)

    def add(self, document: Document) -> None:
        """Keep one more.

        Raises:
            StoppedError, StorageError: the disk is full, or fails.
        """
        notes = json.dumps(document.notes) if document.notes else ""
        fields = (document.source, document.id, document.text, notes)
        parts = [_bytes(field) for field in fields]
        record = b"".join([_SIZES.pack(*map(len, parts)), *parts])
        if self._most is not None and self._end + len(record) > self._most:
            self.complete = False
        if self.complete:
            with in_our_words(self._folder):
                self._go_to(self._end)
                self._file.write(record)
            self._end = self._at = self._end + len(record)

    def __iter__(self) -> Iterator[Document]:
        place = 0
        while place < self._end:
            with in_our_words(self._folder):
                self._go_to(place)
                sizes = _SIZES.unpack(self._file.read(_SIZES.size))
                source, name, text, notes = (
                    self._file.read(size).decode(*CODING) for size in sizes
                )
            self._at = place = place + _SIZES.size + sum(sizes)
            yield Document(text, source, name, json.loads(notes) if notes else {})

    def _go_to(self, place: int) -> None:
        """Two iterations may take turns; one alone reads on."""
        if self._at != place:
            self._file.seek(place)


def _bytes(text: str) -> bytes:
    return text.encode(*CODING)
