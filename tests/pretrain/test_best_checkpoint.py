"""Runs that keep the checkpoint with the lowest held-out loss, which is then their model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.ask.results import of_pretraining
from maskwright.base.errors import CheckpointError
from maskwright.base.report.page import read_run
from maskwright.base.storage.commit import numbered
from maskwright.base.storage.manifest import best_checkpoint
from maskwright.cli.verbs.show import show
from maskwright.learn.pretrain import session
from maskwright.learn.recipes.base.recipe import Checkpoints, Evaluation, Recipe, Training
from maskwright.model.opening import folders
from tinyrun import essence, recipe, resume_quietly, text_file, train_quietly

LOSSES = {3: 3.0, 6: 2.0, 9: 2.5, 12: 2.4}  # held out, by step


@pytest.fixture(scope="module", autouse=True)
def told_losses() -> Iterator[None]:
    """Evaluations give the losses above."""
    evaluate, hook = session.held_out_loss.evaluate, session.EvaluateHook._evaluate
    step = [0]

    def evaluating(self: Any, state: Any) -> None:
        step[0] = state.step
        hook(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.EvaluateHook, "_evaluate", evaluating)
        patch.setattr(
            session.held_out_loss,
            "evaluate",
            lambda *a, **k: replace(evaluate(*a, **k), loss=LOSSES[step[0]]),
        )
        yield


def made(text: Path, keep: int = 1, **training: Any) -> Recipe:
    base = recipe(text, steps=12)
    return replace(
        base,
        training=replace(base.training, **training),
        evaluation=Evaluation(every=3, rows=16, batch=16),
        checkpoints=Checkpoints(every=4, keep=keep),
    )


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("best")
    train_quietly(made(text_file(folder), keep_best=True), folder / "run")
    return folder / "run"


def names(out: Path) -> list[str]:
    return [path.name for path in numbered(out / "checkpoints")]


def test_the_model_of_the_run_is_the_best_checkpoint(
    best: Path, text: Path, tmp_path: Path, findings: list[str]
) -> None:
    """The control keeps the last alone; the training is the same."""
    assert names(best) == ["step-00000006", "step-00000012"]
    model, last = numbered(best / "checkpoints")
    assert folders.model_folder(best) == model and folders.newest(best) == last
    assert resume_quietly(best) == model and findings[-1] == "best-checkpoint"
    folder, result = read_run(best), of_pretraining(model, best)
    assert folder.best == model.name and folder.evaluation["loss"] == 2.0
    assert result.metrics["loss"] == 2.0 and "2.0" in result.verdict
    assert f"{model.name} (the model)" in show(str(best), ())
    other = train_quietly(made(text), tmp_path / "run")
    assert names(tmp_path / "run") == [other.name] == ["step-00000012"]
    assert folders.model_folder(tmp_path / "run") == other
    assert essence(tmp_path / "run") == essence(best)
    assert findings[-1] == "lower-loss-before" and findings.count("best-checkpoint") == 1
    assert read_run(tmp_path / "run").evaluation["loss"] == 2.4


def test_a_killed_run_keeps_the_same_checkpoints(text: Path, tmp_path: Path) -> None:
    """What a kill after the fourth step leaves: older checkpoints, and a journal that is ahead."""
    out = tmp_path / "run"
    train_quietly(made(text, keep=9, keep_best=True), out)
    before, saved = essence(out), names(out)
    assert [int(name[-2:]) for name in saved] == [3, 4, 6, 8, 12]
    for name in saved[2:]:
        shutil.rmtree(out / "checkpoints" / name)
    assert resume_quietly(out).name == "step-00000006"
    assert essence(out) == before and names(out) == saved
    chosen = [best_checkpoint(path) for path in numbered(out / "checkpoints")]
    assert [path.name[-1] for path in chosen] == ["3", "3", "6", "6", "6"]


def test_a_damaged_best_checkpoint_is_not_replaced_silently(best: Path, tmp_path: Path) -> None:
    out = shutil.copytree(best, tmp_path / "run")
    weights = numbered(out / "checkpoints")[0] / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(CheckpointError) as refused:
        folders.model_folder(out)
    assert refused.value.where == str(weights)
    shutil.rmtree(weights.parent)
    with pytest.raises(CheckpointError) as missing:
        folders.model_folder(out)
    assert missing.value.where == str(weights.parent)
    newest = folders.newest(out)
    assert folders.model_folder(newest) == newest  # the remedy


def test_patience_keeps_the_best_unless_told_otherwise(text: Path) -> None:
    def keeps(**training: Any) -> bool:
        chosen: Training = made(text, **training).training
        return chosen.keeps_best

    assert keeps(patience=1) and keeps(keep_best=True)
    assert not keeps() and not keeps(patience=1, keep_best=False)
