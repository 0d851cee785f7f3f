"""The Spec of an objective is resolved once in a run, and travels with the recipe from there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from maskwright import api
from maskwright.base import catalogue
from maskwright.learn.recipes.base.recipe import ObjectiveChoice
from maskwright.model.objectives.base.spec import Member, member_of, usual_for
from tinyrun import recipe, resume_quietly, text_file, train_quietly

ONCE = {"masked": 2}  # once for its settings, once for what computes


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the module of each objective is asked for."""
    counted: Counter[str] = Counter()
    load = catalogue.load

    def counting(room: str, name: str) -> ModuleType:
        counted.update([name] * (room == "objectives"))
        return load(room, name)

    monkeypatch.setattr(catalogue, "load", counting)
    return counted


def test_a_run_resolves_its_objective_once(tmp_path: Path, loads: Counter[str]) -> None:
    train_quietly(recipe(text_file(tmp_path), steps=2), tmp_path / "run")
    assert loads == ONCE
    loads.clear()
    resume_quietly(tmp_path / "run")
    assert loads == ONCE


def test_a_choice_that_keeps_nothing_is_counted(
    tmp_path: Path, loads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""

    def again(choice: ObjectiveChoice) -> Member:
        return member_of(choice.name)

    monkeypatch.setattr(ObjectiveChoice, "member", property(again))
    train_quietly(recipe(text_file(tmp_path), steps=2), tmp_path / "run")
    assert loads["masked"] > 5


def test_evaluating_resolves_it_once(model: Path, loads: Counter[str]) -> None:
    usual_for("encoder")  # found once in a process
    loads.clear()
    api.evaluate_text(model)
    assert loads == ONCE
