"""Reads the files of a tokenizer in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskwright.base.errors import TokenizerError
from maskwright.base.storage.manifest import require_as_saved
from maskwright.text.tokenizer.file.check import MOST_BYTES, read_json
from maskwright.text.tokenizer.file.classes import apply_settings, class_named
from maskwright.text.tokenizer.file.slow import SLOW_FILES, convert

NAMES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
CONFIG = "config.json"


def read_folder(folder: Path, *, as_saved: bool = True) -> list[dict[str, Any]]:
    """Return the `tokenizer.json` of a folder and its settings.

    The settings are applied to the file as in transformers (`classes.py`). The vocabulary of a slow
    tokenizer is converted (`slow.py`).

    Args:
        as_saved: refuse a file that differs from the manifest of the folder.

    Raises:
        TokenizerError: no tokenizer; a file that is too large, not JSON or differs from the
            manifest; settings that contradict the file; or an unsupported vocabulary.
    """

    def data_of(file: str) -> bytes:
        data = _read(folder / file)
        if as_saved and file != CONFIG:
            require_as_saved(folder / file, data, beside=NAMES, error=TokenizerError)
        return data

    def json_of(file: str) -> dict[str, Any]:
        return read_json(data_of(file), str(folder / file))

    tables = [json_of(name) for name in NAMES[1:] if (folder / name).is_file()]
    settings = json_of(NAMES[1]) if (folder / NAMES[1]).is_file() else {}
    config = json_of(CONFIG) if (folder / CONFIG).is_file() else {}
    name = class_named(settings, config)
    if (folder / NAMES[0]).is_file():
        return [apply_settings(json_of(NAMES[0]), settings, name), *tables]
    if not tokenizer_files(folder):
        raise _missing(folder)
    plain, roles = convert(folder, name, tables, data_of, json_of)
    return [plain, *tables, roles]


def tokenizer_files(folder: Path) -> list[str]:
    """Return `tokenizer.json`, or the files of a slow tokenizer, in a folder; empty if none."""
    if (folder / NAMES[0]).exists():
        return [NAMES[0]]
    return [name for name in SLOW_FILES if (folder / name).exists()]


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise TokenizerError(
            "too large a file", where=path, found=f"{size} bytes", wanted=f"at most {MOST_BYTES}"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError("the file cannot be read", where=path, found=error.strerror) from error


def _missing(folder: Path) -> TokenizerError:
    if not folder.is_dir():
        return TokenizerError("no such folder", where=folder, wanted="a folder with tokenizer.json")
    return TokenizerError(
        "no tokenizer.json in the folder",
        where=folder,
        found=", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "an empty folder",
        wanted="tokenizer.json",
        do="name the folder that the tokenizer was saved in",
    )
