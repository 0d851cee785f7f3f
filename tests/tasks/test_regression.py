"""Numbers far from zero and widely spread are learned, and told by the head itself."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelled.tables import write_rows
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import DataError
from maskwright.learn.finetune.learner import Learner
from maskwright.learn.finetune.method import Method
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.model.nn import initialise
from maskwright.model.objectives.modules.supervised import Standardised
from maskwright.text.tables.rows import PairExample, TextExample
from small_tasks import finetuned, results_of
from tinyrun import WORDS

FAR, WIDE = 2000.0, 8.0


def rows(task: str, count: int = 120) -> list[TextExample | PairExample]:
    """Cats are 8 below 2000 and dogs 8 above."""
    examples: list[TextExample | PairExample] = []
    for n in range(count):
        text = f"a {WORDS[n % 7]} {('cat', 'dog')[n % 2]} {WORDS[n % 5]}"
        texts = [text] if task == "regression" else [text, "on the mat"]
        kind = TextExample if task == "regression" else PairExample
        examples.append(kind(*texts, FAR + (WIDE if n % 2 else -WIDE), f"row {n}"))
    return examples


@pytest.fixture
def learner(model: Path) -> Learner:
    return Learner.of(model, task_for("regression"), Method("full"), 32, "head")


def objective_of(learner: Learner, asked: Encoded, **changes: Any) -> Any:
    """The objective on a fresh network, whose heads have the `changes`."""
    heads = tuple(replace(head, **changes) for head in learner.config.heads)
    config, seed = replace(learner.config, heads=heads), torch.Generator().manual_seed(0)
    network = initialise.build(config, seed)
    return learner.task_type.objective(network, learner.frame, asked)


def test_numbers_that_are_all_alike_and_classes(learner: Learner) -> None:
    examples = [TextExample("a cat", 7.0, ""), TextExample("a dog", 7.0, "")]
    asked = learner.task_type.encode(examples, learner.frame)
    objective = objective_of(learner, asked)
    assert isinstance(objective, Standardised)
    network = objective.product
    before = {name: value.clone() for name, value in network.named_parameters()}
    objective.fold_into_head()
    apart = {n: float((p - before[n]).detach().abs().max()) for n, p in network.named_parameters()}
    assert {n: d for n, d in apart.items() if d} == {"heads.classifier.bias": 7.0}
    classes = replace(learner, task_type=task_for("classification", ("a", "b")))
    assert type(objective_of(classes, asked)) is not Standardised


@pytest.mark.parametrize(
    ("task", "method"),
    [*(("regression", m) for m in ("full", "lora")), ("similarity", "full")],
)
def test_a_command_learns_years(method: str, task: str, model: Path, tmp_path: Path) -> None:
    names = ["text"] if task == "regression" else ["sentence1", "sentence2"]

    def texts_of(row: Any, number: int) -> tuple[str, ...]:
        texts = [row.text] if isinstance(row, TextExample) else [row.first, row.second]
        return tuple(f"{text} {number}" for text in texts)

    lines = [
        dict(zip(names, texts_of(row, n), strict=True)) | {"year": row.label}
        for n, row in enumerate(rows(task, 200))
    ]
    data, out = write_rows(tmp_path / "years.jsonl", lines), tmp_path / "out"
    columns = {"label": ["year"]}
    folder = finetuned(model, data, out, method=method, task=task, columns=columns)
    assert results_of(out)["seeds"][0]["squared_error"] < 2.0 * WIDE**2
    pairs = [texts_of(row, 7) for row in rows(task, 10)]
    ours = [answer["score"] for answer in load(out).predict(pairs)]
    assert all(abs(score - FAR) < 4 * WIDE for score in ours)
    if json.loads((out / "task.json").read_text())["attached"]:
        return
    alone = [answer["score"] for answer in load(folder).predict(pairs)]
    np.testing.assert_allclose(alone, ours, atol=1e-2)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
        scores = theirs(**inputs).logits[:, 0].numpy()
    np.testing.assert_allclose(scores, ours, atol=1e-2)


def test_numbers_are_compared_as_they_stand_there() -> None:
    """In float32, 1,700,000,001 and 1,700,000,050 are the same number."""
    kind = task_for("regression")
    given = [TextExample("a", 1700000001.0, ""), TextExample("b", 1700000050.0, "")]
    told = np.array([1.7e9, 1.7e9])
    assert kind.metrics(given, told).values["squared_error"] == pytest.approx((1 + 50**2) / 2)


@pytest.mark.parametrize(("offset", "refused"), [(1e8, True), (1e5, False), (0.0, False)])
def test_numbers_too_close_together_for_their_size_are_refused(
    offset: float, refused: bool, learner: Learner
) -> None:
    examples = [replace(row, label=row.label - FAR + offset) for row in rows("regression")]
    asked = learner.task_type.encode(examples, learner.frame)
    with pytest.raises(DataError, match="row 0") if refused else nullcontext():
        objective_of(learner, asked)


def test_small_numbers_are_told_in_their_own_digits(learner: Learner) -> None:
    """A number has the unit of its file, which may be small: six decimals would all be zeros."""
    encoded = learner.task_type.encode([TextExample("a cat", 0.0, "row 1")], learner.frame)
    for scale in (1e-12, 1e-6, 1.0, 1e6):
        outputs = np.array([[1.234567 * scale]], np.float32)
        (answer,) = learner.task_type.as_pipeline(encoded, outputs)
        assert answer["score"] == pytest.approx(1.234567 * scale, rel=1e-5)


def test_short_vectors_are_told_in_their_own_digits(learner: Learner) -> None:
    kind = task_for("embedding")
    encoded = kind.encode([TextExample("a cat", 0.0, "row 1")], learner.frame)
    vector = np.array([[0.6, -0.00123456, 0.8]], np.float32)
    for scale in (1e-9, 1e-3, 1.0, 1e3):
        (answer,) = kind.as_pipeline(encoded, vector * np.float32(scale))
        np.testing.assert_allclose(answer["vector"], vector[0] * scale, rtol=1e-3)
    (answer,) = kind.as_pipeline(encoded, vector)
    assert answer["vector"] == [0.6, -0.001235, 0.8], "of length 1: six decimals"
