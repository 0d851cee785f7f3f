"""A run that diverges leaves behind what there is to know, and its last checkpoint."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.learn.pretrain import run
from maskwright.learn.train import loop
from maskwright.learn.train.state import DivergedError, TrainState
from tinyrun import recipe, text_file, train_quietly


def test_F41_what_a_diverging_run_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight is spoiled after the third step."""
    made, update = recipe(text_file(tmp_path), steps=40), loop._update

    def spoiling(optimizer: Any, plan: Any, state: TrainState, *others: Any) -> float:
        rate = update(optimizer, plan, state, *others)
        if state.step == 2:
            name = next(iter(optimizer.parameters.named))
            optimizer.parameters.view(optimizer.parameters.masters, name)[:] = math.inf
        return rate

    monkeypatch.setattr(loop, "_update", spoiling)
    out = tmp_path / "run"
    with pytest.raises(DivergedError, match=r"crash/step-4\.json tells more") as caught:
        train_quietly(made, out)
    assert "begin again with --set training.on_nonfinite=skip" in str(caught.value)
    assert "intact" not in str(caught.value), "there is no checkpoint yet"
    (file,) = (out / "crash").iterdir()
    told = json.loads(file.read_text(encoding="utf-8"))
    assert told["step"] == 4 and file.name == "step-4.json"
    assert len(told["weights_not_finite"]) == 1 and told["loss"] == "nan"
    rows = made.training.batch // made.training.microbatches
    assert [len(told["rows"][number]) for number in ("0", "1")] == [rows, rows]
    assert told["texts"] and all("".join(texts) for texts in told["texts"].values())
    steps = [line["step"] for line in told["before"] if line["kind"] == "train"]
    assert steps == [1, 2, 3]
    assert json.dumps(told, allow_nan=False)


def test_a_run_that_ends_well_leaves_no_such_thing(tmp_path: Path) -> None:
    train_quietly(recipe(text_file(tmp_path), steps=3), tmp_path / "run")
    assert not (tmp_path / "run" / "crash").exists()


def test_a_run_that_skipped_steps_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the third step is no number."""
    whole = loop.StepOutcome
    calls = iter(range(100))

    def spoiled(loss: float, *others: Any) -> loop.StepOutcome:
        return whole(math.nan if next(calls) == 2 else loss, *others)

    monkeypatch.setattr(loop, "StepOutcome", spoiled)
    made = recipe(text_file(tmp_path), steps=4)
    lax = replace(made, training=replace(made.training, on_nonfinite="skip"))
    said = io.StringIO()
    run.pretrain(lax, tmp_path / "run", stream=said)
    assert "step 3 skipped" in said.getvalue() and "step 4/4" in said.getvalue()
    assert "note: 1 of 4 steps were skipped" in said.getvalue()
