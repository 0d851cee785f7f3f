"""The files that lie beside an exported graph: how the model is asked, and its tokenizer.

config.json  tokenizer.json  …        as in a model folder, so that others know what it is
modules.json  1_Pooling/  …           of a model that makes vectors, as sentence-transformers
export.json                           what was read, what was written, what was measured
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.ask.predict.predictor import Predictor
from maskwright.base.storage import commit
from maskwright.base.version import VERSION
from maskwright.model.checkpoint import layout
from maskwright.model.opening.model import Model
from maskwright.ship.export.target import ABOUT

FORMAT = 1


def documents(model: Model, answers: Predictor | None) -> dict[str, bytes]:
    """The texts beside the graphs, by name."""
    form = layout.of_config(model.config, model.about.family)
    found: dict[str, bytes] = {}
    for name, content in layout.documents(form, model.words, model.about, {}).items():
        data = content() if callable(content) else content
        found[name] = data if isinstance(data, bytes) else b"".join(bytes(each) for each in data)
    if model.words is not None:
        found |= model.words.files(
            model.config.longest,
            plain=model.config.vocabulary_head is None,
            segments=model.config.has_segments,
        )
    if answers is not None:
        files = answers.task_type.files(answers.frame, model.config.width)
        found |= {name: text.encode() for name, text in files.items()}
    return found


def about_source(model: Model) -> dict[str, Any]:
    """What was exported, for `export.json`."""
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
    """Commit the folder `out`: what `fill` writes and proves, the texts, and what `fill` says of it
    as `export.json`. Where `fill` raises an error there is no folder.

    Returns:
        What `export.json` says.
    """
    said: dict[str, Any] = {}

    def write(staging: commit.Staging) -> None:
        said.clear()
        said.update(fill(staging))
        for name, data in texts.items():
            staging.write_bytes(name, data)
        staging.write_json(ABOUT, said)

    commit.commit(
        out, write, about={"kind": "export", "target": target}, expected_bytes=expected_bytes
    )
    return said


def add_files(staging: commit.Staging, files: Sequence[Path], folder: str = "") -> int:
    """Move finished files into the folder that is written, and tell their bytes."""
    total = 0
    for file in files:
        name = f"{folder}/{file.name}" if folder else file.name
        with staging.create(name) as written, file.open("rb") as source:
            while piece := source.read(1 << 22):
                written.write(piece)
        total += written.bytes
        file.unlink()
    return total
