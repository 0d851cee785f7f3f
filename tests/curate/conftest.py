"""What the tests of all steps share."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.each_step import write_files


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what steps need besides the corpus."""
    return write_files(tmp_path_factory.mktemp("files"))
