"""A curated shard as the file that is handed on: JSON Lines in gzip, a document a line."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.curate.engine.segment import MOST_SOURCES, own_id, utf8_size
from maskwright.curate.engine.tables import read_batches
from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.words import count_words
from maskwright.storage.commit import Staging, commit

PACKED, FACTS = "text.jsonl.gz", "facts.json"
LEVEL = 4  # of gzip: twice the speed of 6, 3 % larger
READ_AT = "read_at"
COUNTED = ("language", "licence", "license")  # notes whose values the card counts


def pack_shard(task: dict[str, Any]) -> dict[str, Any]:
    """Write the documents of a shard; found again if they are there.

    Args:
        task: `shard` (a path), `tokenizer` (a folder, or "") and `out`, the folder to make.
    """
    out = Path(task["out"])
    if not out.is_dir():
        commit(out, lambda stage: _write(stage, Path(task["shard"]), task["tokenizer"]))
    return {}


def _write(stage: Staging, shard: Path, tokenizer: str) -> None:
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
            rows = (row_of(batch, place) for place in range(len(batch)))
            yield "".join(encode(row) + "\n" for row in rows).encode()

    stage.write_bytes(PACKED, compressed(lines()))
    common = {n: dict(c.most_common(MOST_SOURCES)) for n, c in counts.items() if c}
    stage.write_json(FACTS, {**facts, "values": common})


def row_of(batch: Batch, place: int) -> dict[str, Any]:
    """A document as a row: id and text, then its notes that have a value; a document with an id of
    its own also says where it was read."""
    notes = {name: column[place] for name, column in sorted(batch.notes.items())}
    row = {"id": own_id(batch, place), "text": batch.texts[place]}
    row |= {n: v for n, v in notes.items() if v is not None and n not in row}
    return row if row["id"] == batch.ids[place] else {**row, READ_AT: batch.ids[place]}


def compressed(lines: Iterator[bytes]) -> Iterator[bytes]:
    """gzip without name and time, so that equal lines give equal bytes."""
    sink = io.BytesIO()
    with gzip.GzipFile("", "wb", LEVEL, sink, mtime=0) as file:
        for line in lines:
            file.write(line)
            if sink.tell() > 1 << 20:
                yield sink.getvalue()
                sink.seek(0)
                sink.truncate()
    yield sink.getvalue()


def _counter(folder: str) -> Any:
    """A function that counts the tokens of texts, or None."""
    if not folder:
        return None
    from maskwright.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(Path(folder))
    return lambda texts: sum(len(ids) for ids in tokenizer.encode_batch(list(texts)))
