"""Cells of a csv that spell lists: read as such, as JSON or as Python writes them, or refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, sentence
from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.cell_values import list_of
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build

LABELS = (["a"], ["a", "it's, c"], [], ["c"])
AS_PYTHON: Callable[[Any], str] = str
AS_JSON: Callable[[Any], str] = json.dumps
WAYS = pytest.mark.parametrize("spell", [AS_PYTHON, AS_JSON])


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def several(path: Path, spell: Callable[[Any], str], count: int = 40, **cells: str) -> Path:
    """A table of texts with several labels each; `cells` stand in the rows _0, _1, …"""
    rows = [[sentence(n), cells.get(f"_{n}", spell(LABELS[n % 4]))] for n in range(count)]
    return write_csv(path, ["text", "labels"], rows)


@WAYS
def test_labels(spell: Callable[[Any], str], tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", spell))
    task = infer(table)
    assert task.name == "multi-label"
    assert "'labels' as label (by its name; its cells hold lists)" in "\n".join(task.lines())
    examples = build(table, task)
    assert examples.labels is not None and examples.labels.names == ("a", "c", "it's, c")
    assert [e.label for e in examples.parts["all"][:4]] == [(0,), (0, 2), (), (1,)]


@WAYS
def test_every_task_that_has_lists(spell: Callable[[Any], str], tmp_path: Path) -> None:
    words = [sentence(n).split() for n in range(40)]
    rows = [[spell(some), spell(["B-x", *["O"] * (len(some) - 1)])] for some in words]
    made = write_csv(tmp_path / "tags.csv", ["tokens", "tags"], rows)
    examples = loaded(made)
    assert examples.task.name == "tagging"
    assert examples.parts["all"][0].tokens == tuple(words[0])
    rows = [[sentence(n), spell(["one", "two"]), "AB"[n % 2]] for n in range(40)]
    made = write_csv(tmp_path / "choices.csv", ["question", "choices", "answer"], rows)
    examples = loaded(made)
    assert examples.task.name == "multiple-choice"
    assert examples.parts["all"][1].choices == ("one", "two")
    answer = spell({"text": ["the"], "answer_start": [0]})
    made = write_csv(
        tmp_path / "answers.csv",
        ["question", "context", "answers"],
        [["who?", sentence(n), answer] for n in range(40)],
    )
    examples = loaded(made)
    assert examples.task.name == "question-answering"
    assert examples.parts["all"][0].answers == (("the", 0),)


def test_what_is_no_list_among_lists(tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", str, _7="['a', 'b"))
    task = infer(table)
    error = refusal(DataError, lambda: build(table, task))
    assert error.where is not None
    assert "in.csv, line 9, column 'labels'" in error.where
    left = build(table, task, reading=ReadingOptions(on_bad="skip", max_bad_fraction=0.1))
    assert len(left.parts["all"]) == 39 and len(left.dropped) == 1
    assert left.labels is not None and left.labels.names == ("a", "c", "it's, c")


@pytest.mark.parametrize("plain", ["a", "c"])
def test_lists_among_names(plain: str, tmp_path: Path) -> None:
    rows = {f"_{n}": plain for n in range(1, 40, 2)}
    table = load(several(tmp_path / "in.csv", str, **rows))
    error = refusal(DataError, lambda: infer(table))
    assert "line 2, column 'labels'" in str(error.where)


@pytest.mark.parametrize("cell", ["['a' 'c']", '["a" "c"]', "['a'\n 'c']"])
def test_lists_of_numpy(cell: str, tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", str, _1=cell))
    error = refusal(DataError, lambda: infer(table))
    assert "without commas" in error.what and "line 3, column 'labels'" in str(error.where)
    cells = {f"_{n}": cell for n in range(0, 40, 2)}
    error = refusal(
        DataError, lambda: infer(load(several(tmp_path / "in.csv", lambda _: "a", **cells)))
    )
    assert "without commas" in error.what
    of_squad = "{'text': array(['the'], dtype=object), 'answer_start': array([0])}"
    made = write_csv(
        tmp_path / "answers.csv",
        ["question", "context", "answers"],
        [["who?", sentence(n), of_squad] for n in range(40)],
    )
    error = refusal(DataError, lambda: infer(load(made)))
    assert "without commas" in error.what


def test_texts_that_look_like_lists_are_texts(tmp_path: Path) -> None:
    made = write_csv(
        tmp_path / "in.csv",
        ["text", "label"],
        [[f'["{sentence(n)}"]', "ab"[n % 2]] for n in range(40)],
    )
    assert loaded(made).parts["all"][0].text == f'["{sentence(0)}"]'
    made = write_csv(
        tmp_path / "in.csv",
        ["source", "target"],
        [[sentence(n), f'["{sentence(n)}"]'] for n in range(40)],
    )
    assert loaded(made).parts["all"][0].target == f'["{sentence(0)}"]'
    made = write_csv(
        tmp_path / "in.csv",
        ["said", "label"],
        [[f'["{sentence(n)}"]', "ab"[n % 2]] for n in range(40)],
    )
    table = load(made)
    task = infer(table, {"text": "said"})
    assert build(table, task).parts["all"][0].text == f'["{sentence(0)}"]'


@pytest.mark.parametrize(
    "cell",
    [
        "[__import__('os')]",
        "[1 + 1]",
        "['a' 'b', 'c']",
        "[('a', 'b')]",
        "[" * 5000 + "]" * 5000,
        "[b'a']",
        "a",
        "[laughs] yes [end]",
        "",
        "[" + "'a', " * 30_000 + "]",
    ],
)
def test_what_no_list_spells(cell: str) -> None:
    assert list_of(cell) is None


def test_what_a_list_spells() -> None:
    assert list_of(" ['a\\n', '', \"it's\"] ") == ["a\n", "", "it's"]
    assert list_of("[1, 2.5, null]") == [1, 2.5, None]
    assert list_of("{'text': ['a'], 'answer_start': [0]}") == {"text": ["a"], "answer_start": [0]}
