"""Parquet files of batches and tables, written so that equal content gives equal bytes.

A segment that only removes documents does not copy the texts: its file holds the row numbers of the
remaining documents, their new notes, and the path of the file with the texts (`BASE`).
"""

from __future__ import annotations

import io
import itertools
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskwright.base.storage.commit import Staging
from maskwright.text.curate.step import ID, NOTE, ROW, TEXT, CurationBatch

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 2048
LEVEL = 2  # of gzip: four times the speed of 6, 12 % larger
GZIP = 31  # zlib: a window of 32 KiB, with the header of gzip
BASE = b"base"  # key of the schema's metadata: relative path of the file with the texts


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress with gzip, without name and time, so that equal input gives equal bytes."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def parts_of(batch: CurationBatch) -> Iterator[CurationBatch]:
    """Split a batch into those that steps process, of about `BATCH_CHARACTERS` each."""
    ends = np.cumsum(batch.lengths)
    begin = 0
    while begin < len(batch):
        start = ends[begin - 1] if begin else 0
        end = int(np.searchsorted(ends, start + BATCH_CHARACTERS))
        end = min(max(end, begin + 1), begin + BATCH_DOCUMENTS, len(batch))
        mask = np.zeros(len(batch), np.bool_)
        mask[begin:end] = True
        yield batch.take(mask)
        begin = end


def write_parts(stage: Staging, name: str, batch: CurationBatch) -> None:
    """Write a batch as a Parquet file whose row groups are its parts."""
    write_tables(stage, name, [sub_batch.to_arrow() for sub_batch in parts_of(batch)])


def write_tables(stage: Staging, name: str, tables: list[pa.Table]) -> None:
    """Write tables as the row groups of a Parquet file; an empty list gives an empty file."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    if tables:
        tables = _unified(tables)
        # Texts without dictionaries are read twice as fast and compress as well.
        with pq.ParquetWriter(
            sink, tables[0].schema, compression="lz4", use_dictionary=False, write_statistics=False
        ) as w:
            for table in tables:
                w.write_table(table, row_group_size=max(1, table.num_rows))
    stage.write_bytes(name, sink.getvalue())


def base_of(path: Path) -> Path:
    """Return the file with the texts of the documents of `path`: `path` itself, or its `BASE`."""
    import pyarrow.parquet as pq

    if not path.stat().st_size:
        return path
    base = (pq.read_schema(path).metadata or {}).get(BASE)
    return path if base is None else Path(os.path.normpath(path.parent / os.fsdecode(base)))


@dataclass(frozen=True)
class RemainingRows:
    """The remaining documents of a batch: (B,) their row numbers, and (B,) values of each note."""

    rows: NDArray[np.int64]
    notes: Mapping[str, Sequence[str | None]]


def write_left(
    stage: Staging,
    name: str,
    folder: Path,
    shard: Path,
    remaining: Sequence[RemainingRows],
    notes: set[str],
) -> None:
    """Write the row numbers of the remaining documents of a shard, and their new notes.

    Args:
        folder: the final folder of the file, to which `BASE` is relative.
        remaining: the remaining documents of each batch, in order.
        notes: the names of the new notes.
    """
    import pyarrow as pa

    tables = []
    if remaining:
        columns = {ROW: pa.array(np.concatenate([batch.rows for batch in remaining]), pa.int64())}
        for note in sorted({*notes, *_added_notes(shard)}):
            parts_of_note = (b.notes.get(note) or [None] * len(b.rows) for b in remaining)
            values = list(itertools.chain.from_iterable(parts_of_note))
            columns[NOTE + note] = pa.array(values, pa.large_string())
        base = os.fsencode(os.path.relpath(base_of(shard), folder))
        tables.append(pa.table(columns).replace_schema_metadata({BASE: base}))
    write_tables(stage, name, tables)


def _added_notes(shard: Path) -> set[str]:
    """Return the names of the notes that a file with a `BASE` adds to those of the base."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(shard)
    if BASE not in (schema.metadata or {}):
        return set()
    return {name.removeprefix(NOTE) for name in schema.names if name.startswith(NOTE)}


def read_batches(path: Path, only: NDArray[np.int64] | None = None) -> Iterator[CurationBatch]:
    """Iterate over the batches of a file that `write_tables` or `write_left` wrote.

    Args:
        only: the row numbers of the documents to read; None: all. Empty batches are skipped.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.stat().st_size:
        return
    base = base_of(path)
    base_table = None if base == path else read_columns(path)
    kept_rows = None if base_table is None else base_table.column(ROW).to_numpy()
    with pq.ParquetFile(base) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number)
            row_numbers = table.column(ROW).to_numpy()
            mask = np.ones(len(row_numbers), np.bool_)
            for allowed in (kept_rows, only):
                if allowed is not None:
                    mask &= np.isin(row_numbers, allowed)
            if not mask.any():
                continue
            table = table if mask.all() else table.filter(pa.array(mask))
            batch = CurationBatch.from_arrow(table)
            if base_table is not None and kept_rows is not None:
                note_table = base_table.take(pa.array(np.searchsorted(kept_rows, batch.rows)))
                note_table = note_table.drop_columns([ROW])
                columns = zip(note_table.schema.names, note_table.columns, strict=True)
                notes = {name.removeprefix(NOTE): c.to_pylist() for name, c in columns}
                batch = batch.with_notes(notes)
            yield batch


def texts_of(paths: Sequence[Path], ids: Collection[str]) -> dict[str, str]:
    """Return {id: text} for the documents with these ids in files that `write_tables` or
    `write_left` wrote. Texts are read only from row groups that contain one of the ids."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    texts_by_id: dict[str, str] = {}
    sought_ids = pa.array(sorted(ids), pa.large_string())
    for path in paths if ids else ():
        if not path.stat().st_size:
            continue
        with pq.ParquetFile(base_of(path)) as file:
            for number in range(file.num_row_groups):
                mask = pc.is_in(file.read_row_group(number, [ID]).column(ID), sought_ids)
                if pc.any(mask).as_py():
                    table = file.read_row_group(number, [ID, TEXT]).filter(mask)
                    found_ids, texts = (table.column(name).to_pylist() for name in (ID, TEXT))
                    texts_by_id.update(zip(found_ids, texts, strict=True))
    return texts_by_id


def read_columns(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table that `write_tables` wrote; `columns` None: all."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(None if columns is None else list(columns), use_threads=False)


def _unified(tables: list[pa.Table]) -> list[pa.Table]:
    """Return the tables with the union of their columns, in one order; missing values are null."""
    import pyarrow as pa

    schema = pa.unify_schemas([table.schema for table in tables])
    fixed_columns = [name for name in schema.names if not name.startswith(NOTE)]
    names = fixed_columns + sorted(set(schema.names) - set(fixed_columns))
    fields = [schema.field(name) for name in names]
    unified = []
    for table in tables:
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        filled = [
            columns[f.name] if f.name in columns else pa.nulls(len(table), f.type) for f in fields
        ]
        unified.append(pa.table(filled, schema=pa.schema(fields, schema.metadata)))
    return unified
