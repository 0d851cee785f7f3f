"""The first run's time: what is refused, and what is said of what it will take."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.cli import main
from maskwright.quickstart.first_run import FEWEST_STEPS, _fit_steps


@pytest.mark.parametrize("minutes", ["0.2", "1", "0", "-3", "nan", "inf"])
def test_a_time_that_leaves_nothing_to_train_in_is_refused(
    minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["quickstart", f"--minutes={minutes}", "--out", str(out)]) == 64
    said = capsys.readouterr().err
    assert "--minutes" in said and f"found: {minutes}" in said.replace("  ", " ")
    assert "above 1" in said and not out.exists()


def test_what_it_will_take_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert _fit_steps(0.1, 240, 20) == 1600
    assert capsys.readouterr().out == "1,600 steps, in all about 4 min\n"
    assert _fit_steps(0.6, 90, 20) == FEWEST_STEPS
    said = capsys.readouterr().out
    assert "200 steps, in all about 3 min 20 s" in said and "longer than the 1 min 30 s" in said
