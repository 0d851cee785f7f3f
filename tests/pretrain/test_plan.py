"""From a time to a recipe, by costs that are made up; the expected loss; tables of costs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright import api
from maskwright.base import catalogue
from maskwright.base.errors import ConfigError, ResourceError
from maskwright.cli import main as cli
from maskwright.learn.pretrain import cost
from maskwright.learn.pretrain import plan as planning
from maskwright.learn.pretrain.cost import StepCost, TextSample, estimate
from maskwright.learn.recipes.base.find import find

PER_FLOP, TOKENS = 1e-10, 50_000


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the recipes that are measured, on a text of `TOKENS` tokens."""
    names: list[str] = []

    def measure(recipe: Any, sample: Any, *, seconds: float = 1.0) -> Any:
        names.append(recipe.name)
        return estimate(recipe, PER_FLOP)

    store = SimpleNamespace(vocabulary_size=100, path=tmp_path, num_documents=3, num_tokens=9)
    stores: Any = SimpleNamespace(train=(store,), held_out=store)
    sample = contextlib.nullcontext(TextSample(stores, TOKENS, True))
    monkeypatch.setattr(planning, "sampled", lambda recipe: sample)
    monkeypatch.setattr(planning, "measure", measure)
    return names


@pytest.mark.parametrize(("time", "shape"), [("6min", "2x64"), ("2h", "2x128"), ("40h", "4x192")])
def test_the_largest_model_that_reads_enough_is_planned(
    time: str, shape: str, measured: list[str], tmp_path: Path
) -> None:
    log, target = io.StringIO(), tmp_path / "recipe.toml"
    planned, *others = api.plan(text=str(tmp_path), time=time, write_recipe=target, stream=log)
    assert planned.recipe.name == f"bert-mini-{shape}" == find(str(target)).name
    assert planned.tokens >= planning.TOKENS_PER_PARAMETER * planned.cost.parameters
    larger = next(run for run in others if run.name == "larger")
    assert larger.tokens < planning.TOKENS_PER_PARAMETER * larger.cost.parameters
    assert planned.recipe.training.batch <= find("bert-mini").training.batch
    limit = 60.0 * {"6min": 6, "2h": 120, "40h": 2400}[time]
    assert 0.9 * limit < planned.seconds <= limit
    assert planned.passes == pytest.approx(planned.tokens / TOKENS)
    assert planned.documents == pytest.approx(TOKENS / 3)
    assert ("note:" in log.getvalue()) is (planned.passes > planning.MOST_PASSES)
    assert {run.recipe.objective.name for run in others} >= {"causal", "replaced-token"}
    with pytest.raises(Exception, match=str(target)):  # nothing is overwritten, or measured for it
        api.plan(time=time, write_recipe=target, stream=log)


def test_a_recipe_is_measured_as_it_is(measured: list[str]) -> None:
    (run,) = api.plan("bert-small", stream=io.StringIO())
    assert measured == ["bert-small"] and run.recipe == find("bert-small")
    assert run.tokens == 20_000 * 64 * 128


@pytest.mark.parametrize(
    ("limits", "where"),
    [
        ({"time": "1sec"}, "time"),
        ({"time": "0.01min"}, "--time"),
        ({"time": "2h", "memory": 1e6}, "--memory"),
        ({"time": "2h", "disk": 1e3}, "--disk"),
    ],
)
def test_what_is_not_feasible_is_refused_with_what_is(
    limits: dict[str, Any], where: str, measured: list[str]
) -> None:
    with pytest.raises((ResourceError, ConfigError)) as refused:
        api.plan(**limits)
    assert refused.value.where == where and refused.value.wanted
    enough = {"time": "2h", "memory": 1e9, "disk": 1e9}  # the control
    assert api.plan(**enough, stream=io.StringIO())


@pytest.mark.parametrize(
    "words", ["", "--time 1h --memory much", "--time 1h --write-recipe x.json", "--recipe nothing"]
)
def test_mistakes_are_refused_before_anything_is_measured(words: str, measured: list[str]) -> None:
    assert cli.main(["plan", *words.split()]) == 64
    assert not measured


def test_the_expected_loss_is_that_of_runs_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of most recorded runs the interval that the others predict has the loss."""
    runs = json.loads(planning.RECORDED.read_text())["runs"]
    hits = []
    for left_out in runs:
        target = tmp_path / "others.json"
        target.write_text(json.dumps({"runs": [run for run in runs if run is not left_out]}))
        monkeypatch.setattr(planning, "RECORDED", target)
        size = left_out["parameters"], left_out["tokens"], left_out["unigram_loss"]
        loss = planning.expected_loss(left_out["objective"], *size, math.inf)
        if loss is not None:
            assert loss[0] < loss[1] < loss[2]
            hits.append(loss[0] <= left_out["loss"] <= loss[2])
    assert len(hits) >= len(runs) // 2 and sum(hits) >= 0.8 * len(hits)
    run = runs[0]
    at = functools.partial(planning.expected_loss, run["objective"])
    assert at(1e12, run["tokens"], 6.0, 9.0) is None
    assert at(*size[:2], math.nan, 9.0) is None and at(*size[:2], 0.001, 9.0) is None
    assert (capped := at(*size[:2], 6.0, 4.1)) is not None and capped[2] == 4.1
    assert planning.expected_loss("denoising", *size, 9.0) is None


RECIPES = ["babytext-hour", "bert-base", "bert-mini", "gpt2-mini"]


def at_speed(seconds: float) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        step = StepCost(parameters=1, tokens=1.0, flops=1.0, seconds=seconds, memory=1)
        patch.setattr(cost, "measure", lambda recipe: step)
        names = catalogue.names
        patch.setattr(
            catalogue, "names", lambda room: RECIPES if room == "recipes" else names(room)
        )
        rooms = ("recipes", "models")
        return {room: {row[0]: row for row in cost.table(room)} for room in rooms}


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
    monkeypatch.setattr(cost, "table", lambda room: [row])
    assert cli.main(["list", "recipes"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "tiny" in line)
    assert line.split()[5] == "3" and not list(tmp_path.iterdir()), "nothing is kept at home"
