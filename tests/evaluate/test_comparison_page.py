"""Tables that a command puts beside a run stand on its page, escaped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskwright.base.errors import DataError
from maskwright.base.report.page import read_run, render


def folder(path: Path, text: str) -> Path:
    (path / "run.json").write_text('{"recipe": "tiny"}')
    (path / "results.json").write_text(text)
    return path


def test_a_table_is_shown_with_its_note(tmp_path: Path) -> None:
    table = {"title": "Which <one>?", "note": "a & b", "head": ["", "x"], "rows": [["<i>", "0.5"]]}
    page = render(
        read_run(folder(tmp_path, json.dumps({"tables": [table, {"title": "a hollow table"}]})))
    )
    assert "Which &lt;one&gt;?" in page and "a &amp; b" in page and "&lt;i&gt;" in page
    assert "<i>" not in page and "a hollow table" not in page


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"results\.json"):
        read_run(folder(tmp_path, "{"))
