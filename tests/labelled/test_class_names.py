"""The names of classes beside the data: lists and mappings, read or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, sentence, write
from maskwright.base.errors import DataError
from maskwright.text.tables.files import FILE, load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build

NAMED = {"names": ["bad", "good"], "_type": "ClassLabel"}
MAPPINGS = [
    ["bad", "good"],
    {"0": "bad", "1": "good"},
    {"1": "good", "0": "bad"},
    {"bad": 0, "good": 1},
    {"bad": "0", "good": "1"},
    {"id2label": {"0": "bad", "1": "good"}},
    {"label2id": {"good": 1, "bad": 0}},
    {"names": ["bad", "good"]},
    {"label": NAMED},
    {"features": {"text": {"dtype": "string"}, "label": NAMED}},
    [{"id": 1, "name": "good"}, {"id": 0, "name": "bad", "color": "red"}],
]


def data(folder: Path, names: Any, *labels: Any, file: str = "labels.json") -> Path:
    """A folder of one table and a file with the names of its classes."""
    rows = "".join(f"{sentence(n)},{labels[n % len(labels)]}\n" for n in range(12))
    write(folder / "reviews.csv", "text,label\n" + rows)
    write(folder / file, names if isinstance(names, str) else json.dumps(names))
    return folder


@pytest.mark.parametrize("names", MAPPINGS)
def test_every_form_names_the_classes(names: Any, tmp_path: Path) -> None:
    folder = data(tmp_path, names, 1, 0, 1)
    for path in (folder, folder / "reviews.csv"):
        made = loaded(path)
        assert made.labels is not None and made.labels.names == ("bad", "good")
        assert [e.label for e in made.parts["all"][:3]] == [1, 0, 1]
        assert len(made.parts["all"]) == 12, "the names are no rows"
        assert "names-of-classes" in {note.name for note in made.counts["all"].notes}


@pytest.mark.parametrize("file", ["id2label.json", "label_map.json", "classes.json"])
def test_such_files_have_other_names_too(file: str, tmp_path: Path) -> None:
    made = loaded(data(tmp_path, {"0": "bad", "1": "good"}, 1, 0, file=file))
    assert made.labels is not None and made.labels.names == ("bad", "good")
    assert FILE.search("languages.json") is None, "the control"
    made = loaded(
        data(
            tmp_path / "b",
            {"default": {"features": {"label": NAMED}}},
            1,
            0,
            file="dataset_infos.json",
        )
    )
    assert made.labels is not None and made.labels.names == ("bad", "good")


def test_numbers_may_have_gaps_and_names_may_stand_in_the_data(tmp_path: Path) -> None:
    made = loaded(data(tmp_path, {"bad": 2, "good": 5, "odd": -1}, 5, 2, 5))
    assert made.labels is not None and made.labels.names == ("odd", "bad", "good")
    assert made.labels.values == (-1, 2, 5)
    assert [e.label for e in made.parts["all"][:3]] == [2, 1, 2]
    error = refusal(DataError, lambda: loaded(data(tmp_path, {"bad": 2, "good": 5}, 5, 3)))
    assert error.wanted == "one of 2, 5 (2 classes: bad, good)"
    made = loaded(data(tmp_path, {"good": 0, "bad": 1}, "bad", "good"))
    assert made.labels is not None and made.labels.names == ("good", "bad")


def test_names_of_a_column_of_another_name(tmp_path: Path) -> None:
    folder = data(tmp_path, {"0": "bad", "1": "good"}, 1, 0)
    text = (folder / "reviews.csv").read_text()
    write(folder / "reviews.csv", text.replace("text,label", "text,stance"))
    made = loaded(folder)
    assert made.labels is not None and made.labels.names == ("bad", "good")


def test_numbers_with_names_are_classes_however_many(tmp_path: Path) -> None:
    names = {str(3 * n): f"intent {n}" for n in range(30)}
    rows = "".join(f"{sentence(n)},{n * 7 % 30 * 3}\n" for n in range(60))
    write(tmp_path / "reviews.csv", "text,label\n" + rows)
    assert loaded(tmp_path).task.name == "regression", "the control"
    write(tmp_path / "labels.json", json.dumps(names))
    made = loaded(tmp_path)
    assert made.task.name == "classification" and made.labels is not None
    assert made.labels.names == tuple(names.values())


def test_numbers_that_a_model_learned_without_names_stay_they(tmp_path: Path) -> None:
    table = load(data(tmp_path, ["bad", "good"], 1, 0))
    task = infer(table)
    made = build(table, task, classes=["0", "1"], values=[0, 1])
    assert [e.label for e in made.parts["all"][:2]] == [1, 0]
    refusal(DataError, lambda: build(table, task, classes=["no", "yes"], values=[0, 1]))


@pytest.mark.parametrize(
    "names",
    [
        {"0": "1", "1": "0"},
        {"0": "bad", "1": "bad"},
        {"bad": 0, "good": 0},
        {"neg": "bad"},
        [0, 1],
        {"0": "bad", "x": "good"},
        {"0": ["bad"]},
        "[",
        "bad\ngood",
        [{"text": "a b", "label": "x"}],
        {},
        ["bad", "bad"],
        [["bad", 0]],
        {"0": ""},
        3,
    ],
)
def test_what_names_nothing_is_refused_by_the_files_name(names: Any, tmp_path: Path) -> None:
    folder = data(tmp_path, names, 1, 0)
    error = refusal(DataError, lambda: loaded(folder))
    assert "labels.json" in str(error.where)


def test_names_of_other_data_beside_a_file_are_not_used(tmp_path: Path) -> None:
    """Who names the file alone may have other data in the folder."""
    folder = data(tmp_path, ["politics", "art"], "bad", "good")
    made = loaded(folder / "reviews.csv")
    assert made.labels is not None and made.labels.names == ("bad", "good")
    refusal(DataError, lambda: loaded(folder))


def test_rows_of_a_part_are_rows_whatever_their_file_is_called(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"id": n, "text": sentence(n), "label": "xy"[n % 2]}) + "\n" for n in range(6)
    )
    write(tmp_path / "train_labels.jsonl", lines)
    write(tmp_path / "test_labels.json", json.dumps([json.loads(s) for s in lines.splitlines()]))
    assert [len(rows) for rows in loaded(tmp_path).parts.values()] == [6, 6]
