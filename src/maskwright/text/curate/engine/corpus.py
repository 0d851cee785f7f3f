"""The whole corpus as a step accesses it: passes over the shards, and queries of their tables.

A pass is a function of a batch whose table is written to a folder per shard. Queries group narrow
tables of numbers only: in memory up to `FEW_ROWS` rows, and by Daft in parts beyond. The results
are sorted, and so equal.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import Note
from maskwright.base.memory import free_bytes
from maskwright.base.storage.commit import commit_once
from maskwright.base.storage.files import write_file
from maskwright.text.curate.arrays.hashes import is_first
from maskwright.text.curate.engine.daft_engine import DaftEngine, Progress
from maskwright.text.curate.engine.shards import (
    CurationShard,
    read_batches,
    read_columns,
    write_tables,
)
from maskwright.text.curate.step import DOCUMENT, ROW, CurationBatch, Pass
from maskwright.text.store import BoolArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

PASS_FILE = "table.parquet"  # in the folder of a pass
ROW_BITS = 32
FEW_ROWS = 1 << 24  # most rows that are grouped in memory: 16 bytes a row and column
NARROW = 1 << 15  # 16-bit integers sort by counting
ROW_BYTES = 120  # memory of a query of Daft for each row, measured
SHARE = 0.3  # of the free memory that a query may take


@dataclass(frozen=True)
class ShardCorpus:
    """A `CorpusHandle` of shards on disk, for one step.

    Attributes:
        step: the name of the step.
        key: a hash of the settings and the code of the step.
        folder: the work folder.
        used: a set to which the files and folders are added that the passes read and write.
    """

    engine: DaftEngine
    shards: Sequence[CurationShard]
    step: str
    key: str
    folder: Path
    say: Note
    progress: Progress
    used: set[Path]

    def map(self, name: str, function: Pass, side_input: pa.Table | None = None) -> ShardTables:
        """`CorpusHandle.map`."""
        tasks, files, text_bytes = [], [], 0
        inputs = write_side_inputs(self.folder, side_input, len(self.shards))
        for number, (shard, (rows, path)) in enumerate(zip(self.shards, inputs, strict=True)):
            if not shard.documents or rows == 0:
                continue
            out = pass_folder(self.folder, self.step, self.key, name, shard.key, Path(path).name)
            tasks.append({"shard": str(shard.path), "side_input": path, "out": str(out)})
            files.append((number, out / PASS_FILE))
            self.used.update((out, Path(path)))
            text_bytes += shard.bytes
        run_function = functools.partial(run_pass, function=function)
        self.engine.run(f"{self.step}: {name}", run_function, tasks, text_bytes, self.progress)
        return ShardTables(self.engine, [(n, file) for n, file in files if file.stat().st_size])


def pass_folder(
    work: Path, step: str, step_key: str, name: str, shard_key: str, side_input: str = ""
) -> Path:
    """Return the folder for the table of a pass over a shard; `side_input`: a file name, or ""."""
    key = fingerprint(["pass", 1, step_key, name, shard_key, side_input])
    return work / "passes" / f"{step}.{name}" / key


def run_pass(shard: str, side_input: str, out: str, function: Pass) -> None:
    """Run a pass over the file `shard`, and write its table to the folder `out`. With a side input
    (a path, or ""), only the batches are read whose rows it contains."""
    table = read_side_input(side_input)
    only, tables = None, []
    if table is not None and ROW in table.schema.names:
        only = np.unique(table.column(ROW).to_numpy())
    for batch in read_batches(Path(shard), only):
        rows = rows_about(table, batch)
        if rows is None or rows.num_rows:
            tables.append(function(batch, rows))
    commit_once(Path(out), lambda stage: write_tables(stage, PASS_FILE, tables))


# ------------------------------------------------------------------------------ side inputs
def write_side_inputs(
    folder: Path, side_input: pa.Table | None, shards: int
) -> list[tuple[int | None, str]]:
    """Write a side input, split by shard, to files named by a hash of their content.

    Returns:
        For each shard (rows, path); (None, "") without a side input. A table without the column
        `document` is the input of every shard; otherwise `row`, the number in the shard, replaces
        this column.
    """
    if side_input is None:
        return [(None, "")] * shards
    if DOCUMENT not in side_input.schema.names:
        return [(side_input.num_rows, _write_known(folder, side_input))] * shards
    import pyarrow as pa

    documents = side_input.column(DOCUMENT).to_numpy()
    order = np.argsort(documents, kind="stable")
    side_input, documents = side_input.take(pa.array(order)), documents[order]
    cuts = np.searchsorted(documents, np.arange(shards + 1, dtype=np.int64) << ROW_BITS)
    rows = pa.array(documents & ((1 << ROW_BITS) - 1), pa.int64())
    numbered = side_input.drop_columns([DOCUMENT]).append_column(ROW, rows)
    return [
        (int(b - a), _write_known(folder, numbered.slice(a, b - a)))
        for a, b in itertools.pairwise(cuts)
    ]


def _write_known(folder: Path, table: pa.Table) -> str:
    """Write the table to a file in `known/` named by a hash of its content. Return the path."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    combined = table.combine_chunks()
    # Dictionaries do not pay off for hashes.
    pq.write_table(combined, sink, compression="lz4", use_dictionary=False, write_statistics=False)
    data = sink.getvalue()
    path = folder / "known" / f"{hashlib.sha256(data).hexdigest()[:32]}.parquet"
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, data)
    return str(path)


@functools.lru_cache(maxsize=1)
def read_side_input(path: str) -> pa.Table | None:
    """Read a side input, or return None for "". Cached, as consecutive tasks often share it."""
    return read_columns(Path(path)) if path else None


def rows_about(side_input: pa.Table | None, batch: CurationBatch) -> pa.Table | None:
    """Return the rows of a side input for the documents of a batch; without `row`, all of them."""
    if side_input is None or ROW not in side_input.schema.names:
        return side_input
    import pyarrow as pa

    return side_input.filter(pa.array(np.isin(side_input.column(ROW).to_numpy(), batch.rows)))


# ------------------------------------------------------------------------------ tables
@dataclass(frozen=True)
class ShardTables:
    """The `Tables` that a pass returned; `files` holds (number of the shard, Parquet file)."""

    engine: DaftEngine
    files: Sequence[tuple[int, Path]]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """`Tables.read`."""
        return _joined(list(self._tables(columns)), columns or [DOCUMENT]).combine_chunks()

    def among(self, key: str, values: IntArray) -> pa.Table:
        """`Tables.among`. One table is in memory at a time."""
        import pyarrow as pa

        distinct, names = np.unique(values), [DOCUMENT, key]
        matches = [
            table.filter(pa.array(np.isin(table.column(key).to_numpy(), distinct)))
            for table in self._tables(names)
        ]
        return _joined(matches, names).combine_chunks()

    def repeated(self, keys: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """`Tables.repeated`."""
        names = [*keys, *columns]
        if self._row_count() <= FEW_ROWS:
            return repeated_rows(self._arrays(names), keys)
        import daft

        tables = []
        for frame in self._partitions(keys, names):
            counts = frame.groupby(*keys).agg(daft.col(names[0]).count("all").alias("_count"))
            repeated = counts.where(daft.col("_count") >= daft.lit(2)).select(*keys)
            tables.append(frame.join(repeated, on=list(keys)).select(*names).to_arrow())
        return _sorted(_joined(tables, names), names)

    def totals(self, keys: Sequence[str], sums: Sequence[str], least: int = 0) -> pa.Table:
        """`Tables.totals`."""
        names = [*keys, *sums]
        if self._row_count() <= FEW_ROWS:
            return summed_rows(self._arrays(names), keys, least)
        import daft

        tables = []
        for frame in self._partitions(keys, names):
            groups = frame.groupby(*keys).agg(*(daft.col(name).sum().alias(name) for name in sums))
            groups = groups.where(daft.col(sums[0]) >= daft.lit(least))
            tables.append(groups.select(*names).to_arrow())
        return _sorted(_joined(tables, names), keys)

    def _tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """Yield the table of each shard with `document` in place of `row`; None: all columns."""
        import pyarrow as pa

        stored_columns = None
        if columns is not None:
            stored_columns = [ROW if name == DOCUMENT else name for name in columns]
        for number, path in self.files:
            table = read_columns(path, stored_columns)
            if ROW in table.schema.names:
                documents = table.column(ROW).to_numpy() + (number << ROW_BITS)
                table = table.drop_columns([ROW])
                table = table.append_column(DOCUMENT, pa.array(documents, pa.int64()))
            yield table.select(list(columns or table.schema.names))

    def _arrays(self, columns: Sequence[str]) -> dict[str, NDArray[Any]]:
        table = _joined(list(self._tables(columns)), columns)
        return {name: table.column(name).to_numpy() for name in columns}

    def _row_count(self) -> int:
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for _, path in self.files)

    def _partitions(self, keys: Sequence[str], columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows as data frames that fit into memory, partitioned by a hash of `keys`."""
        import daft

        memory = free_bytes() * SHARE if self.engine.runner == "local" else math.inf
        part_count = max(1, math.ceil(self._row_count() * ROW_BYTES / memory))
        paths = [str(path) for _, path in self.files]
        frame = daft.read_parquet(paths, file_path_column="_path")
        if DOCUMENT in columns:
            shard_numbers = {"_path": paths, "_shard": [n << ROW_BITS for n, _ in self.files]}
            frame = frame.with_column("_path", daft.col("_path").replace("file://", ""))
            frame = frame.join(daft.from_pydict(shard_numbers), on="_path")
            frame = frame.with_column(DOCUMENT, daft.col("_shard") + daft.col(ROW))
        frame = frame.select(*columns)
        if part_count == 1:
            yield frame
            return
        key_hash = daft.col(keys[0]).hash()
        for key in keys[1:]:
            key_hash = daft.col(key).hash(seed=key_hash)
        for part_number in range(part_count):
            yield frame.where(key_hash % daft.lit(part_count) == daft.lit(part_number))


def _joined(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """Concatenate tables; without any, return an empty one with the columns `names`."""
    import pyarrow as pa

    if not tables:
        return pa.table({name: pa.array([], pa.int64()) for name in names})
    return pa.concat_tables(tables)


def _sorted(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def repeated_rows(arrays: Mapping[str, NDArray[Any]], keys: Sequence[str]) -> pa.Table:
    """Return the rows (columns by name) whose keys occur at least twice, sorted by all columns."""
    import pyarrow as pa

    by_key, firsts = _sort_groups([arrays[name] for name in keys])
    counts = np.diff(np.append(np.flatnonzero(firsts), len(by_key)))
    repeated = np.sort(by_key[np.repeat(counts > 1, counts)])
    output = {name: values[repeated] for name, values in arrays.items()}
    order = np.lexsort([*output.values()][::-1]) if len(repeated) else repeated
    return pa.table({name: values[order] for name, values in output.items()})


def summed_rows(arrays: Mapping[str, NDArray[Any]], keys: Sequence[str], least: int) -> pa.Table:
    """Return the sums of the other columns by group of `keys`, of groups whose first sum is at
    least `least`, sorted by the keys."""
    import pyarrow as pa

    order, firsts = _sort_groups([arrays[name] for name in keys])
    begins = np.flatnonzero(firsts)
    groups = {name: arrays[name][order[begins]] for name in keys}
    sums = {
        name: np.add.reduceat(values[order], begins) if len(begins) else order
        for name, values in arrays.items()
        if name not in groups
    }
    enough = next(iter(sums.values())) >= least
    return pa.table({name: values[enough] for name, values in {**groups, **sums}.items()})


def _sort_groups(keys: Sequence[NDArray[Any]]) -> tuple[IntArray, BoolArray]:
    """Sort rows by `keys`, the first key being the primary one; the sort is not stable.

    Returns:
        (R,) the indices of the rows in sorted order, and (R,) whether the row at each position of
        this order is the first of a group with equal keys.
    """
    order = np.argsort(keys[-1])
    for values in keys[-2::-1]:
        ordered = values[order]
        if len(ordered) and int(ordered.max()) - int(ordered.min()) < NARROW:
            ordered = (ordered - ordered.min()).astype(np.int16)
        order = order[np.argsort(ordered, kind="stable")]
    return order, is_first(*(values[order] for values in keys))
