"""Rerankers: the loss and the metrics by hand, and a BEIR folder sorted by one. Teachers: whose
probabilities are learned, and what is refused."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from evaluate.test_retrieval import folder
from labelled.tables import write_rows
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.evaluate.retrieval import evaluate_retrieval
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import DataError, IncompatibleError, UsageError
from maskwright.learn.finetune import run
from maskwright.learn.finetune.learner import soft_targets
from maskwright.learn.finetune.recipe import read
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.objectives.modules.supervised import Listwise, Supervised
from maskwright.model.objectives.supervised import Options
from maskwright.model.opening.open import open_model
from maskwright.text.tables.rows import PairExample, TextExample
from small_tasks import finetuned, results_of, table

SETTINGS: dict[str, Any] = {"epochs": 1, "threads": 1}
# (query, document, grade)
ROWS = [("q", "a", 1.0), ("r", "a", 0.0), ("q", "b", 0.0), ("r", "c", 3.0), ("r", "d", 1.0)]


def loss(kind: type[Supervised], scores: list[Any], labels: Any, **options: Any) -> float:
    objective: Any = kind.__new__(kind)
    torch.nn.Module.__init__(objective)
    objective.options = Options(**options)
    objective.product = SimpleNamespace(config=SimpleNamespace(heads=[SimpleNamespace(kind="x")]))
    objective.scores = lambda batch: torch.tensor(scores)
    (part,) = objective(SimpleNamespace(labels=torch.tensor(labels))).parts.values()
    return float(part.total * part.weight)


def test_the_loss_is_a_softmax_over_the_documents_of_each_query() -> None:
    labels = [[grade, float(query == "r")] for query, _, grade in ROWS]
    scores = [[1.0], [0.5], [0.0], [2.0], [0.0]]
    first = math.log(1 + math.exp(-1))
    total = math.log(math.exp(0.5) + math.exp(2) + 1)
    expected = first + 0.75 * (total - 2) + 0.25 * total
    assert loss(Listwise, scores, labels) == pytest.approx(expected)
    one_query = [[grade, 0.0] for grade, _ in labels]  # the control
    assert loss(Listwise, scores, one_query) != pytest.approx(expected, abs=0.1)
    irrelevant = [*labels, [0.0, 7.0], [-1.0, 7.0]]
    assert loss(Listwise, [*scores, [3.0], [1.0]], irrelevant) == pytest.approx(expected)


def test_the_documents_of_a_query_are_trained_on_together() -> None:
    numbers = np.array([0, 1, 0, 1, 1])
    texts, labels = framed([[1]] * 5), np.zeros(5, np.int64)
    examples = EncodedExamples(texts, labels, groups=numbers)
    assert examples.training_indices.tolist() == [0, 1]
    assert examples.with_groups(np.array([1])).tolist() == [1, 3, 4]
    alone = EncodedExamples(texts, labels)  # the control
    assert alone.with_groups(np.array([1])).tolist() == [1] and len(alone.training_indices) == 5


def test_metrics_of_an_order_by_hand() -> None:
    rows = [PairExample(*row, "") for row in ROWS]
    ranking = task_for("ranking")
    right = ranking.metrics(rows, [1.0, 0.0, 0.0, 3.0, 1.0]).values
    assert right == {"ndcg_at_10": 1.0, "mrr_at_10": 1.0}
    wrong = ranking.metrics(rows, [1.0, 2.0, 0.0, 0.0, 1.0]).values  # grades 0, 1, 3 of "r"
    dcg = (1 / math.log2(3) + 3 / 2) / (3 + 1 / math.log2(3))
    assert wrong == pytest.approx({"ndcg_at_10": (1 + dcg) / 2, "mrr_at_10": 3 / 4})
    constant = ranking.metrics(rows, [0.0] * 5).values
    assert constant == pytest.approx({"ndcg_at_10": (1 / math.log2(3) + dcg) / 2, "mrr_at_10": 0.5})


def test_a_reranker_is_trained_and_sorts_documents(model: Path, tmp_path: Path) -> None:
    rows = [
        {"query": f"q{n} cat", "document": f"{animal} {n}", "grade": int(animal == "cat")}
        for n in range(20)
        for animal in ("cat", "dog", "mat")
    ]
    data, out, stream = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out", io.StringIO()
    finetuned(model, data, out, task="ranking", batch=4, **SETTINGS)
    assert "ndcg_at_10" in results_of(out)["seeds"][0]
    path = folder(tmp_path / "beir")
    figures = evaluate_retrieval(out, path, out=tmp_path / "e", stream=stream)
    about = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert figures["recall_at_100"].value == about["baseline"]["recall_at_100"]
    answers = load(out).predict([("dog", "a big dog ran"), ("dog", "red dog")])
    assert answers[0]["score"] != answers[1]["score"]
    with pytest.raises(UsageError, match="--by"):
        evaluate_file(out, data, by="grade", stream=stream)
    with pytest.raises(UsageError, match="dimensions"):
        evaluate_retrieval(out, path, dimensions=[4], stream=stream)
    write_rows(data, [{**row, "grade": -row["grade"]} for row in rows])
    with pytest.raises(DataError) as refused:
        finetuned(model, data, tmp_path / "none", task="ranking", **SETTINGS)
    assert refused.value.where in ("train", "validation", "test")


def test_soft_labels_by_hand() -> None:
    scores, soft = [[2.0, 0.0]], [[0.75, 0.25]]
    expected = 4 * (math.log(1 + math.exp(-1)) + 0.25)
    assert loss(Supervised, scores, soft, temperature=2.0) == pytest.approx(expected)
    assert loss(Supervised, scores, soft) != pytest.approx(expected, abs=0.1)  # the control


def test_the_answers_of_a_teacher_are_learned(
    tuned: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [TextExample("the cat sat", 0, "a"), TextExample("a dog ran on", 0, "b")]
    teacher = load(tuned)
    shares = teacher.predict_proba([row.text for row in rows])
    reverse = task_for("classification", teacher.task_type.labels[::-1])
    targets = soft_targets(open_model(tuned), reverse, rows, 1.0, None)
    np.testing.assert_allclose([targets[row][::-1] for row in rows], shares, atol=1e-5)
    softer = soft_targets(open_model(tuned), reverse, rows, 100.0, None)
    assert np.ptp(softer[rows[0]]) < np.ptp(targets[rows[0]])
    used: list[Any] = []

    def recorded(*values: Any) -> Any:
        used.append(soft_targets(*values))
        return used[-1]

    monkeypatch.setattr(run, "soft_targets", recorded)
    data, student = table(tmp_path / "rows.csv", "classification", 80), tmp_path / "student"
    finetuned(model, data, student, teacher=str(tuned), **SETTINGS)
    assert len(used[0]) == 64 and read(student / "finetune.toml").teacher == str(tuned)
    other = table(tmp_path / "other.csv", "multi-label", 80)
    with pytest.raises(IncompatibleError) as refused:
        finetuned(model, other, tmp_path / "no", teacher=str(tuned), **SETTINGS)
    assert str(refused.value.where).startswith("--teacher")
    for settings in ({"curve": (20,)}, {"method": "embeddings"}, {"teacher_temperature": 0.0}):
        with pytest.raises(UsageError):
            finetuned(model, data, tmp_path / "no", teacher=str(tuned), **SETTINGS, **settings)
