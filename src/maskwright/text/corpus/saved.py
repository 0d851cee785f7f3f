"""Folders that programs saved, and which of their files are data.

Folders of the library `datasets`:

    dataset_dict.json                   the names of the parts, a folder each
    train/state.json                    {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    train/dataset_info.json             what the columns are
    train/data-00000-of-00001.arrow     the rows
    train/cache-1f2e3d.arrow            cached results of user functions: not data

Folders that `curate` writes:

    clean/text/00000.jsonl.gz, …   the documents: id, text, and a column for each note
    clean/removed/RULE.jsonl.gz    what went, and why: no text to learn from
    clean/card.json, card.md       counts, settings, licences
    clean/page.html, recipe.toml
    clean/MANIFEST.json            written last; its `about` has "made": "curated corpus"
    clean.work/                    next to it: pieces, kept for the next run

Folders of pretraining runs are recognised without importing torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.manifest import LARGEST, MANIFEST, REMEDY, hash_file, verify
from maskwright.base.storage.strict_json import parse, parse_object

# ------------------------------------------------------------------------ of the library `datasets`
STATE, PARTS = "state.json", "dataset_dict.json"
INFO, INFOS = "dataset_info.json", "dataset_infos.json"


def files_without_data(paths: Sequence[Path]) -> set[Path]:
    """Return the files of saved data sets among `paths` that are not data.

    Raises:
        DataError: a file or a part is missing, or only a selection of the rows was saved.
    """
    not_data: set[Path] = set()
    all_paths = set(paths)
    arrow_files: dict[Path, list[Path]] = {}
    for path in paths:
        if path.suffix == ".arrow":
            arrow_files.setdefault(path.parent, []).append(path)
    for path in paths:
        if path.name == PARTS and type(split_names := _value(path).get("splits")) is list:
            not_data.add(path)
            for name in split_names:
                if not (path.parent / str(name)).is_dir():
                    raise _missing_error(path, str(name), "a folder")
        elif path.name == STATE and type(files := _value(path).get("_data_files")) is list:
            not_data.add(path)
            data_files = {
                path.with_name(Path(str(e.get("filename", ""))).name if type(e) is dict else str(e))
                for e in files
            }
            if missing_files := sorted(data_files - all_paths):
                raise _missing_error(path, missing_files[0].name, "a file")
            not_data.update(set(arrow_files.get(path.parent, ())) - data_files)
            if _value(path).get("_indices_data_files") or _value(path).get("_indices_files"):
                raise DataError(
                    "the data set is saved as a selection of rows",
                    where=path,
                    found="indices",
                    wanted="the rows themselves",
                    do="save it once more: "
                    "load_from_disk(FOLDER).flatten_indices().save_to_disk(OTHER)",
                )
    return not_data


def description_files(paths: Sequence[Path]) -> set[Path]:
    """Return the files that describe the columns of a data set."""
    return {path for path in paths if path.name in (INFO, INFOS) and _is_info(path)}


def dataset_info(file: Path) -> dict[str, Any]:
    """Return the data set description in the folder of a saved file; empty if there is none."""
    path = file.with_name(INFO)
    return _value(path) if path.is_file() else {}


def _is_info(path: Path) -> bool:
    """Whether a file describes the columns of a data set, or of each of its configurations."""
    value = _value(path)
    return any(
        type(entry.get("features")) is dict
        for entry in (value, *value.values())
        if type(entry) is dict
    )


def _value(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty for other content."""
    try:
        value = parse(path.read_text(encoding="utf-8"))
    except (DataError, OSError, UnicodeDecodeError):
        return {}
    return value if type(value) is dict else {}


def _missing_error(path: Path, name: str, kind: str) -> DataError:
    return DataError(
        f"{kind} of a saved data set is missing",
        where=path,
        found=f"no {name}",
        wanted="all that it names",
        do="copy or save the data set again",
    )


# ------------------------------------------------------------------------------ of `curate`
MADE = "curated corpus"
TEXT = "text"
CARD = "card.json"
WORK_SUFFIX = ".work"
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


def curated_texts(folder: Path) -> dict[Path, str]:
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


def require_same_text(path: Path, digest: str, expected: str | None) -> None:
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


def is_curation_work(folder: Path) -> bool:
    """Whether the folder is the work folder of a curation, which is next to its result and stays
    there when it is finished."""
    try:
        return folder.name.endswith(WORK_SUFFIX) and any(folder.glob("reading/*/shards.json"))
    except OSError:
        return False


def refuse_curation_work(folder: Path) -> None:
    """Raise an error for the work folder of a curation.

    Raises:
        UsageError: advises to finish the curation, or to name the result.
    """
    if not is_curation_work(folder):
        return
    out = folder.with_name(folder.name.removesuffix(WORK_SUFFIX))
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


def curation_summary(folder: Path) -> dict[str, Any]:
    """Return what a run records of a curated corpus: its fingerprint, and the summary on its card
    (documents, bytes, languages, licences).

    Raises:
        DataError: the manifest or the card is damaged.
    """
    manifest = verify(folder, full=False, error=DataError)
    facts: dict[str, Any] = {"folder": str(folder), "fingerprint": manifest.sha256}
    if CARD in manifest.files:
        path = folder / CARD
        require_same_text(path, hash_file(path), manifest.files[CARD]["sha256"])
        card = parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)
        facts |= card[LEFT] if isinstance(card.get(LEFT), dict) else {}
    return facts


# ------------------------------------------------------------------------------ of a pretraining
RECIPE = "recipe.toml"


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run: it has a recipe, and it is not that of a curation."""
    return (folder / RECIPE).is_file() and not is_curated(folder)
