"""What a fine-tuning leaves: whole or refused, whatever was killed, changed or swapped."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.mutations import attack

from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.ask.predict import file as write_predictions_module
from maskwright.ask.predict.file import write_predictions
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.shared_encoder import load_shared
from maskwright.base.errors import CheckpointError, DataError, IncompatibleError, MaskwrightError
from maskwright.base.storage.files import FileSystem
from maskwright.base.storage.manifest import MANIFEST, read_manifest
from maskwright.cli.main import main
from maskwright.cli.verbs.show import show
from maskwright.learn.finetune import command
from maskwright.learn.finetune.learner import Learner
from maskwright.learn.finetune.method import Method
from maskwright.learn.pretrain import continued_pretraining
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.checkpoint import fine_tuned, pretrained
from maskwright.model.opening import folders
from maskwright.model.opening import open as opening
from small_tasks import finetuned, table

TEXTS = ["a cat", "the big dog", "a dog and a cat"]
METHODS = ("full", "prefix", "lora")
BRIEFLY: dict[str, Any] = {"epochs": 1, "batch": 16, "rate": 2e-2}


@pytest.fixture(scope="module")
def results(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished results by method; beside each, in `stops`, its folder as it was before each of the
    renames that made it."""
    base, rename = tmp_path_factory.mktemp("results"), FileSystem.rename
    data = table(base / "data.csv", "classification", 60)
    for method in METHODS:
        out, stops = base / method, base / f"{method}-stops"
        stops.mkdir()

        def noted(
            files: FileSystem, source: Path, target: Path, out: Path = out, stops: Path = stops
        ) -> None:
            if out in target.parents and not target.name.startswith((".", "seed-")):
                shutil.copytree(out, stops / f"{len(list(stops.iterdir())):02}-{target.name}")
            rename(files, source, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileSystem, "rename", noted)
            finetuned(model, data, out, method=method, **BRIEFLY)
    return {method: base / method for method in METHODS}


def stops(out: Path) -> list[Path]:
    """Copies of the folder as a kill would have left it, in order."""
    return sorted(out.with_name(f"{out.name}-stops").iterdir())


OPENERS: dict[str, Callable[[Path], object]] = {
    "predict": load,
    "predict model/": lambda out: load(out / "model"),
    "--also": lambda out: load_shared([out, out]),
    "finetune, evaluate": folders.model_folder,
    "finetune model/": lambda out: pretrained.load(out / "model"),
    "probe, attention": ProbedModel.of,
    "generate, fill-mask": opening.open_model,
    "adapt": continued_pretraining.recipe_of,
    "show": lambda out: show(str(out), []),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_was_killed_between_its_commits_is_refused(
    results: dict[str, Path], method: str
) -> None:
    folders_then = stops(results[method])
    assert len(folders_then) >= 7
    assert sum((folder / "model").is_dir() for folder in folders_then) >= 5
    for stopped in folders_then:
        assert (stopped / "unfinished").is_dir() and not (stopped / MANIFEST).exists()
        for name, opened in OPENERS.items():
            if "model/" in name and not (stopped / "model").is_dir():
                continue
            with pytest.raises(MaskwrightError) as refusal:
                opened(stopped)
            assert "not finished" in refusal.value.what, name
            assert f"--out {stopped}" in str(refusal.value.do), name


@pytest.mark.parametrize("stop", ["02-", "finetune.toml", MANIFEST])
def test_the_same_command_ends_what_was_killed(
    stop: str, results: dict[str, Path], model: Path, tmp_path: Path
) -> None:
    out = results["prefix"]
    *_, stopped = (folder for folder in stops(out) if stop in folder.name)
    again = shutil.copytree(stopped, tmp_path / "again")
    finetuned(model, out.parent / "data.csv", again, method="prefix", **BRIEFLY)
    assert load(again).predict(TEXTS) == load(out).predict(TEXTS)
    assert sorted(os.listdir(again)) == sorted(os.listdir(out))


@pytest.mark.parametrize(("method", "new"), [("prefix", True), ("full", False)])
def test_a_head_that_was_learned_beside_the_model_is_new_without_it(
    results: dict[str, Path], method: str, new: bool
) -> None:
    kind = task_for("classification", ("meow", "woof"))
    assert Learner.of(results[method] / "model", kind, Method("full")).head_is_new is new


def test_the_folder_of_the_model_answers_as_the_one_around_it(
    results: dict[str, Path], tmp_path: Path
) -> None:
    """With what lies beside the model; and where the model alone is another one, it is said."""
    for out in results.values():
        assert load(out / "model").predict(TEXTS) == load(out).predict(TEXTS)
    assert "prefix/adapter" in (results["prefix"] / "model" / "README.md").read_text()
    assert folders.model_folder(results["lora"]) == results["lora"] / "model"
    with pytest.raises(IncompatibleError):
        folders.model_folder(results["prefix"])
    (shutil.copytree(results["lora"], tmp_path / "out") / MANIFEST).unlink()
    with pytest.raises(CheckpointError):
        load(tmp_path / "out")


def test_without_the_last_manifest_the_adapter_would_be_missing(
    results: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what is refused would have answered, and otherwise."""
    monkeypatch.setattr(opening, "require_finished", lambda folder: None)
    monkeypatch.setattr(folders, "require_finished", lambda folder: None)
    monkeypatch.setattr(pretrained, "require_finished", lambda folder: None)
    whole = load(results["prefix"]).predict(TEXTS)
    answered = []
    for stopped in stops(results["prefix"]):
        (stopped / "model" / "task.json").unlink(missing_ok=True)  # which came later
        (stopped / "model" / MANIFEST).unlink(missing_ok=True)
        try:
            answered.append(load(stopped).predict(TEXTS) == whole)
        except MaskwrightError:
            continue
    assert False in answered


CHANGES: dict[str, tuple[str, Any, str]] = {
    "labels swapped": ("labels", ["woof", "meow"], "not those of the model"),
    "a label more": ("labels", ["meow", "woof", "moo"], "not those of the model"),
    "another task": ("kind", "regression", "task is not the one"),
    "another head": ("kind", "tagging", "head is not the one"),
    "no task": ("kind", "cats", "no such task"),
    "no text": ("labels", "meow", "not a list"),
    "length": ("length", -3, "out of range"),
    "way with long texts": ("long", "middle", "handling of long texts is unknown"),
    "pieces": ("long", "hierarchical", "handling of long texts is not the one"),
    "unknown": ("lables", [], "unknown setting"),
    "columns": ("columns", {"text": "text"}, "not a list"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_task_says_is_checked_without_a_hash(
    results: dict[str, Path], change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that was copied without its manifest."""
    name, value, refused = CHANGES[change]
    out = shutil.copytree(results["full"] / "model", tmp_path / "out")
    (out / MANIFEST).unlink()
    path = out / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(CheckpointError, match=refused) as refusal:
        load(out)
    assert "task.json" in str(refusal.value.where)
    data = str(results["full"].parent / "data.csv")
    assert main(["predict", str(out), data]) == refusal.value.exit_code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["task.json", "model/task.json", "model/config.json", "adapter/adapter.json", MANIFEST]
)
def test_every_file_that_decides_answers_is_in_a_manifest(
    results: dict[str, Path], name: str, tmp_path: Path
) -> None:
    out = shutil.copytree(results["prefix"], tmp_path / "out")
    home = out / name.rpartition("/")[0]
    assert name == MANIFEST or name.rpartition("/")[2] in read_manifest(home).files
    (out / name).write_bytes((out / name).read_bytes() + b" ")
    with pytest.raises(CheckpointError):
        load(out)
    (out / name).unlink()
    with pytest.raises(CheckpointError):
        load(out)


def test_parts_of_two_results_are_not_put_together(
    results: dict[str, Path], tmp_path: Path
) -> None:
    out = shutil.copytree(results["full"], tmp_path / "out")
    shutil.rmtree(out / "model")
    shutil.copytree(results["lora"] / "model", out / "model")
    with pytest.raises(CheckpointError):
        load(out)


MUTATIONS = [("full", 5), ("prefix", 5)]
MANY = [pytest.param(method, 100, marks=pytest.mark.proof) for method in METHODS]


@pytest.mark.parametrize(("method", "count"), [*MUTATIONS, *MANY])
def test_mutations_of_a_result(
    results: dict[str, Path], method: str, count: int, tmp_path: Path
) -> None:
    out = shutil.copytree(results[method], tmp_path / "out")
    attacked = attack(out, lambda: load(out).predict(TEXTS), count)
    assert not attacked.faults, attacked.faults[:5]
    assert attacked.refused > attacked.tried / 3


def test_the_driver_sees_an_answer_that_changed(results: dict[str, Path], tmp_path: Path) -> None:
    """Negative control: read without a check, some change of the task is another answer."""
    out = results["full"]
    copied = tmp_path / "task.json"
    shutil.copy(out / "task.json", copied)
    found = attack(tmp_path, lambda: json.loads(copied.read_bytes())["labels"], 60)
    assert any("another value" in each for each in found.faults)
    assert any("Error" in each for each in found.faults)


def test_the_script_in_the_folder_gives_the_same_answers(
    results: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Moved elsewhere; also where what was learned lies beside the model."""
    monkeypatch.chdir(tmp_path)
    for method in ("prefix", "full"):
        out = shutil.copytree(results[method], tmp_path / method)
        assert fine_tuned.PARTS and "predict.py" in read_manifest(out).files
        monkeypatch.setattr(
            sys, "argv", [str(out / "predict.py"), *TEXTS[:-1], json.dumps(TEXTS[-1:])]
        )
        runpy.run_path(sys.argv[0], run_name="__main__")
        answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert answers == load(out).predict(TEXTS)
        monkeypatch.setattr(sys, "argv", [sys.argv[0], f"{method}.csv"])
        with pytest.warns(UserWarning):  # the control: a text of unknown words
            runpy.run_path(sys.argv[0], run_name="__main__")
        assert capsys.readouterr().out
        (tmp_path / f"{method}.csv").touch()
        with pytest.raises(SystemExit):  # a file is no text
            runpy.run_path(sys.argv[0], run_name="__main__")


def test_a_file_that_grows_while_it_is_answered_or_learned_from_is_refused(
    results: dict[str, Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table(tmp_path / "data.csv", "classification", 20)
    out, look_at = tmp_path / "told.csv", write_predictions_module._look_at
    assert write_predictions(results["full"], data, tmp_path / "control.csv") == 20

    def grow() -> None:
        data.write_text(data.read_text() + "one more cat,meow\n")

    def grown(*arguments: Any) -> Any:
        rows = look_at(*arguments)
        grow()
        return rows

    monkeypatch.setattr(write_predictions_module, "_look_at", grown)
    with pytest.raises(DataError, match=r"data\.csv"):
        write_predictions(results["full"], data, out)
    assert not out.exists() and not list(tmp_path.glob(".tmp-*"))
    monkeypatch.setattr(command, "hash_rows", lambda examples: (grow(), "x")[1])
    with pytest.raises(DataError, match=r"data\.csv"):
        finetuned(model, data, tmp_path / "out", **BRIEFLY)
