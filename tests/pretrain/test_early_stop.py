"""Runs that end when the held-out loss no longer improves."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.ask.results import of_pretraining
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.base.report.page import read_run
from maskwright.base.storage.commit import numbered
from maskwright.learn.pretrain import checkpoints
from maskwright.learn.recipes.base.find import override, read
from maskwright.learn.recipes.base.recipe import Checkpoints, Evaluation, Recipe, frozen_part
from maskwright.learn.train.state import TrainState
from tinyrun import essence, recipe, resume_quietly, text_file, train_quietly


def still(text: Path, **training: Any) -> Recipe:
    """A recipe whose weights do not change: no evaluation but the first improves."""
    made = recipe(text, steps=24)
    optimizer = replace(made.training.optimizer, learning_rate=0.0)
    return replace(
        made,
        training=replace(made.training, optimizer=optimizer, **training),
        evaluation=Evaluation(every=3, rows=16, batch=16),
        checkpoints=Checkpoints(every=2, keep=20),
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    train_quietly(still(text_file(folder), patience=2), folder / "run")
    return folder / "run"


def counters(out: Path) -> dict[str, Any]:
    state = json.loads((numbered(out / "checkpoints")[-1] / checkpoints.STATE).read_text())
    return {name: value for name, value in state.items() if name != "seconds"}


def test_patience_counts_evaluations_that_do_not_improve_enough() -> None:
    state, counted = TrainState(), list[int]()
    for state.step, loss in enumerate([3.0, 2.5, 2.4, 2.3, math.nan, 2.0, 2.1], start=1):
        state.record_evaluation(loss, min_improvement=0.15)
        counted.append(state.stalled)
    # 2.4 is too little below 2.5, and 2.3 is enough: small steps add up.
    assert counted == [0, 0, 1, 0, 1, 0, 1]
    assert (state.best_step, state.best_loss) == (6, 2.0)
    assert TrainState.from_json(json.loads(json.dumps(state.to_json())), "here") == state


def test_a_run_without_improvement_stops_and_says_so(
    stopped: Path, tmp_path: Path, findings: list[str]
) -> None:
    """The control has no patience, and uses up its budget."""
    kinds = [(r["step"], r["kind"]) for r in checkpoints.read_journal(stopped)]
    assert [step for step, kind in kinds if kind == "evaluation"] == [3, 6, 9]
    assert kinds.count((9, "early-stop")) == 1 and max(kinds)[0] == 9
    folder, last = read_run(stopped), numbered(stopped / "checkpoints")[-1]
    assert folder.is_complete and folder.share == 9 / 24 and folder.end
    report = (stopped / "report.html").read_text()
    assert report.lower().count("stopped early") == 2 and "Not finished" not in report
    assert folder.end in of_pretraining(last, stopped).verdict
    before = essence(stopped)
    resume_quietly(stopped)
    assert essence(stopped) == before
    assert findings.count("stopped-early") == 1
    patient = still(Path(read(stopped / "recipe.toml").corpus.text[0]))
    train_quietly(patient, tmp_path / "run")
    folder = read_run(tmp_path / "run")
    assert folder.train[-1]["step"] == 24 and not folder.end
    assert findings.count("stopped-early") == 1


@pytest.mark.parametrize("step", [2, 4, 8])
def test_a_killed_run_stops_at_the_same_step(stopped: Path, tmp_path: Path, step: int) -> None:
    """What a kill after a checkpoint leaves: older checkpoints, and a journal that is ahead."""
    out = shutil.copytree(stopped, tmp_path / "run")
    for path in numbered(out / "checkpoints"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    resume_quietly(out)
    assert essence(out) == essence(stopped) and counters(out) == counters(stopped)


def test_a_count_that_is_forgotten_is_seen(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a resume that restores all but the count stops later."""
    out = shutil.copytree(stopped, tmp_path / "run")
    shutil.rmtree(numbered(out / "checkpoints")[-1])  # the one of the end, after two evaluations
    from_json = TrainState.from_json
    monkeypatch.setattr(
        TrainState, "from_json", lambda *a: replace(from_json(*a), stalled=0, loss_to_beat=math.inf)
    )
    resume_quietly(out)
    assert counters(out)["step"] > counters(stopped)["step"]


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (["training.patience=0"], "training.patience"),
        (["training.min_improvement=0.1"], "training.min_improvement"),
        (["training.patience=2", "training.min_improvement=-1"], "training.min_improvement"),
        (["training.patience=2", "evaluation.every=0"], "evaluation.every"),
    ],
)
def test_settings_that_stop_nothing_are_refused(settings: list[str], where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        override(recipe(Path("text.txt")), settings)
    assert refused.value.where == where


def test_evaluations_that_decide_the_end_cannot_change(stopped: Path) -> None:
    """Without patience they may."""
    made = read(stopped / "recipe.toml")
    with pytest.raises(IncompatibleError) as refused:
        resume_quietly(stopped, settings=override(made, ["evaluation.every=5"]))
    assert refused.value.where == "evaluation.every"
    impatient = frozen_part(replace(made, training=replace(made.training, patience=None)))
    assert "evaluation" not in impatient and "evaluation" in frozen_part(made)
