"""Probabilities as a user gets them: calibrated in the weights, thresholds, abstention, weights of
classes; and what is refused before any work."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskwright
from finetune.test_worked_figures import classifier
from labelled.tables import write_rows
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file, write_predictions
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import CheckpointError, ConfigError, DataError, UsageError
from maskwright.base.metrics import calibration
from maskwright.learn.finetune.command import finetune_recipe
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.model.batch import Batch
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.opening.open import open_weights
from small_tasks import finetuned, results_of, table
from toys import bert

SETTINGS: dict[str, Any] = {"epochs": 4, "batch": 16, "rate": 1e-2, "threads": 1}
TEXTS = ["the cat sat", "a dog ran on", "the end"]


@pytest.fixture(scope="module")
def results(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("results")
    made = {}
    for task in ("classification", "multi-label"):
        data = table(folder / f"{task}.csv", task, 260)
        made[task] = folder / task
        finetuned(model, data, made[task], **SETTINGS)
    return made


def head(result: Path) -> torch.Tensor:
    (module,) = open_weights(result / "model").network.heads.values()
    return module.get_parameter("weight")


def test_the_temperature_is_in_the_weights(
    results: dict[str, Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, flat = results["classification"], tmp_path / "flat"
    calibrated = results_of(result)["calibration"]
    temperature = json.loads((result / "task.json").read_text())["settled"]["temperature"]
    assert calibrated["temperature"] == temperature and calibrated["rows"] >= 20
    assert {"ece", "ece_before", "bins", "coverage"} <= calibrated.keys()
    monkeypatch.setattr(calibration, "fit_temperature", lambda scores, truth: 3.0)
    finetuned(model, result.with_suffix(".csv"), flat, **SETTINGS)
    torch.testing.assert_close(head(result) * temperature, head(flat) * 3.0)
    assert not torch.allclose(head(result), head(flat)), "the control"
    flat_shares, shares = (load(folder).predict_proba(TEXTS) for folder in (flat, result))
    assert (flat_shares.argmax(1) == shares.argmax(1)).all()
    assert flat_shares.max() < shares.max()


def test_too_few_validation_rows_calibrate_nothing(model: Path, tmp_path: Path) -> None:
    data, out = table(tmp_path / "few.csv", "classification", 60), tmp_path / "out"
    finetuned(model, data, out, epochs=1, stream=(stream := io.StringIO()))
    assert "temperature" not in json.loads((out / "task.json").read_text())["settled"]
    assert results_of(out)["calibration"]["rows"] < 20
    assert "not calibrated" in stream.getvalue()


def test_probabilities_are_those_of_the_predictions(results: dict[str, Path]) -> None:
    model = maskwright.load(results["classification"])
    shares = model.predict_proba(TEXTS)
    assert shares.shape == (3, 2) and shares.dtype == np.float32
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)
    for row, answer in zip(shares, model.predict(TEXTS), strict=True):
        assert answer["label"] == model.labels[row.argmax()]
        assert answer["score"] == pytest.approx(row.max(), abs=1e-6)
    assert model.predict_proba([]).shape == (0, 2)


def test_labels_are_given_from_their_thresholds_on(
    results: dict[str, Path], tmp_path: Path
) -> None:
    result, moved = results["multi-label"], tmp_path / "moved"
    thresholds = json.loads((result / "task.json").read_text())["settled"]["thresholds"]
    shutil.copytree(result / "model", moved)
    (moved / "MANIFEST.json").unlink()
    plain = json.loads((moved / "task.json").read_text())
    plain["settled"]["thresholds"] = [0.01, 0.999]
    (moved / "task.json").write_text(json.dumps(plain))
    names, scores = np.array(["meow", "woof"]), []
    for folder, limits in ((result, thresholds), (moved, [0.01, 0.999])):
        predictor = load(folder)
        wanted = [names[row >= limits].tolist() for row in predictor.predict_proba(TEXTS)]
        assert [answer["labels"] for answer in predictor.predict(TEXTS)] == wanted
        lowered = predictor.deciding(0.0).predict(TEXTS)
        assert all(answer["labels"] == ["meow", "woof"] for answer in lowered)
        figures = evaluate_file(folder, result.with_suffix(".csv"), stream=io.StringIO())
        scores.append(figures["micro_f1"].value)
    assert scores[0] > scores[1] + 0.1
    plain["settled"]["thresholds"] = [0.5]
    (moved / "task.json").write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match="thresholds"):
        load(moved)


def test_a_row_below_the_threshold_gets_no_label(results: dict[str, Path], tmp_path: Path) -> None:
    result, source = results["classification"], tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    sure = load(result).predict_proba(TEXTS).max(1)
    threshold = float(np.sort(sure)[1]) - 1e-4
    answers, said = io.StringIO(), list[str]()
    predict_file(result, source, answers, threshold=threshold, say=said.append)
    labels = [json.loads(line)["prediction"]["label"] for line in answers.getvalue().splitlines()]
    assert [label is None for label in labels] == (sure < threshold).tolist()
    assert sum("have no label" in line for line in said) == 1
    write_predictions(
        result, source, tmp_path / "all.csv", threshold=1.0, all_scores=True, say=said.append
    )
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted_label"] for row in rows] == [""] * 3
    total = [
        sum(float(row[f"predicted_probabilities_{n}"]) for n in ("meow", "woof")) for row in rows
    ]
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert sum("lower the threshold" in line for line in said) == 1
    assert maskwright.load(result).predict(TEXTS, threshold=1.0)[0]["label"] is None
    for threshold in (1.5, math.nan):
        with pytest.raises(ConfigError) as caught:
            load(result).deciding(threshold)
        assert caught.value.where == "--threshold"


def batch(labels: torch.Tensor) -> Batch:
    tokens = torch.randint(5, 50, (len(labels), 6), generator=torch.Generator().manual_seed(0))
    return Batch(tokens=tokens, labels=labels, pooled=torch.arange(len(labels)) * 6)


def loss(learner: Supervised, labels: torch.Tensor, **options: Any) -> tuple[float, torch.Tensor]:
    learner.options = replace(learner.options, **options)
    example = batch(labels)
    (part,) = learner.eval().forward(example).parts.values()
    return float(part.total.detach()), learner.scores(example).detach().double()


def test_the_loss_is_weighted_and_smoothed() -> None:
    labels, weights = torch.tensor([0, 2, 2, 1]), (1.0, 0.5, 4.0)
    settings = {"class_weights": weights, "label_smoothing": 0.2}
    total, scores = loss(classifier(bert().config, 3), labels, **settings)
    targets = 0.8 * torch.eye(3)[labels] + 0.2 / 3
    expected = -(targets * torch.tensor(weights) * scores.log_softmax(1)).sum()
    assert total == pytest.approx(float(expected), rel=1e-5)
    assert total != pytest.approx(loss(classifier(bert().config, 3), labels)[0]), "the control"
    several = torch.tensor([[1.0, 0, 0], [0, 1, 1], [1, 1, 0]])
    total, scores = loss(classifier(bert().config, 3), several, problem="multi", **settings)
    targets, shares = 0.8 * several + 0.1, scores.sigmoid()
    losses = torch.tensor(weights) * targets * shares.log() + (1 - targets) * (1 - shares).log()
    assert total == pytest.approx(float(-losses.mean(1).sum()), rel=1e-5)


def test_a_new_head_of_several_labels_starts_at_their_frequencies() -> None:
    learner = classifier(bert().config, 3)
    several = (torch.arange(60).view(20, 3) % 7 == 0).float()
    before, _ = loss(learner, several, problem="multi")
    frequencies = several.mean(0).numpy()
    learner.start_at(frequencies)
    after, _ = loss(learner, several)
    entropy = -(frequencies * np.log(frequencies) + (1 - frequencies) * np.log(1 - frequencies))
    assert after == pytest.approx(20 * entropy.mean(), rel=0.05) and before > 1.5 * after
    learner.start_at(1 - frequencies)  # of a head that is not new the bias stays
    assert loss(learner, several)[0] == after


@pytest.mark.parametrize(
    ("weights", "error", "where"),
    [
        (None, UsageError, "--class-weights"),
        ({"meow": -1}, DataError, "meow"),
        ({"meow": True}, DataError, "meow"),
        ({"meow": 0}, DataError, "weights.json"),
        ({"mew": 2}, DataError, "weights.json"),
        ([1], DataError, "weights.json"),
    ],
)
def test_weights_that_are_none_are_refused(
    weights: Any, error: type[Exception], where: str, tmp_path: Path, model: Path
) -> None:
    path = tmp_path / "weights.json"
    if weights is not None:
        path.write_text(json.dumps(weights))
    data = table(tmp_path / "data.csv", "classification", 60)
    with pytest.raises(error) as refused:
        finetuned(model, data, tmp_path / "out", class_weights=str(path))
    assert where in str(refused.value.where) and not (tmp_path / "out").exists()
    assert "\n  do:" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"class_weights": "balanced"}, "--class-weights"),  # of numbers, which have no classes
        ({"label_smoothing": 0.1}, "--label-smoothing"),
        ({"label_smoothing": 1.0}, "--label-smoothing"),
    ],
)
def test_weights_and_smoothing_that_cannot_be_are_refused(
    settings: dict[str, Any], where: str, model: Path, tmp_path: Path
) -> None:
    data = table(tmp_path / "data.csv", "regression", 60)
    with pytest.raises((UsageError, ConfigError)) as refused:
        finetuned(model, data, tmp_path / "out", **settings)
    assert refused.value.where == where and not (tmp_path / "out").exists()


def test_balanced_weights_are_used_and_recorded(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    rows = [f"the cat sat {n},{'ab'[n % 4 == 0]}" for n in range(80)]
    data.write_text("\n".join(["text,label", *rows]))
    finetuned(model, data, tmp_path / "out", class_weights="balanced", **SETTINGS)
    assert "class weights" in (tmp_path / "out/report.html").read_text()


def test_entities_select_an_epoch_of_tagging(model: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["the", "cat", str(n)], "tags": ["O", "B-LOC", "O"]} for n in range(40)]
    data = str(write_rows(tmp_path / "data.jsonl", rows))
    recipe = FinetuneRecipe(model=str(model), data=data, task="tagging", measure="entity_f1")
    finetune_recipe(recipe, tmp_path / "out", stream=io.StringIO(), dry=True)
    with pytest.raises((UsageError, ConfigError)):
        finetune_recipe(replace(recipe, measure="matthews"), tmp_path / "out", dry=True)
