"""Zero-shot classification: any labels for texts, by a model that classifies pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from maskwright.ask.predict.language_model import load
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.learn.tasks.base.zero_shot import label_logits

TEMPLATE = "the {} sat"
TEXTS, LABELS = ["the cat sat", "a dog ran on the mat"], ["cat", "dog", "red"]


@pytest.fixture
def inference(small_task: Callable[..., Path]) -> Path:
    return small_task("pair-classification")


def by_label(answers: list[Any]) -> NDArray[np.float64]:
    """The scores (texts, labels) of ranked answers."""
    rows = [{answer["label"]: answer["score"] for answer in row} for row in answers]
    return np.array([[row[label] for label in LABELS] for row in rows])


def shares(folder: Path) -> NDArray[np.float64]:
    """The probabilities (texts, labels, classes) of each text with each hypothesis."""
    pairs = [(text, TEMPLATE.replace("{}", label)) for text in TEXTS for label in LABELS]
    answers = load(folder).predict(pairs, top=3)
    names = sorted(answer["label"] for answer in answers[0])
    by_name = [{answer["label"]: answer["score"] for answer in row} for row in answers]
    return np.array([[row[name] for name in names] for row in by_name]).reshape(2, 3, 3)


def test_the_label_with_the_largest_entailment_is_predicted(inference: Path) -> None:
    answers = load(inference).predict(TEXTS, labels=LABELS, hypothesis=TEMPLATE, top=3)
    scored = by_label(answers)
    assert scored.sum(1) == pytest.approx(1.0, abs=1e-5)
    probabilities = shares(inference)  # contradiction, entailment, neutral
    assert probabilities.sum(2) == pytest.approx(1.0, abs=1e-5)
    several = load(inference).predict(
        TEXTS, labels=LABELS, hypothesis=TEMPLATE, several=True, top=3
    )
    found = by_label(several)
    expected = probabilities[..., 1] / (probabilities[..., 0] + probabilities[..., 1])
    assert found == pytest.approx(expected, abs=1e-4)
    other = load(inference).predict(
        TEXTS, labels=LABELS, hypothesis="{} on the mat", top=3
    )  # the control: another hypothesis
    assert other != answers


@pytest.mark.parametrize(
    ("labels", "hypothesis", "where"),
    [
        (["a", "a"], None, "--labels"),
        ([" "], None, "--labels"),
        (["a"], "no place", "--hypothesis"),
    ],
)
def test_labels_and_templates_are_checked(
    labels: list[str], hypothesis: str | None, where: str, inference: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        load(inference).predict(TEXTS, labels=labels, hypothesis=hypothesis)
    assert refused.value.where == where


def test_other_models_are_refused() -> None:
    logits = np.zeros((1, 2, 2))
    assert label_logits(logits, ["entailment", "not_entailment"], several=True).shape == (1, 2)
    for names, several in ((["good", "bad"], False), (["entailment", "neutral", "other"], True)):
        with pytest.raises(IncompatibleError):
            label_logits(np.zeros((1, 2, len(names))), names, several=several)
