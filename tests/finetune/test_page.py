"""What a fine-tuning shows as it goes on, and the page of what came of it."""

from __future__ import annotations

import io

import numpy as np
import pytest

from maskwright.learn.finetune import page
from maskwright.learn.finetune.tune import unseen, watching
from maskwright.learn.tasks.base.task_type import Encoded, TaskReport, TaskType, task_for
from maskwright.learn.train.state import TrainState
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.text.tables.rows import ChoiceExample, PairExample, RewriteExample, TextExample

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


@pytest.mark.parametrize(
    ("kind", "rows", "told", "mistakes"),
    [
        (
            task_for("multi-label", LABELS),
            [TextExample("a", (0,), "1"), TextExample("b", (), "2"), TextExample("c", (1, 2), "3")],
            np.array([[1, -1, -1], [-1, -1, 1], [1, 1, -1]], np.float32),
            [("c", "dog, eel", "cat, dog", 2.0), ("b", "none", "eel", 1.0)],
        ),
        (
            task_for("similarity"),
            [
                PairExample("a", "b", 1.0, "1"),
                PairExample("c", "d", 4.0, "2"),
                PairExample("e", "f", 2.0, "3"),
            ],
            np.array([[1.5], [2.0], [2.0]], np.float32),
            [("c\x1fd", "4.000", "2.000", 2.0), ("a\x1fb", "1.000", "1.500", 0.5)],
        ),
        (
            task_for("multiple-choice"),
            [ChoiceExample("who", ("a", "b"), 0, "1"), ChoiceExample("what", ("c", "d"), 1, "2")],
            np.array([[0, 0.5], [0, 9]], np.float32),
            [("who", "a", "b", pytest.approx(0.622459))],
        ),
        (
            task_for("sequence-to-sequence"),
            [RewriteExample("a cat", "une chatte", "1"), RewriteExample("a dog", "un chien", "2")],
            np.array(["une chatte", "un chat"], object),
            [("a dog", "un chien", "un chat", pytest.approx(0.5, abs=0.3))],
        ),
    ],
    ids=lambda value: value.task if isinstance(value, TaskType) else "",
)
def test_mistakes_of_other_kinds(
    kind: TaskType, rows: list[object], told: np.ndarray, mistakes: list[tuple[object, ...]]
) -> None:
    found = report_of(kind, rows, told).mistakes
    assert [(m.text, m.label, m.predicted, m.weight) for m in found] == mistakes


def test_the_page_says_where_it_is_wrong() -> None:
    kind = task_for("classification", LABELS)
    text = page.render(
        name="pets",
        task_type=kind,
        eval_part="test",
        table={"title": "", "head": ["", "accuracy"], "rows": [["fine-tuned", "0.5"]], "note": ""},
        figures={"seed 0": [0.4, 0.5]},
        losses={"seed 0": [1.0, 0.8]},
        num_rows=len(ROWS),
        report=report_of(kind, [*ROWS], TOLD),
        facts={"method": "full"},
    )
    assert "<b>purrs" not in text and "&lt;b&gt;purrs&lt;/b&gt;" in text
    assert text.index("growls") < text.index("purrs") and "meows" not in text
    assert "pets.csv, line 5" in text and "2 of 4; shown: 2" in text
    assert text.count("<svg") == 3  # the figure and the loss by epoch, and reliability
    assert "http://127.0.0.1:8765/#page=task&amp;text=" in text and ' class="s5">' in text


def test_a_panel_is_taken_away_however_training_ends() -> None:
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), watching(stream)("seed 0", 8) as hook:
        hook.after_step(TrainState(step=1), {"step": 1, "loss": 0.7, "tokens": 64})
        raise ZeroDivisionError
    first, last = stream.getvalue().splitlines()
    assert first.startswith("seed 0 · 8 steps") and last.startswith("step 1/8 · loss 0.70")
    with unseen("seed 0", 8) as hook:
        hook.after_step(TrainState(step=1), {"step": 1, "loss": 0.7, "tokens": 64})
