"""A small file: out-of-fold predictions, a score on all rows, a model of all rows, and resuming."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import UsageError
from maskwright.learn.finetune import learner
from maskwright.learn.finetune.bag_of_words_learner import BagOfWordsLearner
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.finetune.cross_validation import FoldOutputs, divide, fold, join_folds
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.text.tables.prepare import prepare

BRIEFLY: dict[str, Any] = {"epochs": 2, "batch": 16, "rate": 1e-2, "folds": 3}


def test_every_row_is_scored_by_a_model_that_has_not_seen_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, said = table(tmp_path / "data.csv", "classification", 60), io.StringIO()
    trained, learn = [], learner.Learner.learn

    def record(self: Any, parts: Any, *args: Any, **named: Any) -> Any:
        trained.append({name: [row.where for row in part.rows] for name, part in parts.items()})
        return learn(self, parts, *args, **named)

    monkeypatch.setattr(learner.Learner, "learn", record)
    finetune_file(model, data, tmp_path / "out", **BRIEFLY, seeds=2, stream=said)
    *folds, whole = trained
    for repetition in (folds[:3], folds[3:]):
        assert len({row for fold in repetition for row in fold["test"]}) == 60
        assert sum(len(fold["test"]) for fold in repetition) == 60
        assert not any({*fold["test"]} & {*fold["train"]} for fold in repetition)
    assert len(whole["train"]) == 60
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["asked"], results["folds"], len(results["seeds"])) == ("out-of-fold", 3, 2)
    assert [finding["name"] for finding in results["findings"]] == ["few-rows"]
    names = [row[0] for row in results["table"]["rows"]]
    assert names == ["fine-tuned, out of fold", "all 2 repetitions", "majority", "words"]
    assert "few-rows" not in said.getvalue() and "cross-validation" in said.getvalue()


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_out_of_fold_answers_are_those_of_their_rows(
    kind: str, model: Path, tmp_path: Path
) -> None:
    data = table(tmp_path / "data.csv", kind, 90)
    settings = {**BRIEFLY, "epochs": 12}
    finetune_file(model, data, tmp_path / "out", **settings, seeds=2, stream=io.StringIO())
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    # Answers in another order than their rows would be no better than chance.
    least = {"multi-label": 0.75, "regression": 0.6}[kind]
    assert all(seed[results["measure"]] > least for seed in results["seeds"])


def test_constant_answers_are_those_of_all_rows(model: Path, tmp_path: Path) -> None:
    """A majority that is fitted to the other folds would miss most rows of two equal classes."""
    rows = [f"text {n},{'ab'[n % 2]}\n" for n in range(42)]
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(rows))
    settings: dict[str, Any] = {"method": "embeddings", "folds": 4, "seeds": 2}
    said = io.StringIO()
    finetune_file(model, tmp_path / "data.csv", tmp_path / "out", **settings, stream=said)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    by_name = {row[0]: row[1] for row in results["table"]["rows"]}
    assert by_name["majority"].startswith("0.5000") and said.getvalue().count("fitted in") == 1


def test_folds_without_rows_are_left_out_and_constants_have_several_labels(tmp_path: Path) -> None:
    labels = ["a|b" if n < 12 else "a" for n in range(29)]  # "b" is not worth it in every fold
    for name, rows in (("few", ["a", "a", "c", "d", "e"]), ("several", labels)):
        lines = [f"text {n},{label}\n" for n, label in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    model, few = tmp_path / "unused", tmp_path / "few.csv"
    finetune_file(model, few, tmp_path / "out", method="bag-of-words", stream=io.StringIO())
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["folds"] == 2  # of five
    data = divide(prepare(tmp_path / "several.csv", division=None))
    bag = BagOfWordsLearner(model, task_for("multi-label", ("a", "b")))
    foldings = fold(data, 5, [0, 1])
    outputs = [[FoldOutputs(np.ones((len(f), 2)), [], 0.0) for f in x.folds] for x in foldings]
    joined = join_folds(bag, foldings, outputs)
    assert all(len(np.unique(dict(named)["majority"], axis=0)) == 1 for named in joined.baselines)
    assert [len(result.outputs) for result in joined.results] == [29, 0]  # rows of the first


def test_an_interrupted_cross_validation_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    finetune_file(model, data, tmp_path / "whole", **BRIEFLY, stream=io.StringIO())
    tune, calls = learner.tune, []

    def stop_at_third(*args: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return tune(*args, **named)

    monkeypatch.setattr(learner, "tune", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, stream=io.StringIO())
    with pytest.raises(UsageError):  # not the folds of another cross-validation
        finetune_file(model, data, tmp_path / "out", **{**BRIEFLY, "folds": 4})
    finetune_file(model, data, tmp_path / "out", **BRIEFLY, stream=io.StringIO())
    assert len(calls) == 3 + 2
    ours, theirs = (
        json.loads((tmp_path / name / "results.json").read_text())["table"]["rows"]
        for name in ("out", "whole")
    )
    assert ours == theirs
    texts = ["the cat sat", "a big dog"]
    scores = [load(tmp_path / name).predict(texts) for name in ("out", "whole")]
    assert scores[0] == scores[1]


def test_nothing_is_selected_by_few_rows(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", "classification", 120)
    said = io.StringIO()
    settings: dict[str, Any] = {**BRIEFLY, "folds": 0, "seeds": 2, "stream": said}
    finetune_file(model, data, tmp_path / "out", **settings)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["chosen"] == 0 and results["seeds"][0]["validation"] == []
    assert results["seeds"][0]["epoch"] == 2 and "selected" in said.getvalue()
    more = table(tmp_path / "more.csv", "classification", 260)  # control
    finetune_file(model, more, tmp_path / "selected", **settings)
    results = json.loads((tmp_path / "selected" / "results.json").read_text())
    assert len(results["seeds"][0]["validation"]) == 2


def test_patience_without_a_validation_part_is_refused(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    with pytest.raises(UsageError) as error:
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, patience=1, stream=io.StringIO())
    assert error.value.where == "--patience"
    assert not (tmp_path / "out").exists()


def test_the_interval_of_repetitions_is_no_wider_than_that_of_one() -> None:
    from maskwright.base.metrics.row_metrics import ArrayMetric, RepeatedMetric

    draw = np.random.default_rng(0)
    truth = draw.integers(0, 2, 200)
    ours = [np.where(draw.random(200) < 0.8, truth, 1 - truth) for _ in range(3)]
    theirs = [np.where(draw.random(200) < 0.6, truth, 1 - truth) for _ in range(3)]
    metrics = [ArrayMetric("accuracy", truth, answers) for answers in ours]
    rivals = [ArrayMetric("accuracy", truth, answers) for answers in theirs]
    mean, rival = RepeatedMetric(metrics), RepeatedMetric(rivals)
    assert mean.value == pytest.approx(np.mean([metric.value for metric in metrics]))
    width = mean.estimate().high - mean.estimate().low
    assert width <= max(m.estimate().high - m.estimate().low for m in metrics)
    gap = mean.gain_over(rival)
    assert gap.value == pytest.approx(mean.value - rival.value) and gap.low > 0
    assert not RepeatedMetric(metrics).gain_over(RepeatedMetric(metrics)).is_significant  # control
