"""Matryoshka dimensions and mined hard negatives: losses and searches by hand, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from labelled.tables import write_rows
from maskwright.ask.predict.language_model import load
from maskwright.base.errors import UsageError
from maskwright.learn.finetune import run
from maskwright.learn.tasks.base.similarities import with_hard_negatives
from maskwright.model.objectives.modules.supervised import Contrast
from maskwright.text.tables.rows import MatchExample
from small_tasks import finetuned

# Vectors by angle: similarities are cosines of differences.
ANGLES = {"q": 0.0, "p": 0.5, "near": 0.6, "too near": 0.51, "far": 1.2, "r": 1.0, "other": 0.8}


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    angles = np.array([ANGLES[text] for text in texts])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_the_most_similar_wrong_texts_are_mined() -> None:
    """Of "q", "too near" has over 95 % of the similarity of its positive, "other" is a positive of
    the same anchor, and "q" itself is a positive of another row."""
    pairs = [("q", "p"), ("q", "other"), ("r", "far"), ("r", "near"), ("p", "too near"), ("r", "q")]
    rows = [MatchExample(anchor, positive, "") for anchor, positive in pairs]
    mined, finding = with_hard_negatives(rows, 2, embed)
    assert finding.name == "hard-negatives"
    assert np.cos(0.51) > 0.95 * np.cos(0.5) > np.cos(0.6)
    assert mined[0].negatives == ("near", "far")
    assert [row.positive for row in mined] == [row.positive for row in rows]
    for row in mined:
        similarity = {text: float(embed([row.anchor])[0] @ embed([text])[0]) for text in ANGLES}
        positives = {other.positive for other in rows if other.anchor == row.anchor}
        negatives = set(row.negatives) - {row.positive}
        assert not negatives & {*positives, row.anchor}
        limit = 0.95 * similarity[row.positive] + 1e-6
        assert all(similarity[text] <= limit for text in negatives)
    again, _ = with_hard_negatives([*mined[:1], *rows[1:]], 1, embed)
    assert again[0].negatives == ("near", "far", "p")  # which are not mined again
    (single,), _ = with_hard_negatives(rows[:1], 2, embed)  # the control: there is nothing to mine
    assert single.negatives == ("p", "p")


def loss(vectors: torch.Tensor, labels: torch.Tensor, *dimensions: int) -> float:
    aim: Any = Contrast(torch.nn.Identity(), "ranking", dimensions=dimensions)  # type: ignore[arg-type]
    aim.scores = lambda batch: vectors.flatten(1)
    return float(aim(SimpleNamespace(labels=labels)).parts["ranking"].total)


def test_a_missing_negative_is_left_out_of_the_loss() -> None:
    vectors = functional.normalize(torch.randn(3, 3, 4, generator=torch.manual_seed(0)), dim=2)
    vectors[:, 2] = vectors[:, 1]  # the positive stands for the negative
    codes = torch.arange(3.0)
    with_padding = loss(vectors, torch.stack([codes, codes, codes], dim=1))
    assert with_padding == pytest.approx(loss(vectors[:, :2], torch.stack([codes, codes], dim=1)))
    wrong = loss(vectors, torch.stack([codes, codes, codes + 3], dim=1))  # the control
    assert wrong > with_padding + 0.1


def test_the_loss_is_the_sum_over_dimensions() -> None:
    vectors = functional.normalize(torch.randn(3, 2, 8, generator=torch.manual_seed(0)), dim=2)
    labels = torch.stack([torch.arange(3.0)] * 2, dim=1)
    expected = loss(vectors, labels)
    for count in (4, 2):
        expected += loss(functional.normalize(vectors[..., :count], dim=2), labels)
    assert loss(vectors, labels, 8, 4, 2) == pytest.approx(expected)


def rows_file(path: Path, task: str | None = None) -> Path:
    draw = np.random.default_rng(0)
    animals = ["cat", "dog", "mat", "red", "big"]
    texts = [f"the {draw.choice(animals)} {draw.choice(animals)} {n % 7}" for n in range(40)]
    pairs = [(text, f"a {text}") for text in texts]
    if task is None:
        return write_rows(path, [{"anchor": a, "positive": p} for a, p in pairs])
    rows = [{"sentence1": a, "sentence2": p, "score": n / 40} for n, (a, p) in enumerate(pairs)]
    return write_rows(path, rows)


def test_a_model_is_trained_with_both(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mined: list[Any] = []

    def recorded(*values: Any) -> Any:
        mined.append(with_hard_negatives(*values))
        return mined[-1]

    monkeypatch.setattr(run, "with_hard_negatives", recorded)
    data, out = rows_file(tmp_path / "pairs.jsonl"), tmp_path / "out"
    finetuned(model, data, out, dimensions=[8, 4], hard_negatives=2, epochs=1, batch=8)
    ((rows, _),) = mined
    assert {len(row.negatives) for row in rows} == {2}
    trained = load(out)
    width = trained.embed("a cat").shape[0]
    assert trained.predictor.task_type.options["dimensions"] == [width, 8, 4]
    vector = trained.embed("a cat", dimensions=4)
    assert vector @ vector == pytest.approx(1.0, abs=1e-5) and vector.shape == (4,)
    for impossible in (3, width + 1):
        with pytest.raises(UsageError, match="dimensions"):
            trained.embed("a cat", dimensions=impossible)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"dimensions": [10_000]}, "dimensions"),
        ({"dimensions": [0]}, "--dimensions"),
        ({"hard_negatives": 0}, "--hard-negatives"),
        ({"hard_negatives": 1, "task": "embedding"}, "--hard-negatives"),
        ({"dimensions": [4], "task": "similarity"}, "--dimensions"),
    ],
)
def test_settings_without_effect_are_refused(
    settings: dict[str, Any], where: str, model: Path, tmp_path: Path
) -> None:
    data = rows_file(tmp_path / "pairs.jsonl", settings.get("task"))
    with pytest.raises(UsageError) as refused:
        finetuned(model, data, tmp_path / "out", **settings)
    assert refused.value.where == where
