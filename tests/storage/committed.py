"""A small folder that was committed, for the tests of the commit room."""

from __future__ import annotations

from pathlib import Path

from maskwright.base.storage.commit import Staging, commit

WEIGHTS = bytes(range(256)) * 40


def fill(stage: Staging) -> None:
    stage.write_bytes("model.safetensors", WEIGHTS)
    stage.write_json("training/state.json", {"step": 7, "name": "é"})


def committed(parent: Path) -> Path:
    """The folder `parent/step-00000007`."""
    commit(parent / "step-00000007", fill, about={"step": 7})
    return parent / "step-00000007"
