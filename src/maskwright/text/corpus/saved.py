"""Determine which files are data in folders saved by the library `datasets`.

dataset_dict.json                    the names of the parts, a folder each
train/state.json                     {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
train/dataset_info.json              what the columns are
train/data-00000-of-00001.arrow      the rows
train/cache-1f2e3d.arrow             cached results of user functions: not data
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.storage.strict_json import parse

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
    """Return the files that describe the columns of a data set; for labelled data these are read
    for class names."""
    return {path for path in paths if path.name in (INFO, INFOS) and _is_info(path)}


def info(file: Path) -> dict[str, Any]:
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
