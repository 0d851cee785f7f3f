"""Safe reading of untrusted model folders: plain names, regular files, strict JSON.

Names from a file or a user must be plain base names; files must be regular and of bounded size, and
links may only point to the blobs of a download cache. JSON is read by `strict_json`.

The list of modules of a sentence-transformers folder is checked in the same way:

    modules.json    [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling", …}, …]

Modules are applied in the order of the list. The model is in the folder itself or, in folders of
old releases, in `0_Transformer`.
"""

from __future__ import annotations

import contextlib
import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base import hub
from maskwright.base.errors import CheckpointError, StorageError, UsageError, near_path
from maskwright.base.storage.files import links_outside
from maskwright.base.storage.manifest import REMEDY, require_as_saved
from maskwright.base.storage.strict_json import parse, parse_object

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LARGEST_JSON = 16 << 20


def model_folder(folder: Path | str) -> Path:
    """Return the folder as a path.

    Raises:
        UsageError: it does not exist, or is not a folder.
    """
    path = Path(folder)
    if "\0" in str(path) or not path.is_dir():
        raise UsageError(
            "there is no such model folder",
            where=path,
            wanted=near_path(path),
            do=hub.advice(path) or "name a folder with a config.json",
        )
    return path


def plain(name: str, where: object) -> str:
    """Return `name` if it is a plain base name.

    Raises:
        CheckpointError: it has a directory, a special character, or "..".
    """
    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name) or ".." in name:
        raise CheckpointError(
            "not the plain name of a file",
            where=where,
            found=repr(name),
            wanted="letters, digits, '.', '_', '-'",
        )
    return name


def regular_file(folder: Path, name: str, largest: int | None = None) -> Path:
    """Return the path of `name` in `folder` if it is a regular file of at most `largest` bytes.

    Raises:
        CheckpointError: it is missing, not a regular file, too large, or a link out of the folder.
    """
    path = folder / plain(name, folder)
    try:
        status = path.stat()
        is_outside = path.is_symlink() and links_outside(path, folder)
    except (OSError, RuntimeError) as error:
        found_instead = getattr(error, "strerror", None) or error
        raise CheckpointError(
            "a file of the model cannot be read", where=path, found=found_instead, do=REMEDY
        ) from error
    if is_outside:
        raise CheckpointError(
            "a link leads out of the model folder",
            where=path,
            found=path.resolve(),
            do="replace it by the file itself",
        )
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("not a regular file", where=path, do=REMEDY)
    if largest is not None and status.st_size > largest:
        raise CheckpointError(
            "a file of the model is too large",
            where=path,
            found=f"{status.st_size:,} bytes",
            wanted=f"at most {largest:,}",
            do="check that this is the file of a model",
        )
    return path


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Context manager: convert OSError on reading `path` to StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            "reading failed",
            where=path,
            found=error.strerror or error,
            do="correct its permissions, or check the disk",
        ) from error


def read_json(folder: Path, name: str, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Read the JSON object in the file `name` of `folder`.

    Raises:
        CheckpointError: missing, too large, not strict JSON (`strict_json`), or different from the
            file that the folder's manifest lists.
        StorageError: it cannot be read.
    """
    path = regular_file(folder, name, largest)
    with reading(path):
        data = path.read_bytes()
    require_as_saved(path, data)
    return parse_object(data, path, error=CheckpointError, largest=largest)


def write_json(value: dict[str, Any]) -> bytes:
    """Return the bytes of a JSON file with sorted keys."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


# ----------------------------------------------------------------- folders of sentence-transformers
MODULES = "modules.json"


@dataclass(frozen=True)
class Module:
    """One module: its class name, its qualified class name, and the folder of its files ("" is the
    model folder itself)."""

    name: str
    type: str
    path: str


def modules_of(folder: Path) -> tuple[Module, ...]:
    """Return the modules in order; empty if the folder has no `modules.json`.

    Raises:
        CheckpointError: `modules.json` is not a list of modules, or names a folder elsewhere.
    """
    if not (folder / MODULES).is_file():
        return ()
    path = regular_file(folder, MODULES, LARGEST_JSON)
    with reading(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    listed = parse(text, path, error=CheckpointError)
    if not isinstance(listed, list) or not listed:
        raise _no_module(path, listed, '[{"type": …, "path": …}, …]')
    modules = tuple(_module(module, f"{path}: module {n}") for n, module in enumerate(listed))
    names = [module.get("name") for module in listed]
    if len(set(map(str, names))) < len(names):
        raise CheckpointError(
            "two modules have the same name, so sentence-transformers would load only one",
            where=path,
            found=", ".join(map(str, names)),
            do="number them: 0, 1, 2, …",
        )
    return modules


def transformer_folder(folder: Path) -> Path:
    """Return the folder of the model in a sentence-transformers folder; otherwise `folder` itself.

    Raises:
        CheckpointError: as `modules_of`.
    """
    if (folder / "config.json").exists():
        return folder
    transformers = [module for module in modules_of(folder) if module.name == "Transformer"]
    return folder / transformers[0].path if transformers else folder


def around(path: Path) -> Path:
    """Return the sentence-transformers folder of the model in `path`: its parent, or `path`."""
    if (path / MODULES).is_file() or not (path.parent / MODULES).is_file():
        return path
    listed = [module.path for module in modules_of(path.parent) if module.name == "Transformer"]
    return path.parent if listed == [path.name] else path


def _module(entry: Any, where: str) -> Module:
    fields = entry if isinstance(entry, dict) else {}
    module_type, path = fields.get("type"), fields.get("path", "")
    if not isinstance(module_type, str) or not isinstance(path, str):
        raise _no_module(where, entry, '{"type": …, "path": …}')
    return Module(module_type.rpartition(".")[2], module_type, plain(path, where) if path else "")


def _no_module(where: object, entry: object, expected: str) -> CheckpointError:
    return CheckpointError(
        "not a module, or a list of modules",
        where=where,
        found=str(entry)[:80],
        wanted=expected,
        do="copy or download the folder again",
    )
