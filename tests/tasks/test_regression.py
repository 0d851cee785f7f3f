"""Numbers far from zero and widely spread are learned, and told by the head itself."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.ask.predict.predictor import load
from maskwright.base.errors import DataError
from maskwright.learn.finetune.learner import Learner, reader
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.tune import Settings, tune
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.learn.tasks.classification import Classification
from maskwright.learn.train.settings import AdamW
from maskwright.model.inference.beam import finished
from maskwright.model.nn import initialise
from maskwright.model.objectives.modules.supervised import Standardised
from maskwright.model.opening import special_tokens
from maskwright.text.tables.rows import PairExample, TextExample
from small_tasks import finetuned
from tinyrun import WORDS

FAR, WIDE = 2000.0, 8.0


def rows(task: str, count: int = 120) -> list[TextExample | PairExample]:
    """Cats are 8 below 2000 and dogs 8 above."""
    found: list[TextExample | PairExample] = []
    for n in range(count):
        text = f"a {WORDS[n % 7]} {('cat', 'dog')[n % 2]} {WORDS[n % 5]}"
        year = FAR + (WIDE if n % 2 else -WIDE)
        one = TextExample(text, year, f"row {n}")
        found.append(
            one if task == "regression" else PairExample(text, "on the mat", year, one.where)
        )
    return found


@pytest.mark.parametrize("task", ["regression", "similarity"])
@pytest.mark.parametrize("bias", [True, False])
def test_far_numbers_are_learned(bias: bool, task: str, model: Path) -> None:
    kind = task_for(task)
    assert isinstance(kind, Classification)
    learner = Learner.of(model, kind, Method("full"), 32, "head")
    heads = tuple(replace(head, bias=bias) for head in learner.config.heads)
    made = initialise.build(replace(learner.config, heads=heads), torch.Generator().manual_seed(0))
    given = rows(task)
    asked = kind.encode(given, learner.frame)
    vocabulary = special_tokens.vocabulary(learner.frame.tokenizer)
    objective = kind.objective(made, vocabulary, "head", asked)
    assert isinstance(objective, Standardised)
    settings = Settings(epochs=3, batch=16, least_steps=240, optimizer=AdamW(learning_rate=1e-3))
    tuned = tune(objective, asked.examples, learner.collation, settings)
    objective.eval()
    before = finished(kind.steps(objective, asked, learner.collation))
    objective.fold_into_head()
    after = reader(tuned.model, kind, learner.frame, learner.collation)(asked)
    np.testing.assert_allclose(after, before, atol=0.01)
    truth = np.array([row.label for row in given])
    error = np.square(after[:, 0] - truth).mean()
    # The mean alone is off by the spread; without a bias a head has to find even the mean.
    assert error < (0.1 if bias else 2.0) * WIDE**2
    assert tuned.losses[0] < 3.0, "in units of the spread"


def test_numbers_that_are_all_alike_and_classes(model: Path) -> None:
    kind = task_for("regression")
    assert isinstance(kind, Classification)
    learner = Learner.of(model, kind, Method("full"), 32, "head")
    made = initialise.build(learner.config, torch.Generator().manual_seed(0))
    asked = kind.encode(
        [TextExample("a cat", 7.0, ""), TextExample("a dog", 7.0, "")], learner.frame
    )
    before = {name: value.clone() for name, value in made.named_parameters()}
    vocabulary = special_tokens.vocabulary(learner.frame.tokenizer)
    objective = kind.objective(made, vocabulary, "head", asked)
    assert isinstance(objective, Standardised)
    objective.fold_into_head()
    apart = {n: float((p - before[n]).detach().abs().max()) for n, p in made.named_parameters()}
    assert {n: d for n, d in apart.items() if d} == {"heads.classifier.bias": 7.0}
    classes = task_for("classification", ("a", "b"))
    assert type(classes.objective(made, vocabulary, "head", asked)) is not Standardised


@pytest.mark.parametrize("method", ["full", "probe", "lora", "ia3", "last-1"])
@pytest.mark.parametrize("task", ["regression", "similarity"])
def test_a_command_learns_years(method: str, task: str, model: Path, tmp_path: Path) -> None:
    names = ["text", "year"] if task == "regression" else ["sentence1", "sentence2", "year"]
    data = tmp_path / "years.csv"
    with data.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(names)
        for n, row in enumerate(rows(task, 200)):
            texts = [row.text] if isinstance(row, TextExample) else [row.first, row.second]
            out.writerow([*(f"{text} {n}" for text in texts), row.label])
    said = io.StringIO()
    folder = finetuned(
        model,
        data,
        tmp_path / "out",
        method=method,
        task=task,
        columns={"label": ["year"]},
        stream=said,
    )
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    error = results["seeds"][0]["squared_error"]
    assert error < 2.0 * WIDE**2, said.getvalue()
    given = [
        tuple(f"{t} 7" for t in ([r.text] if isinstance(r, TextExample) else [r.first, r.second]))
        for r in rows(task, 10)
    ]
    ours = [answer["score"] for answer in load(tmp_path / "out").predict(given)]
    assert all(abs(score - FAR) < 4 * WIDE for score in ours)
    attached = json.loads((tmp_path / "out" / "task.json").read_text())["attached"]
    if not attached:
        alone = [answer["score"] for answer in load(folder).predict(given)]
        np.testing.assert_allclose(alone, ours, atol=1e-2)
        transformers = pytest.importorskip("transformers")
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            encoded = tokenizer(
                *map(list, zip(*given, strict=True)), padding=True, return_tensors="pt"
            )
            told = theirs(**encoded).logits[:, 0].numpy()
        np.testing.assert_allclose(told, ours, atol=1e-2)


def test_numbers_are_compared_as_they_stand_there() -> None:
    """In float32, 1,700,000,001 and 1,700,000,050 are the same number."""
    kind = task_for("regression")
    given = [TextExample("a", 1700000001.0, ""), TextExample("b", 1700000050.0, "")]
    told = np.array([1.7e9, 1.7e9])
    assert kind.metrics(given, told).values["squared_error"] == pytest.approx((1 + 50**2) / 2)


def test_numbers_too_close_together_for_their_size_are_refused(model: Path) -> None:
    kind = task_for("regression")
    assert isinstance(kind, Classification)
    learner = Learner.of(model, kind, Method("full"), 32, "head")
    made = initialise.build(learner.config, torch.Generator().manual_seed(0))
    vocabulary = special_tokens.vocabulary(learner.frame.tokenizer)
    for offset, refused in ((1e8, True), (1e5, False), (0.0, False)):
        asked = kind.encode(
            [replace(row, label=row.label - FAR + offset) for row in rows("regression")],
            learner.frame,
        )
        if refused:
            with pytest.raises(DataError, match="row 0"):
                kind.objective(made, vocabulary, "head", asked)
        else:
            assert kind.objective(made, vocabulary, "head", asked)


def test_small_numbers_are_told_in_their_own_digits(model: Path) -> None:
    """A number has the unit of its file, which may be small: six decimals would all be zeros."""
    kind = task_for("regression")
    encoded = kind.encode(
        [TextExample("a cat", 0.0, "row 1")],
        Learner.of(model, kind, Method("full"), 32, "head").frame,
    )
    for scale in (1e-12, 1e-6, 1.0, 1e6):
        outputs = np.array([[1.234567 * scale]], np.float32)
        (told,) = kind.as_pipeline(encoded, outputs)
        assert told["score"] == pytest.approx(1.234567 * scale, rel=1e-5)
    # Negative control: this is what was lost.
    assert round(1.234567e-12, 6) == 0.0


def test_short_vectors_are_told_in_their_own_digits(model: Path) -> None:
    kind = task_for("embedding")
    frame = Learner.of(model, kind, Method("full"), 32, "head").frame
    encoded = kind.encode([TextExample("a cat", 0.0, "row 1")], frame)
    vector = np.array([[0.6, -0.00123456, 0.8]], np.float32)
    for scale in (1e-9, 1e-3, 1.0, 1e3):
        (told,) = kind.as_pipeline(encoded, vector * np.float32(scale))
        np.testing.assert_allclose(told["vector"], vector[0] * scale, rtol=1e-3)
    (told,) = kind.as_pipeline(encoded, vector)
    assert told["vector"] == [0.6, -0.001235, 0.8], "of length 1: six decimals"
