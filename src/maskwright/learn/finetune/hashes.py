"""SHA-256 hashes of models, data files and labelled rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from maskwright.base.errors import DataError
from maskwright.base.storage.manifest import hash_file
from maskwright.text.tables.layout import Dataset


def hashes(path: Path, known_hashes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the SHA-256 of the file, or of each file in the folder, by name. Temporary files
    (`.tmp-…`) are excluded.

    Args:
        known_hashes: already computed hashes of files of the folder, by name.
    """
    known_hashes = known_hashes or {}
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name[:5] != ".tmp-")
    names = {file: file.name if file == path else str(file.relative_to(path)) for file in files}
    return {name: known_hashes.get(name) or hash_file(file) for file, name in names.items()}


def require_as_read(data: Dataset) -> None:
    """Check that no file of `data` has changed since it was read, so that its recorded hash is that
    of the rows.

    Raises:
        DataError: with the name of the file.
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
    """Return the SHA-256 of all rows with their labels, in hex."""
    names = () if data.labels is None else data.labels.names
    digest = hashlib.sha256(json.dumps(names).encode())
    for part_name, rows in sorted(data.parts.items()):
        for row in rows:
            values = [getattr(row, field.name) for field in fields(row) if field.name != "where"]
            digest.update(json.dumps([part_name, type(row).__name__, *values]).encode())
    return digest.hexdigest()
