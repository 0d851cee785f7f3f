"""Read parquet and arrow files in batches of rows. Needs pyarrow (the extra `data`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import DataError, Finding
from maskwright.text.corpus import reading
from maskwright.text.corpus.files import STEP, RegularFile, Source
from maskwright.text.corpus.lines import NOT_STRIPPED, strip_controls
from maskwright.text.corpus.reading import OR_SKIP, Document, Ledger

FILE, STREAM = b"ARROW1", b"\xff\xff\xff\xff"
STREAM_ENDS = STREAM + bytes(4)  # a next message of the size 0
FEATHER_1 = b"FEA1"


def fault(head: bytes, tail: bytes) -> str | None:
    """Return what is wrong with an arrow file with these first and last bytes, or None."""
    if head.startswith(FEATHER_1):
        return "a Feather file of version 1"
    if head.startswith(FILE):
        return None if tail.endswith(FILE) else "the arrow file is cut off"
    if head.startswith(STREAM):
        return None if tail.endswith(STREAM_ENDS) else "the arrow file is cut off"
    return "not an arrow file"


class ArrowFile:
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

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def _batches(self) -> Iterator[Any]:
        if not self._is_file:
            return iter(self._reader)
        return map(self._reader.get_batch, range(self._reader.num_record_batches))

    def iter_batches(self, size: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield record batches of at most `size` rows with these columns (None for all)."""
        for batch in self._batches():
            selected = batch if columns is None else batch.select(columns)
            selected.validate(full=True)  # invalid offsets in a damaged file would be followed
            for begin in range(0, len(selected), size):
                yield selected.slice(begin, size)


MAGIC = b"PAR1"
BATCH_ROWS = 256
TEXT_TYPES = ("string", "large_string", "dictionary<values=string", "dictionary<values=large_str")


def documents(opened: RegularFile, source: Source, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents of a parquet or arrow file; their ids are `path#row`, counted from 1.

    Raises:
        DataError: not such a file, a missing column, a column that is not text; a bad row, when the
            policy is strict.
        UsageError: pyarrow is not installed.
    """
    pyarrow = _library(opened, source)
    if pyarrow is None:
        return
    row = 0
    with _open(pyarrow, source, lambda: row) as table:
        schema = table.schema_arrow
        column = ledger.reading.column_of(schema.names)
        _check_column(schema, source.shown, column)
        note_names = _kept(schema, source.shown, ledger) if ledger.reading.notes else []
        for batch in table.iter_batches(BATCH_ROWS, columns=[column, *note_names]):
            index_by_name = {name: index for index, name in enumerate(batch.schema.names)}
            values = _as_bytes(batch.column(index_by_name[column]), pyarrow)
            cells_by_name = {
                name: _cells(batch.column(index_by_name[name]), pyarrow) for name in note_names
            }
            ledger.counts.rows += len(values)
            for index, value in enumerate(values):
                row += 1
                text = _cell_text(value, source.shown, row, ledger)
                if text is None:
                    continue
                note_cells = {name: column[index] for name, column in cells_by_name.items()}
                notes = _notes(note_cells, source.shown, row, ledger) if note_cells else {}
                if notes is not None:
                    yield Document(text, source.shown, f"{source.shown}#{row}", notes)


def rows(
    opened: RegularFile, source: Source, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, its number from 1), with all columns as plain Python values; a value that cannot
    be converted, such as nanoseconds, becomes an `UnreadableValue`.

    Raises:
        As `documents`, except for the column.
    """
    pyarrow = _library(opened, source)
    if pyarrow is None:
        return
    row = 0
    with _open(pyarrow, source, lambda: row) as table:
        names = table.schema_arrow.names
        reading.refuse_duplicates(names, source.shown)
        for batch in table.iter_batches(BATCH_ROWS):
            ledger.counts.rows += len(batch)
            columns = [_values(column) for column in batch.columns]
            for cells in zip(*columns, strict=True):
                row += 1
                yield dict(zip(names, cells, strict=True)), row


@dataclass(frozen=True)
class UnreadableValue:
    """A value without a Python equivalent: nanoseconds, the year 10000, an unknown time zone, a
    text that is not UTF-8. It is neither text nor number, and readers of labels refuse it.

    Attributes:
        shown: the value as a text, if pyarrow can convert it.
        arrow_type: its type in arrow.
    """

    shown: str
    arrow_type: str

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"{self.shown} ({self.arrow_type})"


def _values(column: Any) -> list[Any]:
    """Return the cells as Python values; those that cannot be converted as `UnreadableValue`."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except Exception:  # the class depends on the type, and on the installed packages
        return [_value(cell) for cell in column]


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError as failure:
        bytes_shown = failure.object[failure.start : failure.end].hex(" ")
        return UnreadableValue(f"the bytes {bytes_shown}", "not utf-8")
    except Exception:
        elements = _convert_elements(cell)
        return _unreadable(cell) if elements is None else elements


def _unreadable(cell: Any) -> UnreadableValue:
    try:
        return UnreadableValue(str(cell.cast("string").as_py()), str(cell.type))
    except Exception:  # the library has no text for it, either
        return UnreadableValue("a value", str(cell.type))


def _convert_elements(cell: Any) -> Any:
    """Convert the elements of a list or struct one by one; return None for other values."""
    import pyarrow

    arrow_type = cell.type
    if pyarrow.types.is_struct(arrow_type):
        return {field.name: _value(cell[field.name]) for field in arrow_type}
    lists = (pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list)
    return _values(cell.values) if any(fits(arrow_type) for fits in lists) else None


def metadata(source: Source) -> dict[bytes, bytes]:
    """Return the schema metadata of a file; empty if it has none or cannot be read (an error that
    is reported when its rows are read)."""
    try:
        import pyarrow.parquet

        if source.format == "arrow":
            with ArrowFile(pyarrow, source.path) as table:
                return dict(table.schema_arrow.metadata or {})
        return dict(pyarrow.parquet.read_schema(source.path).metadata or {})
    except (ImportError, OSError, ValueError, NotImplementedError):  # what pyarrow raises
        return {}


@contextlib.contextmanager
def _open(pyarrow: Any, source: Source, row: Callable[[], int]) -> Iterator[Any]:
    """Open a file with pyarrow; `row` returns the number of rows read so far, for messages."""
    try:
        if source.format == "arrow":
            with ArrowFile(pyarrow, source.path) as table:
                yield table
            return
        # Small reads instead of whole row groups keep the memory bounded.
        with pyarrow.parquet.ParquetFile(source.path, pre_buffer=False, buffer_size=STEP) as table:
            _ = table.schema_arrow.names  # names that are not text are reported here
            yield table
    except UnicodeDecodeError as failure:
        raise DataError(
            "a column name is not utf-8",
            where=source.shown,
            found=f"the bytes {failure.object.hex(' ')}",
            wanted="names in utf-8",
            do="write the file anew with other names of columns",
        ) from failure
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"the {source.format} file is damaged",
            where=f"{source.shown}, after row {row()}",
            found=error,
            wanted=f"a whole {source.format} file",
            do="copy or download it again",
        ) from error


def _library(opened: RegularFile, source: Source) -> Any:
    """Hash the file, check its first and last bytes and import pyarrow; None for an empty file."""
    head, tail = _hash_all(opened)
    if not head:
        return None
    if source.format == "arrow":
        problem = fault(head, tail)
        expected = "an Arrow file or stream"
    else:
        problem = None if (head[:4], tail[-4:]) == (MAGIC, MAGIC) else "the parquet file is cut off"
        problem = "not a parquet file" if head[:4] != MAGIC else problem
        expected = f"{MAGIC.hex(' ')} at both ends"
    if problem is not None:
        raise DataError(
            problem,
            where=source.shown,
            found=f"it begins with {head.hex(' ')} and ends with {tail.hex(' ')}",
            wanted=expected,
            do="copy or download it again, or correct the file's ending",
        )
    problem = f"reading {source.format} files"
    return require_packages(problem, "pyarrow", "pyarrow.parquet", where=source.shown)


def _hash_all(opened: RegularFile) -> tuple[bytes, bytes]:
    """Read the whole file, which hashes it, and return its first and last eight bytes."""
    head = tail = b""
    for chunk in opened.chunks():
        head = head or chunk[:8]
        tail = (tail + chunk[-8:])[-8:]
    return head, tail


def _check_column(schema: Any, file: str, column: str) -> None:
    if schema.names.count(column) != 1:
        is_missing = column not in schema.names
        problem = "the column is missing" if is_missing else "the file has the column twice"
        raise reading.missing_column(column, schema.names, file, problem, of_text=True)
    arrow_type = str(schema.field(column).type)
    if not arrow_type.startswith(TEXT_TYPES):
        raise DataError(
            "the column is not text",
            where=f"{file}, column {column!r}",
            found=arrow_type,
            wanted="string",
            do=reading.NAME_TEXT,
        )


def _kept(schema: Any, file: str, ledger: Ledger) -> list[str]:
    """Return the names of the columns that are kept as notes. With `*`, columns of bytes are left
    out with a finding."""
    requested, names = {*ledger.reading.notes} - {reading.ALL_COLUMNS}, list(schema.names)
    ledger.meet(names)
    if missing_names := sorted(requested - {*names}):
        raise reading.missing_column(missing_names[0], names, file)
    note_names = reading.note_columns(ledger.reading.notes, names, ledger.reading.column_of(names))
    reading.refuse_duplicates(note_names, file)
    binary = [name for name in note_names if "binary" in str(schema.field(name).type)]
    if named_binary := requested.intersection(binary):
        name = sorted(named_binary)[0]
        raise DataError(
            "the column holds bytes",
            where=f"{file}, column {name!r}",
            found=str(schema.field(name).type),
            wanted="texts, numbers, or lists of them",
            do="leave it out of the columns that are kept",
        )
    if binary:
        message = f"columns of bytes, not kept: {', '.join(binary)}"
        ledger.counts.notes.append(Finding("columns-of-bytes", message, file))
    byte_columns = set(binary)
    return [name for name in note_names if name not in byte_columns]


def _cells(column: Any, pyarrow: Any) -> list[Any]:
    """Return the cells of a column as Python values; those of text columns as bytes."""
    is_text = str(column.type).startswith(TEXT_TYPES)
    return _as_bytes(column, pyarrow) if is_text else _values(column)


def _notes(cells: dict[str, Any], file: str, row: int, ledger: Ledger) -> dict[str, str] | None:
    """Return the notes of a row, or None if it is rejected."""
    notes: dict[str, str] = {}
    for name, cell in cells.items():
        if isinstance(cell, bytes):
            try:
                cell = _decode_cell(cell, f"{file}, row {row}, column {name!r}", ledger)
            except DataError as error:
                ledger.reject(error, file=file, line=row)
                return None
        if (value := reading.as_text(cell)) is not None:
            notes[name] = value
    return notes


def _as_bytes(column: Any, pyarrow: Any) -> list[bytes | None]:
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # As bytes, because a faulty writer may have stored text that is not UTF-8.
    cells = column.cast(pyarrow.large_binary()).to_numpy(zero_copy_only=False)
    values: list[bytes | None] = cells.tolist()
    return values


def _cell_text(value: bytes | None, file: str, row: int, ledger: Ledger) -> str | None:
    """Return the text of a cell, or None if it is blank or rejected."""
    options, counts = ledger.reading, ledger.counts
    where = f"{file}, row {row}"
    try:
        if value is None:
            raise DataError("the field is not a text", where=where, found="null", wanted="a text")
        if len(value) > options.max_document_characters:
            limit = options.max_document_characters
            raise reading.too_long(where, f"{len(value):,} bytes", limit)
        text = _decode_cell(value, where, ledger)
    except DataError as error:
        ledger.reject(error, file=file, line=row)
        return None
    counts.bytes += len(value)
    if not text or text.isspace():
        counts.blank += 1
        return None
    return text


def _decode_cell(value: bytes, where: str, ledger: Ledger) -> str:
    options, counts = ledger.reading, ledger.counts
    if b"\0" in value and options.on_nul == "error":
        shown = f"{value.count(0):,} NUL"
        raise reading.nul_error(f"{where}, byte {value.index(0)}", shown)
    try:
        text = value.decode()
    except UnicodeDecodeError as failure:
        if options.on_undecodable != "replace":
            raise DataError(
                "not utf-8",
                where=f"{where}, byte {failure.start}",
                found=f"the bytes {value[failure.start : failure.end].hex(' ')}",
                wanted="text in utf-8",
                do=f"correct the cell, read with on_undecodable='replace', {OR_SKIP}",
            ) from None
        text = value.decode("utf-8", "replace")
        counts.replaced += text.count("\ufffd") - value.count("\ufffd".encode())
    if value.translate(None, NOT_STRIPPED):
        text = strip_controls(text, counts)
    return text.replace("\r\n", "\n") if "\r" in text else text
