"""A folder with a tokenizer in it: which files are read, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskwright.errors import TokenizerError
from maskwright.manifest import require_as_saved
from maskwright.tokenizer.check import MOST_BYTES, read_json

NAMES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
OLD_NAMES = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model")


def read_folder(folder: Path, *, as_saved: bool = True) -> list[dict[str, Any]]:
    """The parsed files that are there, `tokenizer.json` first.

    Args:
        as_saved: refuse a file that is not the one that the folder's manifest lists.

    Raises:
        TokenizerError: no `tokenizer.json`, or a file that is too large, not JSON, or not the one
            that was saved.
    """
    found = []
    for name in NAMES:
        path = folder / name
        if path.is_file():
            data = _read(path)
            if as_saved:
                require_as_saved(path, data, beside=NAMES, error=TokenizerError)
            found.append(read_json(data, str(path)))
        elif name == NAMES[0]:
            raise _missing(folder)
    return found


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
    old = [name for name in OLD_NAMES if (folder / name).exists()]
    return TokenizerError(
        "no tokenizer.json in the folder",
        where=folder,
        found=", ".join(old or sorted(p.name for p in folder.iterdir())[:8]) or "an empty folder",
        wanted="tokenizer.json",
        do="save it once with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        if old
        else "name the folder that the tokenizer was saved in",
    )
