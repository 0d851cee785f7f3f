"""A small file: out-of-fold predictions, a score on all rows, a model of all rows, and resuming."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelled.tables import write_rows
from maskwright.api import finetune_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import UsageError
from maskwright.base.metrics.row_metrics import ArrayMetric, RepeatedMetric
from maskwright.learn.finetune import learner
from maskwright.learn.finetune.bag_of_words_learner import BagOfWordsLearner
from maskwright.learn.finetune.cross_validation import FoldOutputs, divide, fold, join_folds
from maskwright.learn.finetune.method import Method
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.text.tables.prepare import prepare
from small_tasks import results_of, table

BRIEFLY: dict[str, Any] = {"epochs": 2, "batch": 16, "rate": 1e-2, "folds": 3}


def test_every_row_is_scored_by_a_model_that_has_not_seen_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, stream = table(tmp_path / "data.csv", "classification", 60), io.StringIO()
    trained, learn = [], learner.Learner.learn

    def record(self: Any, parts: Any, *args: Any, **named: Any) -> Any:
        trained.append({name: [row.where for row in part.rows] for name, part in parts.items()})
        return learn(self, parts, *args, **named)

    monkeypatch.setattr(learner.Learner, "learn", record)
    finetune_file(model, data, tmp_path / "out", **BRIEFLY, seeds=2, stream=stream)
    *folds, whole = trained
    for repetition in (folds[:3], folds[3:]):
        assert len({row for fold in repetition for row in fold["test"]}) == 60
        assert sum(len(fold["test"]) for fold in repetition) == 60
        assert not any({*fold["test"]} & {*fold["train"]} for fold in repetition)
    assert len(whole["train"]) == 60
    results = results_of(tmp_path / "out")
    assert (results["asked"], results["folds"], len(results["seeds"])) == ("out-of-fold", 3, 2)
    assert [finding["name"] for finding in results["findings"]] == ["few-rows"]
    names = [row[0] for row in results["table"]["rows"]]
    assert names == ["fine-tuned, out of fold", "all 2 repetitions", "majority", "words"]
    assert "few-rows" not in stream.getvalue() and "cross-validation" in stream.getvalue()


@pytest.mark.parametrize(("kind", "least"), [("multi-label", 0.75), ("regression", 0.6)])
def test_out_of_fold_answers_are_those_of_their_rows(
    kind: str, least: float, model: Path, tmp_path: Path
) -> None:
    """Answers in another order than their rows would be no better than chance."""
    data, settings = table(tmp_path / "data.csv", kind, 90), {**BRIEFLY, "epochs": 6, "rate": 2e-2}
    finetune_file(model, data, tmp_path / "out", **settings, seeds=1, stream=io.StringIO())
    results = results_of(tmp_path / "out")
    assert all(seed[results["measure"]] > least for seed in results["seeds"])


def test_constant_answers_are_those_of_all_rows(model: Path, tmp_path: Path) -> None:
    """A majority that is fitted to the other folds would miss most rows of two equal classes."""
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(42)]
    data, stream = write_rows(tmp_path / "data.jsonl", rows), io.StringIO()
    settings: dict[str, Any] = {"method": "embeddings", "folds": 4, "seeds": 1}
    finetune_file(model, data, tmp_path / "out", **settings, stream=stream)
    by_name = {row[0]: row[1] for row in results_of(tmp_path / "out")["table"]["rows"]}
    assert by_name["majority"].startswith("0.5000")
    assert stream.getvalue().count("fitted in") == 1


def test_folds_without_rows_are_left_out(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate("aacde")]
    few = write_rows(tmp_path / "few.jsonl", rows)
    model = tmp_path / "unused"
    finetune_file(model, few, tmp_path / "out", method="bag-of-words", stream=io.StringIO())
    assert results_of(tmp_path / "out")["folds"] == 2  # of five


def test_constants_have_several_labels(tmp_path: Path) -> None:
    labels = ["a|b" if n < 12 else "a" for n in range(29)]  # "b" is not worth it in every fold
    lines = [f"text {n},{label}\n" for n, label in enumerate(labels)]
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(lines))
    data = divide(prepare(tmp_path / "data.csv", division=None))
    bag = BagOfWordsLearner(tmp_path, task_for("multi-label", ("a", "b")), Method("bag-of-words"))
    foldings = fold(data, 5, [0, 1])
    outputs = [[FoldOutputs(np.ones((len(f), 2)), [], 0.0) for f in x.folds] for x in foldings]
    joined = join_folds(bag, foldings, outputs)
    assert all(len(np.unique(dict(named)["majority"], axis=0)) == 1 for named in joined.baselines)
    assert [len(result.outputs) for result in joined.results] == [29, 0]  # rows of the first


def test_an_interrupted_cross_validation_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 60), tmp_path / "out"
    finetune_file(model, data, tmp_path / "whole", **BRIEFLY, stream=io.StringIO())
    tune, calls = learner.tune, []

    def stop_at_third(*args: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return tune(*args, **named)

    monkeypatch.setattr(learner, "tune", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        finetune_file(model, data, out, **BRIEFLY, stream=io.StringIO())
    with pytest.raises(UsageError):  # not the folds of another cross-validation
        finetune_file(model, data, out, **{**BRIEFLY, "folds": 4})
    finetune_file(model, data, out, **BRIEFLY, stream=io.StringIO())
    assert len(calls) == 3 + 2
    ours, theirs = (
        (results_of(folder)["table"]["rows"], load(folder).predict(["the cat sat", "a big dog"]))
        for folder in (out, tmp_path / "whole")
    )
    assert ours == theirs


def test_nothing_is_selected_by_few_rows(model: Path, tmp_path: Path) -> None:
    stream = io.StringIO()
    settings: dict[str, Any] = {**BRIEFLY, "folds": 0, "seeds": 2, "stream": stream}
    few, many = (table(tmp_path / f"{n}.csv", "classification", n) for n in (120, 260))
    finetune_file(model, few, tmp_path / "out", **settings)
    results = results_of(tmp_path / "out")
    assert results["chosen"] == 0 and results["seeds"][0]["validation"] == []
    assert results["seeds"][0]["epoch"] == 2 and "selected" in stream.getvalue()
    finetune_file(model, many, tmp_path / "selected", **{**settings, "seeds": 1})  # the control
    assert len(results_of(tmp_path / "selected")["seeds"][0]["validation"]) == 2


def test_patience_without_a_validation_part_is_refused(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    with pytest.raises(UsageError) as error:
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, patience=1, stream=io.StringIO())
    assert error.value.where == "--patience"
    assert not (tmp_path / "out").exists()


def test_the_interval_of_repetitions_is_no_wider_than_that_of_one() -> None:
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 2, 200)

    def repetitions(share: float) -> list[ArrayMetric]:
        answers = [np.where(draw.random(200) < share, truth, 1 - truth) for _ in range(3)]
        return [ArrayMetric("accuracy", truth, given) for given in answers]

    metrics, rivals = repetitions(0.8), repetitions(0.6)
    mean, rival = RepeatedMetric(metrics), RepeatedMetric(rivals)
    assert mean.value == pytest.approx(np.mean([metric.value for metric in metrics]))
    width, *widths = (m.estimate().high - m.estimate().low for m in (mean, *metrics))
    assert width <= max(widths)
    gap = mean.gain_over(rival)
    assert gap.value == pytest.approx(mean.value - rival.value) and gap.low > 0
    assert not RepeatedMetric(metrics).gain_over(RepeatedMetric(metrics)).is_significant  # control
