"""Manifests of finished folders, and their verification.

`MANIFEST.json` (or another name) lists every file with its bytes and SHA-256, and facts about the
folder. Its last entry is the hash of the others, which protects the manifest itself. `verify`
checks sizes first, which is cheap, and then hashes. `newest` returns the latest valid folder among
`step-00001200` and the like.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.base.config import canonical_json
from maskwright.base.errors import CheckpointError, MaskwrightError, StorageError, UsageError

FORMAT = 1
BEST = "best"  # fact in the manifest of a checkpoint: the name of another
MANIFEST = "MANIFEST.json"
LARGEST = 64 << 20
REMEDY = "use another copy or an older one, or make it again"
CHANGED = f"take an intact copy, or an earlier checkpoint; if you changed it, remove its {MANIFEST}"


@dataclass(frozen=True)
class Manifest:
    """Facts about a folder, and the bytes and SHA-256 of every file."""

    format: int
    about: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @property
    def sha256(self) -> str:
        """The hash of the content including the files: the fingerprint of the folder."""
        return hashlib.sha256(canonical_json(self._plain()).encode()).hexdigest()

    def render(self) -> bytes:
        """Return the content of the file."""
        text = json.dumps({**self._plain(), "sha256": self.sha256}, indent=1, ensure_ascii=False)
        return (text + "\n").encode("utf-8", "surrogatepass")

    def _plain(self) -> dict[str, Any]:
        return {"format": self.format, "about": self.about, "files": self.files}


def read_manifest(
    folder: Path, *, manifest: str = MANIFEST, error: type[MaskwrightError] = CheckpointError
) -> Manifest:
    """Read the manifest of `folder` and check it against its own hash, but not the files.

    Raises:
        error: no such folder; no manifest, a damaged one, or one of another format.
    """
    path = Path(folder) / manifest
    refused = partial(error, where=path, do=REMEDY)
    if not os.path.isdir(folder):
        raise error("no such folder", where=folder)
    if not os.path.isfile(path):
        raise refused("not complete: the manifest is missing")
    if (size := path.stat().st_size) > LARGEST:
        expected = f"at most {LARGEST:,} bytes"
        raise refused("a manifest of absurd size", found=f"{size:,} bytes", wanted=expected)
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise StorageError("a file cannot be read", where=path, found=fault) from fault
    try:
        parsed = _parse(data)
        intact = parsed.format != FORMAT or data == parsed.render()
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise refused("the manifest is damaged", found=fault) from fault
    if parsed.format != FORMAT:
        raise error(
            "a folder of another format",
            where=path,
            found=f"format {parsed.format}",
            wanted=f"format {FORMAT}",
            do="use the version that wrote it",
        )
    if not intact:
        actual, expected = "its own hash does not fit", f"sha256 {parsed.sha256}"
        raise refused("the manifest is damaged", found=actual, wanted=expected)
    return parsed


def verify(
    folder: Path,
    *,
    manifest: str = MANIFEST,
    full: bool = True,
    error: type[MaskwrightError] = CheckpointError,
) -> Manifest:
    """Check `folder` against its manifest: all sizes, then all hashes unless `full` is false.

    Raises:
        error: with the file, the expected and the found value.
        StorageError: a file cannot be read.
    """
    parsed = read_manifest(folder, manifest=manifest, error=error)
    for name, facts in parsed.files.items():
        path, expected = Path(folder) / name, f"{facts['bytes']:,} bytes"
        refused = partial(error, where=path, wanted=expected, do=REMEDY)
        if not os.path.isfile(path):
            raise refused(f"not complete: {name} is missing")
        if (size := path.stat().st_size) != facts["bytes"]:
            raise refused(f"{name} has the wrong size", found=f"{size:,} bytes")
    for name, facts in parsed.files.items() if full else ():
        path, expected = Path(folder) / name, f"sha256 {facts['sha256']}"
        if (digest := hash_file(path)) != facts["sha256"]:
            refused = partial(error, where=path, wanted=expected, do=REMEDY)
            raise refused(f"{name} is damaged", found=f"sha256 {digest}")
    return parsed


def require_as_saved(
    path: Path,
    data: bytes | None = None,
    *,
    beside: Collection[str] = (),
    error: type[MaskwrightError] = CheckpointError,
) -> str:
    """Refuse a file that differs from the manifest in its folder or the folder above, if there is
    one. Returns the SHA-256 of the file, or "" if no manifest lists it.

    Args:
        data: the content of the file; None: it is read.
        beside: names of files that are saved together: if one of them is listed and this file is
            not, it was added later.

    Raises:
        error: the file was changed or added later, or the manifest is damaged.
    """
    for home in (path.parent, path.parent.parent):
        if not (home / MANIFEST).is_file():
            continue
        parsed = read_manifest(home, error=error)
        name = path.relative_to(home).as_posix()
        facts = parsed.files.get(name)
        if facts is None and not any(sibling in parsed.files for sibling in beside):
            continue
        digest = hash_file(path) if data is None else hashlib.sha256(data).hexdigest()
        refused = partial(error, where=path, do=CHANGED)
        if facts is None:
            message = "a file was put there after the folder was saved"
            expected = ", ".join(parsed.files)
            raise refused(message, found="not in the manifest", wanted=expected)
        if digest != facts["sha256"]:
            size = path.stat().st_size if data is None else len(data)
            expected = f"{facts['bytes']:,} bytes, sha256 {facts['sha256']}"
            actual = f"{size:,} bytes, sha256 {digest}"
            raise refused("a file is not the one that was saved", found=actual, wanted=expected)
        return digest
    return ""


def numbered(parent: Path, prefix: str = "step-") -> list[Path]:
    """Return the folders `parent/prefix<number>` in the order of their numbers."""
    pattern = re.compile(re.escape(prefix) + r"([0-9]+)")
    names = os.listdir(parent) if os.path.isdir(parent) else []
    numbered_names = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [path for _, name in sorted(numbered_names) if (path := Path(parent) / name).is_dir()]


def newest(parent: Path) -> tuple[Path, Manifest, list[CheckpointError | StorageError]]:
    """Find the folder of `numbered` with the largest number that verifies.

    Returns the folder, its manifest, and the errors of the folders with larger numbers.

    Raises:
        CheckpointError: there is no valid folder; each is listed with its error.
    """
    skipped: list[CheckpointError | StorageError] = []
    for path in reversed(numbered(parent)):
        try:
            return path, verify(path), skipped
        except (CheckpointError, StorageError) as reason:  # damaged, or on a disk that fails
            skipped.append(reason)
    above = f"{parent}{os.sep}"
    reasons = "; ".join(f"{(r.where or '').removeprefix(above)}: {r.what}" for r in skipped)
    raise CheckpointError(
        "no complete checkpoint",
        where=parent,
        found=reasons or "no folder named step-<number>",
        do="start afresh in another folder, or restore a copy",
    )


def best_checkpoint(newest: Path) -> Path:
    """Return the checkpoint that is a run's model: the one of the lowest held-out loss, if the
    `newest` names it, else the newest. File sizes are checked, hashes are not.

    Raises:
        CheckpointError: a manifest or a size is wrong, or the named checkpoint is missing.
    """
    best = newest.with_name(str(verify(newest, full=False).about.get(BEST, newest.name)))
    if not best.is_dir():
        raise CheckpointError(
            f"{newest.name} names the model of this run, and it is missing",
            where=best,
            do=f"restore it from a copy, or name a checkpoint, such as {newest}",
        )
    verify(best, full=False)
    return best


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise StorageError("a file cannot be read", where=path, found=fault) from fault


def check_name(name: str) -> str:
    """Return `name` if it is a relative path inside a folder, as "training/state.json".

    Raises:
        UsageError: an absolute name, or one with "..", "\\\\", or nothing between two slashes.
    """
    components = name.split("/")
    if (
        any(component in ("", ".", "..") for component in components)
        or "\\" in name
        or "\0" in name
    ):
        raise UsageError("not the name of a file inside a folder", found=repr(name))
    return name


def _parse(data: bytes) -> Manifest:
    plain = json.loads(data.decode("utf-8", "surrogatepass"))
    if not isinstance(plain, dict) or not isinstance(plain.get("format"), int):
        raise ValueError("it is no manifest")
    if plain["format"] != FORMAT:
        return Manifest(plain["format"], {}, {})
    about, files = plain["about"], plain["files"]
    if not isinstance(about, dict) or not isinstance(files, dict):
        raise ValueError("`about` and `files` are not tables")
    for name, facts in files.items():
        if type(facts["bytes"]) is not int or not isinstance(facts["sha256"], str):
            raise ValueError(f"{name!r} has no size or no hash")
        try:
            check_name(name)
        except UsageError as fault:
            raise ValueError(f"{fault.what}: {fault.found}") from fault
    return Manifest(FORMAT, about, files)
