"""The folder that `curate` writes, and the files in it that are text.

clean/text/00000.jsonl.gz, …   the documents: id, text, and a column for each note
clean/removed/RULE.jsonl.gz    what went, and why: no text to learn from
clean/card.json, card.md       counts, settings, licences
clean/page.html, recipe.toml
clean/MANIFEST.json            written last; its `about` has "made": "curated corpus"
clean.work/                    next to it: pieces, kept for the next run
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.manifest import LARGEST, MANIFEST, REMEDY, hash_file, verify
from maskwright.base.storage.strict_json import parse_object

MADE = "curated corpus"
TEXT = "text"
CARD = "card.json"
WORK = ".work"
LEFT = "left"  # the part of the card about the result


def is_curated(folder: Path) -> bool:
    """Whether the folder is the result of a curation, even if damaged."""
    manifest = folder / MANIFEST
    try:
        if not manifest.is_file() or manifest.stat().st_size > LARGEST:
            return False
        return f'"{MADE}"'.encode() in manifest.read_bytes()
    except OSError:
        return False


def texts(folder: Path) -> dict[Path, str]:
    """Return the text files of a curated folder in their order, mapped to their SHA-256.

    Raises:
        DataError: a file is missing, was added or has changed in size.
    """
    manifest = verify(folder, full=False, error=DataError)
    prefix = f"{TEXT}/"
    listed = {
        folder / name: facts["sha256"]
        for name, facts in sorted(manifest.files.items())
        if name.startswith(prefix)
    }
    paths_found = {
        Path(directory) / name for directory, _, names in os.walk(folder / TEXT) for name in names
    }
    if extra := sorted(path for path in paths_found - {*listed} if not path.name.startswith(".")):
        raise DataError(
            "a file was put into a curated corpus after it was made",
            where=extra[0],
            found="not in its manifest",
            wanted=f"the {len(listed):,} files that curate wrote",
            do=f"take it out, or curate it, too; to read all as it stands, name {folder / TEXT}",
        )
    return listed


def require_same(path: Path, digest: str, expected: str | None) -> None:
    """Check the hash of a file of a curated corpus; `expected` None skips the check.

    Raises:
        DataError: the hash differs.
    """
    if expected is not None and digest != expected:
        raise DataError(
            "a file of a curated corpus is not the one that curate wrote",
            where=path,
            found=f"sha256 {digest}",
            wanted=f"sha256 {expected}",
            do=REMEDY,
        )


def is_work(folder: Path) -> bool:
    """Whether the folder is the work folder of a curation, which is next to its result and stays
    there when it is finished."""
    try:
        return folder.name.endswith(WORK) and any(folder.glob("reading/*/shards.json"))
    except OSError:
        return False


def refuse_work(folder: Path) -> None:
    """Raise an error for the work folder of a curation.

    Raises:
        UsageError: advises to finish the curation, or to name the result.
    """
    if not is_work(folder):
        return
    out = folder.with_name(folder.name.removesuffix(WORK))
    finished = is_curated(out)
    raise UsageError(
        "curate works in this folder" if finished else "the curation is not finished",
        where=folder,
        found="pieces of a corpus, not its text",
        wanted=f"the corpus {out}",
        do=f"name {out}"
        if finished
        else f"start the same curate command again, which goes on, and name {out} then",
    )


def summary(folder: Path) -> dict[str, Any]:
    """Return what a run records of a curated corpus: its fingerprint, and the summary on its card
    (documents, bytes, languages, licences).

    Raises:
        DataError: the manifest or the card is damaged.
    """
    manifest = verify(folder, full=False, error=DataError)
    facts: dict[str, Any] = {"folder": str(folder), "fingerprint": manifest.sha256}
    if CARD in manifest.files:
        path = folder / CARD
        require_same(path, hash_file(path), manifest.files[CARD]["sha256"])
        card = parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)
        facts |= card[LEFT] if isinstance(card.get(LEFT), dict) else {}
    return facts
