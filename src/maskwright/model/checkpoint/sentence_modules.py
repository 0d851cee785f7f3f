"""The list of modules of a sentence-transformers folder.

    modules.json    [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling", …}, …]

Modules are applied in the order of the list. The model is in the folder itself or, in folders of
old releases, in `0_Transformer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.base.errors import CheckpointError
from maskwright.base.storage.strict_json import parse
from maskwright.model.checkpoint.safe_read import LARGEST_JSON, plain, reading, regular_file

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
        raise CheckpointError(
            "not a list of modules",
            where=path,
            found=str(listed)[:80],
            wanted='[{"type": …, "path": …}, …]',
            do="copy or download the folder again",
        )
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
        raise CheckpointError(
            "not a module",
            where=where,
            found=str(entry)[:80],
            wanted='{"type": …, "path": …}',
            do="copy or download the folder again",
        )
    return Module(module_type.rpartition(".")[2], module_type, plain(path, where) if path else "")
