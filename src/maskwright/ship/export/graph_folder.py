"""The files beside an exported graph: configuration and tokenizer.

config.json  tokenizer.json  …        as in a model folder
modules.json  1_Pooling/  …           of an embedding model, as sentence-transformers has them
export.json                           source, settings and measurements of the export
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.ask.predict.predictor import Predictor
from maskwright.base.storage import commit
from maskwright.base.version import VERSION
from maskwright.learn.tasks.base.sentence_transformers_folder import folder_files
from maskwright.model.checkpoint import layout
from maskwright.model.opening.model import Model
from maskwright.ship.export.target import ABOUT

FORMAT = 1


def documents(model: Model, answers: Predictor | None) -> dict[str, bytes]:
    """Return the contents of the files beside the graphs by name; `answers` is the predictor."""
    form = layout.of_config(model.config, model.about.family)
    contents: dict[str, bytes] = {}
    for name, content in layout.documents(form, model.words, model.about, {}).items():
        data = content() if callable(content) else content
        contents[name] = (
            data if isinstance(data, bytes) else b"".join(bytes(chunk) for chunk in data)
        )
    if model.words is not None:
        contents |= model.words.files(
            model.config.longest,
            plain=model.config.vocabulary_head is None,
            segments=model.config.has_segments,
        )
    if answers is not None:
        files = folder_files(answers.task_type, answers.frame, model.config.width)
        contents |= {name: text.encode() for name, text in files.items()}
    return contents


def about_source(model: Model) -> dict[str, Any]:
    """Return the entries of `export.json` about the exported model."""
    return {
        "format": FORMAT,
        "maskwright": VERSION,
        "source": {
            "fingerprint": model.fingerprint,
            "model_type": model.model_type,
            "task": None if model.task is None else model.task.kind,
        },
    }


def write_folder(
    out: Path,
    fill: Callable[[commit.Staging], dict[str, Any]],
    texts: dict[str, bytes],
    *,
    target: str,
    expected_bytes: int,
) -> dict[str, Any]:
    """Write and commit the folder `out`; if `fill` raises an error, no folder is left.

    Args:
        fill: writes and compares files, and returns the contents of `export.json`.
        texts: contents of further files by name.

    Returns:
        The contents of `export.json`.
    """
    about: dict[str, Any] = {}

    def write(staging: commit.Staging) -> None:
        about.clear()
        about.update(fill(staging))
        for name, data in texts.items():
            staging.write_bytes(name, data)
        staging.write_json(ABOUT, about)

    commit.commit(
        out, write, about={"kind": "export", "target": target}, expected_bytes=expected_bytes
    )
    return about


def add_files(staging: commit.Staging, files: Sequence[Path], folder: str = "") -> int:
    """Move files into a subfolder of the folder being written. Return their size in bytes."""
    num_bytes = 0
    for file in files:
        name = f"{folder}/{file.name}" if folder else file.name
        with staging.create(name) as target_file, file.open("rb") as source:
            while chunk := source.read(1 << 22):
                target_file.write(chunk)
        num_bytes += target_file.bytes
        file.unlink()
    return num_bytes
