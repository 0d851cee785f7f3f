"""An experiment sheet: what is compared, kept, concluded and refused."""

from __future__ import annotations

import io
import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.base.metrics.row_metrics import ArrayMetric
from maskwright.cli.main import main
from maskwright.learn.finetune import experiment as module
from maskwright.learn.finetune.cross_validation import divide
from maskwright.learn.finetune.experiment import ExperimentSheet, experiment
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.learn.tasks.base.task_type import TaskMetrics
from maskwright.model.opening.open import open_weights
from maskwright.text.tables.prepare import prepare
from report.test_page import opens_with
from small_tasks import results_of, table


def sheet_of(right: dict[str, list[float]], costs: dict[str, float]) -> ExperimentSheet:
    """Combinations whose seeds have these accuracies on 400 rows."""
    truth, rows = np.zeros(400, int), np.arange(400)

    def metric(share: float) -> TaskMetrics:
        answers = (rows >= 400 * share).astype(int)
        return TaskMetrics({"accuracy": ArrayMetric("accuracy", truth, answers)})

    metrics = {name: [metric(share) for share in shares] for name, shares in right.items()}
    verdict = {"state": "good", "sentence": "Good.", "is_usable": True}
    facts = {**dict.fromkeys(module.COSTS, 1), "verdict": verdict, "validation": [None]}
    saved: dict[str, Any] = {name: facts | {"cpu_seconds": cost} for name, cost in costs.items()}
    return ExperimentSheet("accuracy", "400 rows (test)", metrics, saved)


def test_the_best_its_equals_and_the_cheapest_of_them() -> None:
    right = {"a": [0.90, 0.91], "b": [0.9], "c": [0.6, 0.62]}
    sheet = sheet_of(right, {"a": 9.0, "b": 2.0, "c": 0.1})
    assert (sheet.best, sheet.equals, sheet.cheapest) == ("a", ["b"], "b")
    assert "b (2.0 CPU s)" in sheet.verdict and sheet.pairs["rows"][0][:2] == ["a", "c"]
    gap, back = sheet.differences["a", "c"], sheet.differences["c", "a"]
    assert gap.p == back.p < 1e-3 and gap.low == -back.high > 0.2
    varied = sheet_of({**right, "c": [0.2, 0.99]}, dict.fromkeys("abc", 1.0))
    assert varied.equals == ["b", "c"], "the control: seeds that differ so much say nothing"
    undefined = sheet_of({**right, "a": [math.nan]}, dict.fromkeys("abc", 1.0))
    undefined.values["a"] = [math.nan]
    assert [row[0] for row in undefined.table["rows"]] == ["b", "c", "a"]
    chosen = {n: {**saved, "validation": [n == "c"]} for n, saved in sheet.saved.items()}
    useless = sheet_of({"bag-of-words": [0.5], "c": [0.5]}, {"bag-of-words": 1.0, "c": 2.0})
    useless.saved["bag-of-words"]["verdict"] = {"state": "unusable", "sentence": "Unusable."}
    assert useless.verdict.endswith("Unusable.")
    assert replace(sheet, saved=chosen).best == "c", "by validation data where all have some"


def test_models_and_methods_are_compared_and_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 60), tmp_path / "out"
    models = [str(model), f"untrained:{model}", "bag-of-words"]
    options = "--method embeddings,full --seeds 1 --epochs 1 --folds 2 --threads 1"
    command = f"experiment {' '.join(models)} --data {data} --out {out} {options}".split()
    learn, calls = module._learn, list[str]()

    def stopped(combination: module.Combination, *rest: Any) -> dict[str, Any]:
        calls.append(combination.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return learn(combination, *rest)

    monkeypatch.setattr(module, "_learn", stopped)
    assert main(command) == 130
    calls = list("…" * 9)
    assert main(command) == 0 and len(calls) == 9 + 3, "finished ones are kept"
    printed, sheet = capsys.readouterr().out, (out / "sheet.json").read_text()
    content = json.loads(sheet)
    assert content["verdict"] in printed
    assert opens_with((out / "report.html").read_text(), content["verdict"])
    assert len(content["combinations"]) == 5 and len(content["differences"]) == 20
    assert content["rows"].startswith("60 rows")
    for name, combination in content["combinations"].items():
        folder = out / "results" / name.replace(" + ", "-").replace(":", "-")
        (seed,) = results_of(folder)["seeds"]
        assert seed["accuracy"] == combination["figures"][0]["accuracy"], "in the same order"
    assert main(command) == 0 and len(calls) == 9 + 3
    assert (out / "sheet.json").read_text() == sheet
    assert load(out / "results" / "bag-of-words").predict(["the cat"])[0]["label"] == "meow"
    everything = {"embeddings", "encoder layer 1", "head"}
    for name, moved in (("embeddings", {"head"}), ("full", everything)):
        command = ["evaluate", str(out / "results" / f"run-{name}"), "--data", str(data)]
        assert main([*command, "--generalisation", "--out", str(tmp_path / name)]) == 0
        found = json.loads((tmp_path / name / "evaluation.json").read_text())["generalisation"]
        assert {n for n, (far, _) in found["distances"].items() if far} - {"all"} >= moved
        assert (found["distances"]["embeddings"][0] == 0) is (name == "embeddings")
        assert found["bound"]["value"] > 1 - found["training rows"]["value"]
        assert found["gap"]["low"] <= 0 <= found["gap"]["high"], "the same rows"
    with pytest.raises(UsageError) as caught:
        evaluate_file(out / "results" / "bag-of-words", data, generalisation=True)
    assert caught.value.where == "--generalisation"
    (copy,) = (out / "untrained").iterdir()
    weights = [open_weights(path).network.tokens.weight for path in (model, copy)]
    assert not bool((weights[0] == weights[1]).any()), "the control: nothing was trained"
    with pytest.raises(UsageError, match="epochs 1"):
        experiment(models, data, out, seeds=1, settings={"folds": 2, "epochs": 2})
    data.write_text(data.read_text().replace("meow", "miaow"))
    with pytest.raises(UsageError, match="changed after"):
        experiment(models, data, out, seeds=1, settings={"folds": 2, "epochs": 1, "threads": 1})


@pytest.mark.parametrize(
    ("models", "methods", "where"),
    [
        (["bag-of-words"], ["full"], "models and --method"),
        (["MODEL", "MODEL"], ["full"], "models and --method"),
        (["MODEL", "bag-of-words"], ["bag-of-words"], "models and --method"),
        (["MODEL", "bag-of-words"], ["fulll"], "--method"),
        (["MODEL", "nowhere"], ["full"], "nowhere"),
        (["MODEL", "bag-of-words"], ["contrastive"], "--method"),
        (["MODEL", "DAMAGED"], ["full"], "DAMAGED"),
    ],
)
def test_mistakes_are_found_before_any_work(
    model: Path, tmp_path: Path, models: list[str], methods: list[str], where: str
) -> None:
    kind = "regression" if methods == ["contrastive"] else "classification"
    data, out = table(tmp_path / "data.csv", kind, 60), tmp_path / "out"
    (damaged := tmp_path / "DAMAGED").mkdir()
    shutil.copy(open_weights(model).path / "config.json", damaged)
    paths = {"MODEL": str(model), "DAMAGED": str(damaged)}
    named = [paths.get(name, name) for name in models]
    with pytest.raises(MaskwrightError) as caught:
        experiment(named, data, out, methods=methods, stream=io.StringIO())
    assert str(caught.value.where).endswith(where) and not out.exists()


def test_a_prompt_is_an_option_of_the_task(tmp_path: Path) -> None:
    data = divide(prepare(table(tmp_path / "data.csv", "classification", 60), division=None))
    for method in ("prompted", "embeddings"):  # the control has no prompt
        recipe = FinetuneRecipe(model="m", data="d", method=method, prompt="{text} is")
        with nullcontext() if method == "prompted" else pytest.raises(UsageError):
            module._with_seeds(module.Combination("", recipe, None), data, 1)


def test_too_few_rows_to_compare_on_are_refused(model: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    for name, count in (("train", 40), ("test", 10)):
        table(folder / f"{name}.csv", "classification", count)
    with pytest.raises(UsageError, match="too few rows"):
        experiment([model, "bag-of-words"], folder, out, stream=io.StringIO())
    assert not out.exists()
