"""Folders that `datasets` saved: their shards are read, and nothing else in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import sentence, write_parquet
from maskwright.base.errors import DataError
from maskwright.text.corpus.read import read
from maskwright.text.tables.files import load
from maskwright.text.tables.prepare import prepare

CLASSES = {"names": ["bad", "good"], "_type": "ClassLabel"}
FEATURES: dict[str, Any] = {"text": {"dtype": "string", "_type": "Value"}, "label": CLASSES}


def rows(count: int, begin: int = 0) -> list[dict[str, Any]]:
    return [{"text": sentence(n), "label": n % 2} for n in range(begin, begin + count)]


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
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{n:05}-of-{len(shards):05}.arrow" for n in range(len(shards))]
    for name, some in zip(names, shards, strict=True):
        write_arrow(folder / name, some, noted)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


@pytest.mark.parametrize("noted", [True, False])
def test_all_shards_are_one_table_with_the_names_of_its_classes(
    noted: bool, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "set", rows(20), rows(20, 20), noted=noted)
    write_arrow(folder / "cache-1f2e.arrow", rows(20, 40))  # a result that a program kept there
    made = prepare(folder)
    assert sum(map(len, made.parts.values())) == 40
    assert made.labels is not None and made.labels.names == ("bad", "good")
    assert [d.text for d in read(folder)] == [row["text"] for row in rows(40)]
    (alone,) = load(folder / "data-00001-of-00002.arrow").parts.values()
    assert [row.values for row in alone] == rows(20, 20)


def test_parts_are_folders_by_their_names(tmp_path: Path) -> None:
    for part, begin in (("train", 0), ("valid", 20), ("unsupervised", 40)):
        saved(tmp_path / part, rows(20, begin))
    names = ["train", "valid", "unsupervised"]
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": names}))
    table = load(tmp_path)
    assert list(table.parts) == ["train", "validation"]
    assert "unsupervised" in table.counts["train"].without_part[0]
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [*names, "test"]}))
    with pytest.raises(DataError, match="no test"):
        load(tmp_path)


def test_what_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "set", rows(20), rows(20, 20))
    (folder / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(DataError, match="data-00001-of-00002"):
        load(folder)
    folder = saved(tmp_path / "selected", rows(20))
    state = json.loads((folder / "state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="selection") as caught:
        load(folder)
    assert "flatten_indices" in str(caught.value.do)


def test_what_is_said_of_the_columns_is_no_data(tmp_path: Path) -> None:
    write_arrow(tmp_path / "reviews-train.arrow", rows(20))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    infos = {"default": {"features": FEATURES}}
    (tmp_path / "dataset_infos.json").write_text(json.dumps(infos, indent=1))
    table = load(tmp_path)
    assert {part: len(some) for part, some in table.parts.items()} == {"train": 20}
    assert list(table.names["label"].values()) == ["bad", "good"]
    assert [d.text for d in read(tmp_path)] == [row["text"] for row in rows(20)]


def test_other_files_of_these_names_are_data(tmp_path: Path) -> None:
    """The control: a `state.json` that lists no files is a table as any other."""
    (tmp_path / "state.json").write_text(json.dumps(rows(20)))
    assert len(load(tmp_path).parts["all"]) == 20


def test_languages_are_in_the_order_of_their_writer(tmp_path: Path) -> None:
    pairs = [{"translation": {"de": f"Katze {n}", "en": f"cat {n}"}} for n in range(20)]
    for order in (["en", "de"], ["de", "en"]):
        note = {"translation": {"languages": order, "_type": "Translation"}}
        write_parquet(
            tmp_path / "a.parquet", pairs, {"huggingface": json.dumps({"info": {"features": note}})}
        )
        roles = prepare(tmp_path / "a.parquet").task.columns.roles
        assert roles["source"] == (f"translation.{order[0]}",)
