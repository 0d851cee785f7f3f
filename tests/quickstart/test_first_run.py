"""The first run's time: what is refused, and what is said of what it will take."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from maskwright import api
from maskwright.ask import quickstart
from maskwright.base.report import document
from maskwright.cli.main import main
from maskwright.learn.pretrain import run
from maskwright.learn.quickstart_task import MARKER
from tinyrun import recipe, text_file


@pytest.mark.parametrize("minutes", ["1", "-3", "nan", "inf"])
def test_a_time_that_leaves_nothing_to_train_in_is_refused(
    minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["quickstart", f"--minutes={minutes}", "--out", str(out)]) == 64
    said = capsys.readouterr().err
    assert "--minutes" in said and f"found: {minutes}" in said.replace("  ", " ")
    assert "above 1" in said and not out.exists()


def test_what_it_will_take_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart._fit_steps(0.1, 240, 20) == 1600
    assert capsys.readouterr().out == "1,600 steps, in all about 4 min\n"
    assert quickstart._fit_steps(0.6, 90, 20) == quickstart.FEWEST_STEPS
    said = capsys.readouterr().out
    assert "200 steps, in all about 3 min 20 s" in said and "longer than the 1 min 30 s" in said


def test_a_stopped_quickstart_ends_with_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is resumed; the control: a run that is none of the quickstart's gets none."""
    table = {"title": "labelled", "head": ["a"], "rows": [["b"]], "note": ""}
    monkeypatch.setattr(quickstart, "compare", lambda out, say: [table])
    run.pretrain(recipe(text_file(tmp_path), steps=1), tmp_path / "run", stream=io.StringIO())
    api.resume(tmp_path / "run", stream=io.StringIO())
    assert document.read(tmp_path / "run") == []
    (tmp_path / "run" / MARKER).write_text("{}")
    for _ in range(2):
        api.resume(tmp_path / "run", stream=(said := io.StringIO()))
        assert document.read(tmp_path / "run") == [table]
    assert said.getvalue().count("report:") == 1, "made once"
    assert "labelled" in (tmp_path / "run" / "report.html").read_text()
