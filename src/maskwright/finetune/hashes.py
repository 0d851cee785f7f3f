"""What a model or a file of data was, by its bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hashes(path: Path) -> dict[str, str]:
    """The SHA-256 of the file, or of each file in the folder, by name; what is half written there
    (`.tmp-…`) does not count."""
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name[:5] != ".tmp-")
    found = {}
    for each in files:
        with each.open("rb") as file:
            name = each.name if each == path else str(each.relative_to(path))
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
