"""Fixtures of the tests of pretraining."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base.errors import Finding
from tinyrun import text_file


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file, which no test changes."""
    return text_file(tmp_path_factory.mktemp("text"))


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all findings that are printed during the test."""
    names: list[str] = []
    line = Finding.line

    def recording(finding: Finding) -> str:
        names.append(finding.name)
        return line(finding)

    monkeypatch.setattr(Finding, "line", recording)
    return names
