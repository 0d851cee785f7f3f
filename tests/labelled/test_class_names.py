"""The names of classes beside the data, lists and mappings; and folders that `datasets` saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, sentence, sizes, write, write_parquet, write_rows
from maskwright.base.errors import DataError
from maskwright.text.corpus.read import read
from maskwright.text.tables.files import FILE, load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build, prepare

MAPPINGS = [
    ["bad", "good"],
    {"0": "bad", "1": "good"},
    {"1": "good", "0": "bad"},
    {"bad": 0, "good": 1},
    {"bad": "0", "good": "1"},
]


def data(folder: Path, names: Any, *labels: Any, file: str = "labels.json") -> Path:
    """A folder of one table and a file with the names of its classes."""
    rows = "".join(f"{sentence(n)},{labels[n % len(labels)]}\n" for n in range(12))
    write(folder / "reviews.csv", "text,label\n" + rows)
    write(folder / file, names if isinstance(names, str) else json.dumps(names))
    return folder


def class_names(path: Path) -> tuple[str, ...]:
    return loaded(path).labels.names


@pytest.mark.parametrize("names", MAPPINGS)
def test_every_form_names_the_classes(names: Any, tmp_path: Path) -> None:
    folder = data(tmp_path, names, 1, 0, 1)
    for path in (folder, folder / "reviews.csv"):
        made = loaded(path)
        assert made.labels.names == ("bad", "good")
        assert [e.label for e in made.parts["all"][:3]] == [1, 0, 1]
        assert len(made.parts["all"]) == 12, "the names are no rows"
        assert "names-of-classes" in {note.name for note in made.counts["all"].notes}


@pytest.mark.parametrize("file", ["id2label.json", "label_map.json", "classes.json"])
def test_such_files_have_other_names_too(file: str, tmp_path: Path) -> None:
    folder = data(tmp_path, {"0": "bad", "1": "good"}, 1, 0, file=file)
    assert class_names(folder) == ("bad", "good")
    assert FILE.fullmatch("languages.json") is None, "the control"


def test_two_files_of_names_have_to_agree(tmp_path: Path) -> None:
    folder = data(tmp_path, ["bad", "good"], 1, 0)
    write(folder / "id2label.json", '{"0": "bad", "1": "good"}')
    assert class_names(folder) == ("bad", "good")
    write(folder / "id2label.json", '{"0": "good", "1": "bad"}')
    assert "labels.json" in str(refusal(DataError, lambda: loaded(folder)).where)


def test_numbers_may_have_gaps_and_names_may_stand_in_the_data(tmp_path: Path) -> None:
    made = loaded(data(tmp_path, {"bad": 2, "good": 5, "odd": -1}, 5, 2, 5))
    assert made.labels.names == ("odd", "bad", "good") and made.labels.values == (-1, 2, 5)
    assert [e.label for e in made.parts["all"][:3]] == [2, 1, 2]
    error = refusal(DataError, lambda: loaded(data(tmp_path, {"bad": 2, "good": 5}, 5, 3)))
    assert error.wanted == "one of 2, 5 (2 classes: bad, good)"
    named = data(tmp_path, {"good": 0, "bad": 1}, "bad", "good")
    assert class_names(named) == ("good", "bad")


def test_numbers_with_names_are_classes_however_many(tmp_path: Path) -> None:
    names = {str(3 * n): f"intent {n}" for n in range(30)}
    rows = "".join(f"{sentence(n)},{n * 7 % 30 * 3}\n" for n in range(60))
    write(tmp_path / "reviews.csv", "text,label\n" + rows)
    assert loaded(tmp_path).task.name == "regression", "the control"
    write(tmp_path / "labels.json", json.dumps(names))
    made = loaded(tmp_path)
    assert made.task.name == "classification" and made.labels.names == tuple(names.values())


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
    assert class_names(folder / "reviews.csv") == ("bad", "good")
    refusal(DataError, lambda: loaded(folder))


def test_rows_of_a_part_are_rows_whatever_their_file_is_called(tmp_path: Path) -> None:
    rows = [{"id": n, "text": sentence(n), "label": "xy"[n % 2]} for n in range(6)]
    write_rows(tmp_path / "train_labels.jsonl", rows)
    write(tmp_path / "test_labels.json", json.dumps(rows))
    assert sizes(loaded(tmp_path)) == {"train": 6, "test": 6}


CLASSES = {"names": ["bad", "good"], "_type": "ClassLabel"}
ROWS = [{"text": sentence(n), "label": n % 2} for n in range(60)]
TEXTS = [row["text"] for row in ROWS]
FEATURES: dict[str, Any] = {"text": {"dtype": "string", "_type": "Value"}, "label": CLASSES}


def write_arrow(path: Path, some: Sequence[dict[str, Any]], noted: bool = True) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    table = pyarrow.Table.from_pylist(list(some))
    if noted:
        note = json.dumps({"info": {"features": FEATURES}})
        table = table.replace_schema_metadata({"huggingface": note})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as to:
        to.write_table(table)


def saved(folder: Path, *shards: Sequence[dict[str, Any]], noted: bool = True) -> Path:
    """A folder as `save_to_disk` writes it."""
    names = [f"data-{n:05}-of-{len(shards):05}.arrow" for n in range(len(shards))]
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    write(folder / "state.json", json.dumps(state))
    write(folder / "dataset_info.json", json.dumps({"features": FEATURES}))
    for name, rows in zip(names, shards, strict=True):
        write_arrow(folder / name, rows, noted)
    return folder


@pytest.mark.parametrize("noted", [True, False])
def test_all_shards_are_one_table_with_the_names_of_its_classes(
    noted: bool, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "set", ROWS[:20], ROWS[20:40], noted=noted)
    write_arrow(folder / "cache-1f2e.arrow", ROWS[40:])  # a result that a program kept there
    made = prepare(folder)
    assert sum(sizes(made).values()) == 40 and made.labels.names == ("bad", "good")
    assert [d.text for d in read(folder)] == TEXTS[:40]
    (alone,) = load(folder / "data-00001-of-00002.arrow").parts.values()
    assert [row.values for row in alone] == ROWS[20:40]


def test_parts_are_folders_by_their_names(tmp_path: Path) -> None:
    names = ["train", "valid", "unsupervised"]
    for part in names:
        saved(tmp_path / part, ROWS[:20])
    write(tmp_path / "dataset_dict.json", json.dumps({"splits": names}))
    table = load(tmp_path)
    assert sizes(table) == {"train": 20, "validation": 20}
    assert "unsupervised" in table.counts["train"].without_part[0]
    write(tmp_path / "dataset_dict.json", json.dumps({"splits": [*names, "test"]}))
    with pytest.raises(DataError, match="no test"):
        load(tmp_path)


def test_what_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "set", ROWS[:20], ROWS[20:40])
    (folder / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(DataError, match="data-00001-of-00002"):
        load(folder)
    folder = saved(tmp_path / "selected", ROWS[:20])
    state = json.loads((folder / "state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    write(folder / "state.json", json.dumps(state))
    with pytest.raises(DataError, match="selection") as caught:
        load(folder)
    assert "flatten_indices" in str(caught.value.do)


def test_what_is_said_of_the_columns_is_no_data(tmp_path: Path) -> None:
    write_arrow(tmp_path / "reviews-train.arrow", ROWS[:20])
    infos = {"default": {"features": FEATURES}}
    write(tmp_path / "dataset_info.json", json.dumps(infos["default"]))
    write(tmp_path / "dataset_infos.json", json.dumps(infos, indent=1))
    table = load(tmp_path)
    assert sizes(table) == {"train": 20}
    assert list(table.names["label"].values()) == ["bad", "good"]
    assert [d.text for d in read(tmp_path)] == TEXTS[:20]


def test_other_files_of_these_names_are_data(tmp_path: Path) -> None:
    """The control: a `state.json` that lists no files is a table as any other."""
    write(tmp_path / "state.json", json.dumps(ROWS))
    assert sizes(load(tmp_path)) == {"all": 60}


@pytest.mark.parametrize("order", [["en", "de"], ["de", "en"]])
def test_languages_are_in_the_order_of_their_writer(order: list[str], tmp_path: Path) -> None:
    pairs = [{"translation": {"de": f"Katze {n}", "en": f"cat {n}"}} for n in range(20)]
    features = {"translation": {"languages": order, "_type": "Translation"}}
    noted = {"huggingface": json.dumps({"info": {"features": features}})}
    made = prepare(write_parquet(tmp_path / "a.parquet", pairs, noted))
    assert made.task.columns.roles["source"] == (f"translation.{order[0]}",)
