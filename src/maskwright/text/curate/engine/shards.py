"""Raw files to shards, and shards to the result.

    files --read--> shards: Parquet files of some MiB of documents, the unit of all further work
    shards of the remaining documents --pack--> JSON Lines in gzip, a document per line

Files are read in groups. The end of a group depends on the names and sizes of its own files, so
that a new file changes one group, and the shards of the other groups are reused.

Parquet files of batches and tables are written so that equal content gives equal bytes. A segment
that only removes documents does not copy the texts: its file holds the row numbers of the remaining
documents, their new notes, and the path of the file with the texts (`BASE`).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwright.base.config import fingerprint, from_plain, to_plain
from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.base.storage.commit import Staging, commit_once
from maskwright.base.storage.files import file_state
from maskwright.base.storage.strict_json import parse_object
from maskwright.text.corpus.files import Source
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import Document, JsonText, ReadingOptions, as_text
from maskwright.text.curate.arrays.segmentation import word_counts
from maskwright.text.curate.step import ID, NOTE, ROW, TEXT, CurationBatch
from maskwright.text.store import IntArray

if TYPE_CHECKING:
    import pyarrow as pa


# ------------------------------------------------------------------------------ Parquet files
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


def write_left(
    stage: Staging,
    name: str,
    folder: Path,
    shard: Path,
    remaining: Sequence[tuple[IntArray, Mapping[str, Sequence[str | None]]]],
    new_notes: set[str],
) -> None:
    """Write the row numbers of the remaining documents of a shard, and their new notes.

    Args:
        folder: the final folder of the file, to which `BASE` is relative.
        remaining: the row numbers and the notes of the remaining documents of each batch.
    """
    import pyarrow as pa

    tables = []
    if remaining:
        columns = {ROW: pa.array(np.concatenate([rows for rows, _ in remaining]), pa.int64())}
        for note in sorted({*new_notes, *_added_notes(shard)}):
            parts_of_note = (notes.get(note) or [None] * len(rows) for rows, notes in remaining)
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


def read_batches(path: Path, only: IntArray | None = None) -> Iterator[CurationBatch]:
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


# ------------------------------------------------------------------------------ shards
SHARD_BYTES = 16 << 20  # text in a shard; a document is never split
SHARD_DOCUMENTS = 1 << 20
SHARD_CELLS = 1 << 21  # documents times columns of notes, as each row may have columns of its own
GROUP_BYTES = 32 << 20  # files that are read by one task
SHARDS = "shards.json"
REJECTED = "rejected.jsonl"  # the rows that could not be read
UNREAD = "not read"  # the extent of a file of which nothing was read
COUNTED = ("rows", "blank", "rejected")
LARGEST_FACTS = 1 << 30
PACKED, PACKED_FACTS = "text.jsonl.gz", "facts.json"
READ_AT = "read_at"
NOTES_COUNTED = ("language", "licence", "license", "source")  # the card counts their values
MOST_SOURCES = 200


@dataclass(frozen=True)
class CurationShard:
    """A shard of the corpus on disk.

    Attributes:
        path: a Parquet file; its row groups are batches.
        key: a hash of the inputs of the documents, equal for equal documents.
        documents, bytes: the number of documents, and the size of their texts.
    """

    path: Path
    key: str
    documents: int
    bytes: int


@dataclass(frozen=True)
class FileGroup:
    """Files that are read together.

    Attributes:
        files: the paths, as the user gave them.
        bytes: the size of the text in them, estimated for compressed files.
        key: a hash of the names, sizes, times and reading options of the files.
    """

    files: tuple[str, ...]
    bytes: int
    key: str


def group_files(sources: Sequence[Source], reading: ReadingOptions, skip: bool) -> list[FileGroup]:
    """Divide the files into groups of consecutive files."""
    settings_key = fingerprint([to_plain(reading), skip])
    groups, files, states, text_bytes = list[FileGroup](), list[str](), list[Any](), 0
    for number, source in enumerate(sources):
        state = file_state(source.path)
        files.append(os.fspath(source.path))
        states.append([source.shown, *state[1:4]])  # numbers change on some file systems
        text_bytes += source.text_bytes
        # One of 16 names may end a group early, so that a new file changes few groups after it.
        may_end = hashlib.sha256(source.shown.encode("utf-8", "surrogatepass")).digest()[0] < 16
        minimum = GROUP_BYTES >> 3 if may_end else GROUP_BYTES
        if text_bytes >= minimum or number == len(sources) - 1:
            key = fingerprint(["group", 2, settings_key, states])
            groups.append(FileGroup(tuple(files), text_bytes, key))
            files, states, text_bytes = [], [], 0
    return groups


def require_once(sources: Sequence[Source], broken: list[UsageError] | None = None) -> list[Source]:
    """Return the sources without symbolic links to other sources.

    Args:
        broken: a list to which an error is added for each such link; None: raise it.

    Raises:
        UsageError: a file occurs twice.
    """
    by_real_path: dict[str, Source] = {}
    for source in sources:
        real_path = os.path.realpath(source.path)
        if real_path not in by_real_path:
            by_real_path[real_path] = source
            continue
        is_link = source.path.is_symlink() or by_real_path[real_path].path.is_symlink()
        error = UsageError(
            "a file would be read twice",
            where=source.shown,
            found=f"the same file as {by_real_path[real_path].shown}",
            wanted="each file once",
            do="remove the symbolic link, or name the file alone"
            if is_link
            else "name the file or the folder that it is in, not both",
        )
        if not is_link or broken is None:
            raise error
        broken.append(error)
    return list(by_real_path.values())


def read_group(files: Sequence[str], reading: Mapping[str, Any], skip: bool, out: str) -> None:
    """Read the files of a group into a folder of shards.

    Args:
        reading: the options as plain values.
        skip: whether unreadable files are listed instead of raising an error.
    """
    options = from_plain(ReadingOptions, reading)

    def write(stage: Staging) -> None:
        facts, rejected = no_facts(), list[bytes]()
        write_shards(stage, _documents(files, options, skip, facts, rejected), facts)
        if rejected:
            stage.write_bytes(REJECTED, iter(rejected))

    commit_once(Path(out), write)


def shards_of(folder: Path) -> tuple[list[CurationShard], dict[str, Any]]:
    """Return the shards that `read_group` wrote, and its counts, findings and unreadable files;
    raise a DataError if the folder is damaged."""
    facts = read_facts(folder / SHARDS)
    fields = [(s["name"], s["key"], s["documents"], s["bytes"]) for s in facts["shards"]]
    return [CurationShard(folder / name, *rest) for name, *rest in fields], facts


def read_facts(path: Path) -> dict[str, Any]:
    """Read a JSON object that an earlier command wrote.

    Raises:
        DataError: the file is damaged.
    """
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST_FACTS)


def unreadable_record(error: MaskwrightError, file: object, extent: str = UNREAD) -> dict[str, str]:
    """Return the record of a file that could not be read, or not to its end."""
    evidence, where = str(error.found or ""), str(error.where or "")
    record = {"file": str(file), "reason": error.what, "found": evidence, "where": where}
    return {**record, "extent": extent}


def no_facts() -> dict[str, Any]:
    """Return the facts about reading no file."""
    return {"files": [], "unreadable": [], "findings": [], **dict.fromkeys(COUNTED, 0)}


def _documents(
    files: Sequence[str],
    options: ReadingOptions,
    skip: bool,
    facts: dict[str, Any],
    rejected: list[bytes],
) -> Iterator[Document]:
    """Yield the documents of some files. Add counts, findings and unreadable files to `facts`, and
    to `rejected` a line of JSON for each row and each file that could not be read."""
    for path in map(Path, files):
        rejects = io.StringIO()  # in memory, as creating a file is slower than reading one
        reader = Reader([path], options, rejects=rejects, pages=True)
        try:
            yield from reader
        except MaskwrightError as error:
            if record := _fault(reader, error, skip):
                facts["unreadable"].append(record)
                rejected.append((json.dumps(record) + "\n").encode())
        size = os.stat(path).st_size
        for name, digest in reader.counts.hashes.items():
            facts["files"].append({"file": name, "sha256": digest, "bytes": size})
        for name in COUNTED:
            facts[name] += getattr(reader.counts, name)
        facts["findings"] += [finding.to_json() for finding in reader.counts.findings]
        rejected += [rejects.getvalue().encode()] if rejects.tell() else []


def _fault(reader: Reader, error: MaskwrightError, skip: bool) -> dict[str, str] | None:
    """Return the record of a file that cannot be read; None if it is merely empty."""
    counts, (source,) = reader.counts, reader.sources
    read_to_end = bool(counts.hashes)
    if read_to_end and not counts.documents and not counts.rejected:
        return None
    if skip and isinstance(error, DataError | UsageError):
        extent = f"read up to document {counts.documents:,}" if counts.documents else UNREAD
        return unreadable_record(error, source.shown, extent)
    if not skip and isinstance(error, DataError):
        error.advising(
            f"{error.do or 'correct the file'}; or --skip-unreadable leaves out "
            "files from there on, and lists them"
        )
    raise error


def write_shards(stage: Staging, documents: Iterable[Document], facts: Mapping[str, Any]) -> None:
    """Write documents as shards, and then `SHARDS`, which lists them beside `facts`."""
    shards: list[dict[str, Any]] = []
    for batch in _batched(documents):
        name = f"{len(shards):05}.parquet"
        digest = hashlib.sha256()
        for texts in (batch.ids, batch.texts):
            for text in texts:
                digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(json.dumps([batch.notes, batch.values], sort_keys=True).encode())
        size = sum(map(utf8_size, batch.texts))
        write_tables(stage, name, [rows.to_arrow() for rows in parts_of(batch)])
        shards.append(
            {"name": name, "key": digest.hexdigest()[:32], "documents": len(batch), "bytes": size}
        )
    total = sum(shard["documents"] for shard in shards)
    stage.write_json(SHARDS, {**facts, "shards": shards, "documents": total})


def _batched(documents: Iterable[Document]) -> Iterator[CurationBatch]:
    """Yield the documents of one shard after the other, within the limits of a shard."""
    pending: list[Document] = []
    columns: set[str] = set()
    size = 0
    for document in documents:
        pending.append(document)
        columns.update(document.notes)
        size += len(document.text)
        cells = len(pending) * len(columns)
        if size >= SHARD_BYTES or len(pending) >= SHARD_DOCUMENTS or cells >= SHARD_CELLS:
            yield _batch(pending)
            pending, columns, size = [], set(), 0
    if pending:
        yield _batch(pending)


def _batch(documents: Sequence[Document]) -> CurationBatch:
    """Build a batch with the union of the notes; `source` is never None."""
    names = sorted({name for document in documents for name in document.notes})
    notes: dict[str, list[str | None]] = {
        name: [document.notes.get(name) for document in documents] for name in names
    }
    notes["source"] = [document.notes.get("source") or document.source for document in documents]
    return CurationBatch(
        np.arange(len(documents), dtype=np.int64),
        [document.id for document in documents],
        [document.text for document in documents],
        notes,
        [_values(document) for document in documents],
    )


def _values(document: Document) -> str | None:
    """Return the notes of a document that were no strings, as a JSON object, or None."""
    pairs = document.notes.items()
    values = [f"{json.dumps(name)}:{text}" for name, text in pairs if isinstance(text, JsonText)]
    return f"{{{','.join(values)}}}" if values else None


def own_id(batch: CurationBatch, index: int) -> str:
    """Return the id of a document: its note `id`, or else its location."""
    return batch.note("id")[index] or batch.ids[index]


def utf8_size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


# ------------------------------------------------------------------------------ the result
def pack_shard(shard: str, tokenizer: str, out: str) -> None:
    """Write the documents of the file `shard` into the folder `out`: `PACKED`, a document per line,
    and `PACKED_FACTS`, counts and the most frequent values of some notes.

    Args:
        tokenizer: the folder of the tokenizer that counts tokens, or "".
    """
    commit_once(Path(out), lambda stage: _pack(stage, Path(shard), tokenizer))


def _pack(stage: Staging, shard: Path, tokenizer: str) -> None:
    count_tokens = None
    if tokenizer:
        from maskwright.text.tokenizer.tokenizer import Tokenizer

        encode_batch = Tokenizer.load(Path(tokenizer)).encode_batch
        count_tokens = lambda texts: sum(map(len, encode_batch(list(texts))))  # noqa: E731
    facts: dict[str, Any] = {"documents": 0, "bytes": 0, "words": 0, "tokens": 0}
    counts: dict[str, Counter[str]] = {name: Counter() for name in NOTES_COUNTED}

    encode = json.JSONEncoder(ensure_ascii=False).encode

    def lines() -> Iterator[bytes]:
        for batch in read_batches(shard):
            facts["documents"] += len(batch)
            facts["words"] += int(word_counts(batch.texts).sum())
            if count_tokens is not None:
                facts["tokens"] += count_tokens(batch.texts)
            for name, counter in counts.items():
                if name in batch.notes:
                    counter.update(value or "" for value in batch.notes[name])
            facts["bytes"] += sum(map(utf8_size, batch.texts))
            yield "".join([encode(row) + "\n" for row in _rows(batch)]).encode()

    stage.write_bytes(PACKED, compressed(lines()))
    common = {n: dict(c.most_common(MOST_SOURCES)) for n, c in counts.items() if c}
    stage.write_json(PACKED_FACTS, {**facts, "values": common})


def _rows(batch: CurationBatch) -> Iterator[dict[str, Any]]:
    """Yield each document as a row: `id`, `text`, notes that are not None, and the location as
    `READ_AT` if the document has an id of its own; an existing column of that name is renamed."""
    columns = {name: column for name, column in batch.notes.items() if name not in ("id", "text")}
    if READ_AT in columns:
        free_name = f"{READ_AT}_before"
        while free_name in columns:
            free_name += "_before"
        columns[free_name] = columns.pop(READ_AT)
    notes = sorted(columns.items())
    for index, (text, name) in enumerate(zip(batch.texts, batch.ids, strict=True)):
        values = json.loads((batch.values[index] if batch.values else None) or "{}")
        row: dict[str, Any] = {"id": own_id(batch, index), "text": text}
        for note, column in notes:
            if column[index] is not None:
                row[note] = column[index]
        for note, value in values.items():
            # Restore the original JSON value unless a step has replaced the note.
            if note != "text" and as_text(value) == row.get(note):
                row[note] = value
        if row["id"] != name:
            row[READ_AT] = name
        yield row
