"""What a fine-tuning shows as it goes on, and the page of what came of it."""

from __future__ import annotations

import numpy as np
import pytest

from maskwright.learn.tasks.base.task_type import Encoded, TaskReport, TaskType, task_for
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.text.tables.rows import TextExample

LABELS = ("cat", "dog", "eel")
ROWS = [
    TextExample("<b>purrs</b>", 0, "a/pets.csv, line 2"),
    TextExample("barks", 1, "a/pets.csv, line 3"),
    TextExample("meows", 0, "a/pets.csv, line 4"),
    TextExample("growls", 1, "a/pets.csv, line 5"),
]
TOLD = np.array([[0, 3, 0], [0, 9, 0], [2, 0, 0], [5, 0, 0]], np.float32)  # two are wrong


def report_of(kind: TaskType, rows: list[object], outputs: np.ndarray) -> TaskReport:
    examples = EncodedExamples(framed([[1]] * len(rows)), np.zeros(len(rows), np.int64))
    encoded = Encoded(rows, examples)
    return kind.report(encoded, outputs, kind.answers(encoded, outputs))


def test_classes_by_hand() -> None:
    report = report_of(task_for("classification", LABELS), [*ROWS], TOLD)
    assert report.classes is not None
    assert report.classes["rows"] == [
        ["cat", "0.500", "0.500", "0.500", "2"],
        ["dog", "0.500", "0.500", "0.500", "2"],
        ["eel", "–", "–", "–", "0"],
    ]
    assert report.confusion is not None
    assert report.confusion.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_mistakes_the_surest_first() -> None:
    kind = task_for("classification", LABELS)
    found = report_of(kind, [*ROWS], TOLD).mistakes
    assert [(m.text, m.label, m.predicted) for m in found] == [
        ("growls", "dog", "cat"),
        ("<b>purrs</b>", "cat", "dog"),
    ]
    assert found[0].weight == pytest.approx(np.e**5 / (np.e**5 + 2))
    right = np.array([[9, 0, 0], [0, 9, 0], [9, 0, 0], [0, 9, 0]], np.float32)
    assert report_of(kind, [*ROWS], right).mistakes == []
