"""Arrow files, of both forms: a stream, as `datasets` saves it, and a file, as Feather is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FILE, STREAM = b"ARROW1", b"\xff\xff\xff\xff"
STREAM_ENDS = STREAM + bytes(4)  # a next message of the size 0
FEATHER_1 = b"FEA1"


def fault(head: bytes, tail: bytes) -> str | None:
    """The fault of a file with this beginning and end; None if there is none."""
    if head.startswith(FEATHER_1):
        return "a Feather file of version 1"
    if head.startswith(FILE):
        return None if tail.endswith(FILE) else "the arrow file is cut off"
    if head.startswith(STREAM):
        return None if tail.endswith(STREAM_ENDS) else "the arrow file is cut off"
    return "not an arrow file"


class Arrow:
    """An open file with the methods of `pyarrow.parquet.ParquetFile`."""

    def __init__(self, pyarrow: Any, path: Path) -> None:
        self._pyarrow = pyarrow
        self._map = pyarrow.memory_map(str(path))
        head = self._map.read(len(FILE))
        self._map.seek(0)
        self._is_file = head == FILE
        ipc = pyarrow.ipc
        self._reader = ipc.open_file(self._map) if self._is_file else ipc.open_stream(self._map)
        self.schema_arrow = self._reader.schema
        try:
            [(field.name, str(field.type)) for field in self.schema_arrow]  # names of fields
        except UnicodeDecodeError as error:
            raise pyarrow.ArrowInvalid("the name of a column is not UTF-8") from error

    def __enter__(self) -> Arrow:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def _batches(self) -> Iterator[Any]:
        if not self._is_file:
            return iter(self._reader)
        return map(self._reader.get_batch, range(self._reader.num_record_batches))

    def iter_batches(self, size: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows, at most `size` at a time."""
        for batch in self._batches():
            chosen = batch if columns is None else batch.select(columns)
            chosen.validate(full=True)  # else places in a damaged file are followed wherever
            for begin in range(0, len(chosen), size):
                yield chosen.slice(begin, size)
