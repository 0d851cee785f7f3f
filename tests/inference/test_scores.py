"""What a prepared network says of labelled texts is what the plain one says, text by text."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table
from maskwright.api import finetune_file
from maskwright.ask.predict.predictor import load
from maskwright.learn.finetune import learner

TEXTS = ["the cat sat on the mat", "a dog", "the big red hat", "one cat and a dog ran", "a dog"]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("classification", {"method": "prefix"}),
        ("multi-label", {}),
        ("regression", {"pooling": "mean"}),
    ],
    ids=lambda value: str(value),
)
def test_prepared_scores_are_the_plain_ones(
    task: str, options: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    data = table(tmp_path / "data.csv", task)
    finetune_file(
        model, data, tmp_path / "out", seeds=1, epochs=1, batch=16, stream=io.StringIO(), **options
    )
    made = load(tmp_path / "out")
    rows = [made.task_type.of_value(text, "here") for text in TEXTS]
    encoded = made.task_type.encode(rows, made.frame)
    plain = learner.reader(made.model, made.task_type, made.frame, made.collation)(encoded)
    prepared = np.asarray(made._read(encoded))
    assert np.allclose(prepared, plain, rtol=1e-5, atol=2e-6)
    assert np.array_equal(prepared[1], prepared[4])
    alone = made.task_type.encode(rows[3:4], made.frame)
    assert np.allclose(made._read(alone)[0], prepared[3], atol=1e-6)
    # The control: the next text's scores are others.
    assert not np.allclose(np.roll(prepared, 1, 0), plain, rtol=1e-5, atol=2e-6)
