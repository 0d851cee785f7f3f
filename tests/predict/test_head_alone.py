"""A head above a model that stood still: linear or the family's own, saved alone, opened above its
base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from finetune.test_command import table
from maskwright import api
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.cli.main import main
from maskwright.model.opening import folders
from small_tasks import finetuned

TEXTS = ["the cat sat on the mat", "a dog", "one big red dog ran and saw a hat"]


def learned(base: Path, folder: Path, method: str) -> Path:
    data = table(folder / "data.csv", "classification", 80)
    options: dict[str, Any] = {"epochs": 1, "batch": 16, "rate": 1e-2, "least_steps": 0}
    finetuned(base, data, folder / method, method=method, **options)
    return folder / method


@pytest.fixture(scope="module")
def results(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of both methods, above a copy of the model."""
    folder = tmp_path_factory.mktemp("heads")
    base = folder / "base-model"
    shutil.copytree(folders.model_folder(model), base)
    made = {method: learned(base, folder, method) for method in ("probe", "head")}
    return {"base": base, **made}


def test_what_is_trained_and_saved(results: dict[str, Path], model: Path) -> None:
    """Two numbers for each class and a column; the family's own head has a pooler, too."""
    config = load(results["probe"]).model.config
    classes = config.heads[0].labels
    for method, count in (
        ("probe", classes * config.width + classes),
        ("head", classes * config.width + classes + config.width**2 + config.width),
    ):
        out = results[method]
        assert (
            sum(f.stat().st_size for f in (out / "adapter").glob("*.safetensors")) < 4 * count + 999
        )
        assert not list(out.rglob("model.safetensors")) and not (out / "model").exists()
        told = json.loads((out / "adapter" / "adapter.json").read_text())
        assert told["base"] == str(results["base"].resolve()) and len(told["base_sha256"]) == 64
        assert "api.write_whole" in (out / "adapter" / "README.md").read_text()
        assert load(out).model.config.pooler is (method == "head")
        assert load(out / "adapter").predict(TEXTS) == load(out).predict(TEXTS)


def test_the_base_may_move_and_be_laid_beside_it(
    results: dict[str, Path], tmp_path: Path, model: Path
) -> None:
    """But another is refused, and none is told with a remedy that works."""
    wanted = load(results["probe"]).predict(TEXTS)
    both = tmp_path / "both"
    shutil.copytree(results["base"].parent, both)  # moved together, it is found from the head
    moved = results["base"].with_name("moved")
    results["base"].rename(moved)
    try:
        assert load(both / "probe").predict(TEXTS) == wanted
        with pytest.raises(CheckpointError, match="base-model") as refused:
            load(results["probe"])
        assert "ln -s FOLDER" in str(refused.value.do)
        (results["probe"] / "base").symlink_to(moved)
        assert load(results["probe"]).predict(TEXTS) == wanted
        (results["probe"] / "base").unlink()
        (results["probe"] / "base").symlink_to(model)  # the run of which the base is the checkpoint
        assert load(results["probe"]).predict(TEXTS) == wanted
        (results["probe"] / "base").unlink()
        assert load(results["probe"], base=moved).predict(TEXTS) == wanted
        shutil.rmtree(both / "base-model")
        (both / "base-model").mkdir()
        shutil.copytree(moved, both / "base-model", dirs_exist_ok=True)
        config = both / "base-model" / "config.json"
        config.write_text(config.read_text().replace("{", "{ ", 1))
        for named in (None, both / "base-model"):
            with pytest.raises(IncompatibleError, match="base-model"):
                load(both / "probe", base=named)
        with pytest.raises(UsageError) as unused:
            load(model, base=moved)
        assert unused.value.where == "--base"
    finally:
        moved.rename(results["base"])
    assert load(results["probe"]).predict(TEXTS) == wanted


def test_as_one_folder_with_all_weights(results: dict[str, Path], tmp_path: Path) -> None:
    """It answers alike without its base; the family's own head is read by transformers."""
    for method in ("probe", "head"):
        out = tmp_path / method
        assert api.write_whole(results[method], out) == out / "model"
        assert load(out).predict(TEXTS) == load(results[method]).predict(TEXTS)
    config = json.loads((tmp_path / "head" / "model" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    with pytest.raises(UsageError, match="head"):
        api.write_whole(results["head"], tmp_path / "head")
    with pytest.raises(UsageError, match="head"):
        api.write_whole(tmp_path / "head", tmp_path / "again")
    pipeline = pytest.importorskip("transformers").pipeline
    theirs = pipeline("text-classification", model=str(tmp_path / "head" / "model"))(TEXTS)
    ours = load(results["head"]).predict(TEXTS)
    assert [t["label"] for t in theirs] == [o["label"] for o in ours]
    assert [t["score"] for t in theirs] == pytest.approx([o["score"] for o in ours], abs=1e-4)


def test_it_is_asked_measured_and_not_trained_on(
    results: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = results["probe"], results["probe"].parent / "data.csv"
    assert main(["predict", str(out), str(data), "--out", str(tmp_path / "told.csv")]) == 0
    assert main(["evaluate", str(out), "--data", str(data)]) == 0
    assert main(["finetune", str(out), "--data", str(data), "--out", str(tmp_path / "x")]) != 0
    assert "adapter.json" in capsys.readouterr().err
    again = ["finetune", str(results["base"]), "--data", str(data), "--out", str(out)]
    assert main(again) == 64 and "there already" in capsys.readouterr().err
    for path in (out, out / "adapter"):
        assert main(["show", str(path)]) == 0 and str(out / "adapter") in capsys.readouterr().out
    assert main(["show", str(out / "adapter" / "adapter.json")]) == 64
    assert f"maskwright show {out}\n" in capsys.readouterr().err
    incomplete = shutil.copytree(out, tmp_path / "incomplete")
    (incomplete / "adapter" / "adapter.safetensors").unlink()
    assert main(["show", str(incomplete)]) == 65
