"""One small model that is looked into, never trained further."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from maskwright.pretrain import run
from tinyrun import recipe, text_file


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    run.pretrain(
        recipe(text_file(folder), steps=2, dropout=0.0), folder / "run", stream=io.StringIO()
    )
    return folder / "run"
