"""Estimated costs of recipes and models: what they scale with, and their lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskwright.base import catalogue
from maskwright.cli import main as cli
from maskwright.learn.pretrain import cost_tables
from maskwright.learn.pretrain.cost import StepCost

RECIPES = ["babytext-hour", "bert-base", "bert-mini", "gpt2-mini"]


def at_speed(seconds: float) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        cost = StepCost(parameters=1, tokens=1.0, flops=1.0, seconds=seconds, memory=1)
        patch.setattr(cost_tables, "measure", lambda recipe: cost)
        names = catalogue.names
        patch.setattr(
            catalogue, "names", lambda room: RECIPES if room == "recipes" else names(room)
        )
        rooms = ("recipes", "models")
        return {room: {row[0]: row for row in cost_tables.table(room)} for room in rooms}


def test_costs_scale_with_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = at_speed(1e-12), at_speed(2e-12)
    assert list(fast["recipes"]) == RECIPES
    _, family, objective, parameters, speed, seconds = fast["recipes"]["bert-base"]
    assert (family, objective, parameters) == ("bert", "sentence-pair", 110_106_428)
    assert slow["recipes"]["bert-base"][4:] == pytest.approx((speed / 2, 2 * seconds), rel=1e-9)
    minutes = fast["recipes"]["babytext-hour"][5]
    assert minutes == slow["recipes"]["babytext-hour"][5], "the control: a budget in minutes"
    assert {"bert-large", "gpt2-xl"} <= fast["models"].keys()

    monkeypatch.setenv("HOME", str(tmp_path))
    row = ("tiny", "bert", "masked", 1_000_000, 3.0, 60.0)
    monkeypatch.setattr(cost_tables, "table", lambda room: [row])
    assert cli.main(["list", "recipes"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "tiny" in line)
    assert line.split()[5] == "3" and not list(tmp_path.iterdir()), "nothing is kept at home"
