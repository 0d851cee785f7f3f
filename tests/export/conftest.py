"""A graph takes seconds: one of a run is made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.model.graph import onnx
from maskwright.model.graph.graphs import Graph


@pytest.fixture(scope="session")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a vocabulary head, as the command exports it."""
    out = tmp_path_factory.mktemp("export") / "graphs"
    assert main(["export", str(model), "--to", "onnx", "--out", str(out)]) == 0
    return out


@pytest.fixture
def rewritten(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written once is not traced again."""

    def write(graph: Graph, folder: Path, *, opset: int = 18) -> list[Path]:
        return [Path(shutil.copy(exported / "onnx/model.onnx", folder / "model.onnx"))]

    monkeypatch.setattr(onnx, "write", write)
