"""Folders of texts that a curation reads, and the rows in those that it writes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Iterable[Any]) -> Path:
    """Lines of JSON; a row that is a text is such a line."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def lines_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode()
    return [json.loads(line) for line in text.split("\n")[:-1]]


def rows_of(folder: Path, room: str) -> list[dict[str, Any]]:
    return [row for path in sorted((folder / room).glob("*.jsonl.gz")) for row in lines_of(path)]
