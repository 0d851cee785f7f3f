"""A graph takes seconds: one of a run is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.cli.main import main


@pytest.fixture(scope="session")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a vocabulary head, as the command exports it."""
    out = tmp_path_factory.mktemp("export") / "graphs"
    assert main(["export", str(model), "--to", "onnx", "--out", str(out)]) == 0
    return out
