"""The output format of a curated shard: JSON Lines in gzip, one document per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.base.storage.commit import Staging, commit_once
from maskwright.text.corpus.document import as_text
from maskwright.text.curate.arrays.words import count_words
from maskwright.text.curate.engine.segment import MOST_SOURCES, own_id, utf8_size
from maskwright.text.curate.engine.tables import compressed, read_batches
from maskwright.text.curate.step import CurationBatch

PACKED, FACTS = "text.jsonl.gz", "facts.json"
READ_AT = "read_at"
COUNTED = ("language", "licence", "license")  # notes whose values the card counts


def pack_shard(task: dict[str, Any]) -> dict[str, Any]:
    """Write the documents of a shard and their counts, unless the output folder exists. Return {}.

    Args:
        task: `shard` (a path), `tokenizer` (a folder, or "") and `out`, the output folder.
    """
    out = Path(task["out"])
    if not out.is_dir():
        commit_once(out, lambda stage: _write(stage, Path(task["shard"]), task["tokenizer"]))
    return {}


def _write(stage: Staging, shard: Path, tokenizer: str) -> None:
    """Write `PACKED`, and `FACTS`: counts, and the most frequent values of some notes."""
    tokens = _counter(tokenizer)
    facts: dict[str, Any] = {"documents": 0, "bytes": 0, "words": 0, "tokens": 0}
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*COUNTED, "source")}

    encode = json.JSONEncoder(ensure_ascii=False).encode

    def lines() -> Iterator[bytes]:
        for batch in read_batches(shard):
            facts["documents"] += len(batch)
            facts["words"] += count_words(batch.texts)
            if tokens is not None:
                facts["tokens"] += tokens(batch.texts)
            for name, counter in counts.items():
                if name in batch.notes:
                    counter.update(value or "" for value in batch.notes[name])
            facts["bytes"] += sum(map(utf8_size, batch.texts))
            yield "".join([encode(row) + "\n" for row in rows_of(batch)]).encode()

    stage.write_bytes(PACKED, compressed(lines()))
    common = {n: dict(c.most_common(MOST_SOURCES)) for n, c in counts.items() if c}
    stage.write_json(FACTS, {**facts, "values": common})


def rows_of(batch: CurationBatch) -> Iterator[dict[str, Any]]:
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


def _counter(folder: str) -> Any:
    """Return a function that counts the tokens of texts, or None if `folder` is empty."""
    if not folder:
        return None
    from maskwright.text.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(Path(folder))
    return lambda texts: sum(len(ids) for ids in tokenizer.encode_batch(list(texts)))
