"""Access of a step to the whole corpus: passes over the shards, and queries of their tables."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.findings import Finding, Note
from maskwright.base.storage.files import write_file
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.segment import PASS_FILE, run_pass
from maskwright.text.curate.engine.shards import CurationShard
from maskwright.text.curate.engine.tables import read_columns
from maskwright.text.curate.step import DOCUMENT, Pass

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BITS = 32


class Progress(Protocol):
    """A callback with the name of a phase of the work, and its total and finished units."""

    def __call__(self, name: str, total: int, done: int) -> None: ...


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
    note: Note
    progress: Progress
    used: set[Path]

    def map(self, name: str, function: Pass, side_input: pa.Table | None = None) -> ShardTables:
        """`CorpusHandle.map`."""
        tasks, numbers, text_bytes = [], [], 0
        write = TableWriter(self.folder)
        for number, (shard, shard_input) in enumerate(
            zip(self.shards, slices(side_input, len(self.shards)), strict=True)
        ):
            if not shard.documents or (shard_input is not None and not shard_input.num_rows):
                continue
            path = write(shard_input)
            out = pass_folder(self.folder, self.step, self.key, name, shard.key, Path(path).name)
            tasks.append({"shard": str(shard.path), "known": path, "out": str(out)})
            numbers.append(number)
            self.used.update((out, Path(path)))
            text_bytes += shard.bytes
        self.engine.run(
            partial(run_pass, function=function),
            tasks,
            text_bytes,
            lambda done: self.progress(f"{self.step}: {name}", len(tasks), done),
        )
        files = [Path(task["out"]) / PASS_FILE for task in tasks]
        return ShardTables(
            self.engine,
            [(n, file) for n, file in zip(numbers, files, strict=True) if file.stat().st_size],
        )

    def say(self, finding: Finding) -> None:
        """`CorpusHandle.say`."""
        self.note(finding)


@dataclass(frozen=True)
class ShardTables:
    """The `Tables` that a pass returned; `files` holds (number of the shard, Parquet file)."""

    engine: DaftEngine
    files: Sequence[tuple[int, Path]]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """`Tables.read`."""
        import pyarrow as pa

        tables = []
        stored_columns = None if columns is None else [name for name in columns if name != DOCUMENT]
        for number, path in self.files:
            table = read_columns(path, None if stored_columns is None else ["row", *stored_columns])
            rows = table.column("row").to_numpy() + (number << ROW_BITS)
            table = table.drop_columns(["row"]).append_column(DOCUMENT, pa.array(rows, pa.int64()))
            tables.append(table if columns is None else table.select(list(columns)))
        if not tables:
            return pa.table({name: pa.array([], pa.int64()) for name in columns or [DOCUMENT]})
        return pa.concat_tables(tables).combine_chunks()

    def repeated(self, keys: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """`Tables.repeated`."""
        if not self.files:
            return _empty_table([*keys, *columns])
        return self.engine.repeated(self.files, keys, columns)

    def among(self, key: str, values: NDArray[np.int64]) -> pa.Table:
        """`Tables.among`. One table is in memory at a time."""
        import pyarrow as pa

        distinct, documents, keys = np.unique(values), [np.zeros(0, np.int64)], [values[:0]]
        for number, path in self.files:
            table = read_columns(path, ["row", key])
            shard_keys = table.column(key).to_numpy()
            is_match = np.isin(shard_keys, distinct)
            documents.append(table.column("row").to_numpy()[is_match] + (number << ROW_BITS))
            keys.append(shard_keys[is_match])
        arrays = {DOCUMENT: np.concatenate(documents), key: np.concatenate(keys)}
        return pa.table({name: pa.array(column, pa.int64()) for name, column in arrays.items()})

    def totals(self, keys: Sequence[str], sums: Sequence[str], least: int = 0) -> pa.Table:
        """`Tables.totals`."""
        if not self.files:
            return _empty_table([*keys, *sums])
        return self.engine.totals(self.files, keys, sums, least)


def pass_folder(
    work: Path, step: str, step_key: str, name: str, shard_key: str, side_input: str = ""
) -> Path:
    """Return the folder for the table of a pass over a shard; `side_input`: a file name, or ""."""
    key = fingerprint(["pass", 1, step_key, name, shard_key, side_input])
    return work / "passes" / f"{step}.{name}" / key


def _empty_table(names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([], pa.int64()) for name in names})


def slices(side_input: pa.Table | None, shards: int) -> list[pa.Table | None]:
    """Split a side input by shard, replacing `document` by `row`, the number within the shard.
    A table without the column `document` (or None) is returned for every shard."""
    if side_input is None or DOCUMENT not in side_input.schema.names:
        return [side_input] * shards
    import pyarrow as pa

    documents = side_input.column(DOCUMENT).to_numpy()
    order = np.argsort(documents, kind="stable")
    side_input, documents = side_input.take(pa.array(order)), documents[order]
    cuts = np.searchsorted(documents, np.arange(shards + 1, dtype=np.int64) << ROW_BITS)
    rows = pa.array(documents & ((1 << ROW_BITS) - 1), pa.int64())
    numbered = side_input.drop_columns([DOCUMENT]).append_column("row", rows)
    return [numbered.slice(a, b - a) for a, b in itertools.pairwise(cuts)]


class TableWriter:
    """Writes tables to files named by a hash of the content; repeated objects are written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: tuple[pa.Table | None, str] = (None, "")

    def __call__(self, table: pa.Table | None) -> str:
        """Write the table. Return its path, or "" for None."""
        if table is not self._last[0]:
            self._last = (table, "" if table is None else keep_table(self._folder, table))
        return self._last[1]


def keep_table(folder: Path, table: pa.Table) -> str:
    """Write the table to a file named by a hash of its content. Return the path."""
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
