"""What a model, a file of data or labelled rows were, by their bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from maskwright.base.errors import DataError
from maskwright.base.storage.manifest import hash_file
from maskwright.text.tables.layout import Dataset


def hashes(path: Path, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The SHA-256 of the file, or of each file in the folder, by name; what is half written there
    (`.tmp-…`) does not count.

    Args:
        known: those of files of the folder that were read just now, by name.
    """
    known = known or {}
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name[:5] != ".tmp-")
    names = {each: each.name if each == path else str(each.relative_to(path)) for each in files}
    return {name: known.get(name) or hash_file(each) for each, name in names.items()}


def require_as_read(data: Dataset) -> None:
    """Refuse rows of files that have changed since they were read: the hashes that are kept would
    be of other rows.

    Raises:
        DataError: naming the file.
    """
    for counts in data.counts.values():
        for name, digest in counts.hashes.items():
            path = Path(name)
            if path.is_file() and hash_file(path) != digest:
                raise DataError(
                    "the file has changed since it was read",
                    where=name,
                    wanted="a file that stays as it is",
                    do="give the same command again",
                )


def hash_rows(data: Dataset) -> str:
    """SHA-256 of all rows with their labels, in hex."""
    names = () if data.labels is None else data.labels.names
    found = hashlib.sha256(json.dumps(names).encode())
    for part, rows in sorted(data.parts.items()):
        for row in rows:
            values = [getattr(row, each.name) for each in fields(row) if each.name != "where"]
            found.update(json.dumps([part, type(row).__name__, *values]).encode())
    return found.hexdigest()
