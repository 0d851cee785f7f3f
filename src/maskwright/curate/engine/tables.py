"""Parquet files of batches and tables, written so that equal content gives equal bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from maskwright.curate.parts.batch import NOTE, Batch
from maskwright.storage.commit import Staging

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 2048


def parts_of(batch: Batch) -> Iterator[Batch]:
    """The batch in parts that a step works on at once: about `BATCH_CHARACTERS` each."""
    ends = np.cumsum(batch.lengths)
    begin = 0
    while begin < len(batch):
        before = ends[begin - 1] if begin else 0
        end = int(np.searchsorted(ends, before + BATCH_CHARACTERS))
        end = min(max(end, begin + 1), begin + BATCH_DOCUMENTS, len(batch))
        chosen = np.zeros(len(batch), np.bool_)
        chosen[begin:end] = True
        yield batch.take(chosen)
        begin = end


def write_parts(stage: Staging, name: str, batch: Batch) -> None:
    """Write a batch as a Parquet file whose row groups are its parts."""
    write_tables(stage, name, [part.to_arrow() for part in parts_of(batch)])


def write_tables(stage: Staging, name: str, tables: list[pa.Table]) -> None:
    """Write tables of one schema as the row groups of a Parquet file; without any, an empty one."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    if tables:
        tables = _unified(tables)
        # Without dictionaries texts are read twice as fast, and the compression finds what repeats.
        with pq.ParquetWriter(
            sink,
            tables[0].schema,
            compression="lz4",
            use_dictionary=False,
            write_statistics=False,
        ) as w:
            for table in tables:
                w.write_table(table, row_group_size=max(1, table.num_rows))
    stage.write_bytes(name, sink.getvalue())


def read_batches(path: Path) -> Iterator[Batch]:
    """The batches of a file that `write_tables` wrote."""
    import pyarrow.parquet as pq

    if path.stat().st_size:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield Batch.from_arrow(file.read_row_group(number))


def read_columns(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of `write_tables` that is not empty, or some columns of it. In one thread, without
    the search for a data set, which takes longer than most of these tables."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(None if columns is None else list(columns), use_threads=False)


def _unified(tables: list[pa.Table]) -> list[pa.Table]:
    """The tables with all columns of all, in one order; what a table lacks is null there."""
    import pyarrow as pa

    schema = pa.unify_schemas([table.schema for table in tables])
    own = [name for name in schema.names if not name.startswith(NOTE)]
    names = own + sorted(set(schema.names) - set(own))
    fields = [schema.field(name) for name in names]
    return [
        pa.table(
            [
                table.column(f.name)
                if f.name in table.schema.names
                else pa.nulls(len(table), f.type)
                for f in fields
            ],
            schema=pa.schema(fields),
        )
        for table in tables
    ]
