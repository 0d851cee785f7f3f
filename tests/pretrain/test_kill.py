"""A run that is killed, again and again, ends as the run that never was; one that diverges, or
skips steps, leaves behind what there is to know."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train import loop
from maskwright.learn.train.state import DivergedError, TrainState
from tinyrun import essence, forked, recipe, text_file, train_quietly, wait

# Four are killed every day, twenty by `make proof`.
KILLS = (4, pytest.param(20, marks=pytest.mark.proof))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path, float]:
    """The uninterrupted run, and how long its training took."""
    folder = tmp_path_factory.mktemp("plain")
    made = recipe(text_file(folder))
    out = folder / "run"
    begun = time.monotonic()
    with (folder / "log").open("w") as stream:
        run.pretrain(made, out, stream=stream)
    return made, out, time.monotonic() - begun


def start(made: Recipe, out: Path) -> None:
    if (out / run.RECIPE).is_file():
        run.resume(out)
    else:
        shutil.rmtree(out, ignore_errors=True)
        run.pretrain(made, out)


@pytest.mark.parametrize("number", KILLS)
def test_F01_F04_random_kills_change_not_a_byte(
    number: int, plain: tuple[Recipe, Path, float], tmp_path: Path
) -> None:
    made, reference, seconds = plain
    wanted = essence(reference)
    generator = random.Random(0)
    kills, sittings = 0, 0
    out = tmp_path / "run"
    while kills < number:
        sittings += 1
        pid = forked(lambda: start(made, out), tmp_path / "log")
        time.sleep(generator.uniform(0.05, 0.8) * seconds)
        os.kill(pid, signal.SIGKILL)
        code = wait(pid)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0, (tmp_path / "log").read_text()[-2000:]
        assert essence(out) == wanted
        shutil.rmtree(out)
    pid = forked(lambda: start(made, out), tmp_path / "log")
    assert wait(pid) == 0, (tmp_path / "log").read_text()[-2000:]
    assert essence(out) == wanted


def test_the_comparison_sees_a_run_that_forgot_something(
    plain: tuple[Recipe, Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a resume that restores all but the moments ends elsewhere."""
    made, reference, _ = plain
    out = tmp_path / "run"
    pid = forked(lambda: start(made, out), tmp_path / "log")
    while not list(out.glob("checkpoints/step-*")):
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == -signal.SIGKILL
    monkeypatch.setattr(
        "maskwright.learn.train.optimizers.AdamWState.load",
        lambda self, state, steps: setattr(self, "steps", steps),
    )
    with (tmp_path / "log").open("a") as stream:
        run.resume(out, stream=stream)
    assert essence(out)["weights"] != essence(reference)["weights"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_F14_a_signal_saves_and_exits_and_the_run_goes_on(
    plain: tuple[Recipe, Path, float], tmp_path: Path, number: signal.Signals
) -> None:
    made, reference, _ = plain
    out = tmp_path / "run"
    pid = forked(lambda: start(made, out), tmp_path / "log")
    while not (out / "metrics.jsonl").is_file():
        time.sleep(0.002)
    os.kill(pid, number)
    code = wait(pid)
    assert code == 128 + number, (tmp_path / "log").read_text()[-2000:]
    assert list((out / "checkpoints").glob("step-*"))
    assert "Not finished" in (out / "report.html").read_text()
    with (tmp_path / "log").open("a") as stream:
        run.resume(out, stream=stream)
    assert essence(out) == essence(reference)
    assert "Not finished" not in (out / "report.html").read_text()


# ------------------------------------------------------------------------------ not finite
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
    with pytest.raises(DivergedError) as error:
        train_quietly(made, out)
    advice = str(error.value.do)
    assert "step-4.json" in advice and "--set training.on_nonfinite=skip" in advice
    assert "intact" not in advice, "there is no checkpoint yet"
    (file,) = (out / "crash").iterdir()
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["step"] == 4 and file.name == "step-4.json"
    assert len(report["weights_not_finite"]) == 1 and report["loss"] == "nan"
    rows = made.training.batch // made.training.microbatches
    assert [len(report["rows"][number]) for number in ("0", "1")] == [rows, rows]
    assert report["texts"] and all("".join(texts) for texts in report["texts"].values())
    steps = [line["step"] for line in report["before"] if line["kind"] == "train"]
    assert steps == [1, 2, 3]
    assert json.dumps(report, allow_nan=False)


def test_a_run_that_skipped_steps_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, findings: list[str]
) -> None:
    """The gradient of the third step is no number."""
    usual, calls = loop._means, iter(range(100))

    def spoiled(*sums: Any) -> dict[str, float]:
        return dict.fromkeys(usual(*sums), math.nan) if next(calls) == 2 else usual(*sums)

    monkeypatch.setattr(loop, "_means", spoiled)
    made = recipe(text_file(tmp_path), steps=4)
    skipping = replace(made, training=replace(made.training, on_nonfinite="skip"))
    train_quietly(skipping, tmp_path / "run")
    records = checkpoints.read_journal(tmp_path / "run")
    kinds = [record["kind"] for record in records if "tokens" in record]
    assert kinds == ["train", "train", "skipped", "train"] and "steps-skipped" in findings
    assert not (tmp_path / "run" / "crash").exists()
