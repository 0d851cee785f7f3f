"""Tables and texts in memory become files whose rows hold the same values; nothing is guessed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.text.corpus.in_memory import as_files, is_temporary

ROWS = [{"text": "a b", "label": "x"}, {"text": "c", "label": "y"}]


class Frame:
    """The manners of a pandas frame: iterating gives names, and columns have `tolist`."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.columns = np.array(list(columns), object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Any:
        return np.array(self._columns[name], object)


class Labelled(Frame):
    """The manners of a Dataset: the class of a column has names."""

    class Label:
        names = ("y", "x")
        int2str = names.__getitem__

        def __init__(self) -> None:
            self.names = ["y", "x"]

    @property
    def features(self) -> dict[str, Any]:
        return {"text": object(), "label": self.Label()}


class Lazy:
    collect = collect_schema = columns = None


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "table",
    [
        ROWS,
        tuple(ROWS),
        iter(ROWS),
        {"text": ["a b", "c"], "label": np.array(["x", "y"])},
        Frame(text=["a b", "c"], label=["x", "y"]),
        Labelled(text=["a b", "c"], label=[1, 0]),
    ],
)
def test_rows_are_written_as_they_are(table: Any) -> None:
    with as_files(table, "data") as path:
        assert read(path) == ROWS and is_temporary(path)
    assert not path.exists()


def test_values_are_those_of_json() -> None:
    values = [np.int64(3), np.float32(0.5), float("nan"), None, True, ("a",), {"b": np.str_("c")}]
    values += [datetime.date(2024, 1, 2), np.array([1, 2])]
    with as_files([{"v": value} for value in values], "data") as path:
        found = [row["v"] for row in read(path)]
    assert found == [3, 0.5, None, None, True, ["a"], {"b": "c"}, "2024-01-02", [1, 2]]


@pytest.mark.parametrize(
    "texts", [np.array(["a", "b"]), iter(["a", "b"]), [{"text": "a"}, {"text": "b"}]]
)
def test_texts_are_rows_of_one_column(texts: Any) -> None:
    with as_files(texts, "text", texts=True) as path:
        assert read(path) == [{"text": "a"}, {"text": "b"}]


@pytest.mark.parametrize("paths", ["a.csv", Path("a"), ["a", Path("b")], ("a b.txt",)])
def test_paths_are_paths(paths: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.txt").touch()
    for texts in (True, False):
        with as_files(paths, "data", texts=texts) as unchanged:
            assert unchanged is paths


@pytest.mark.parametrize(
    ("value", "texts", "error"),
    [
        (np.array(["a", "b"]), False, DataError),
        (np.zeros((2, 2)), False, DataError),
        ([("a", "x")], False, DataError),
        (b"ab", True, DataError),
        (3, True, DataError),
        (iter([3]), True, DataError),
        ([{"text": object()}], True, DataError),
        ([{"text": float("inf")}], False, DataError),
        ({"text": ["a"], "label": []}, False, DataError),
        ({"text": "a"}, False, DataError),
        (Frame(**{"a": [1]}, **{"b": [2, 3]}), False, DataError),
        (Lazy(), False, DataError),
        ({"a"}, True, UsageError),
        (["a text of words"], True, UsageError),
    ],
)
def test_other_objects_are_refused(value: Any, texts: bool, error: type[MaskwrightError]) -> None:
    with pytest.raises(error) as caught, as_files(value, "data", texts=texts):
        pass
    assert (caught.value.where or "").startswith("data") and caught.value.wanted


def test_parts_are_files_of_a_folder() -> None:
    with as_files({"train": Frame(text=["a"]), "test": ROWS}, "data") as path:
        assert {file.name: len(read(file)) for file in path.iterdir()} == {
            "train.jsonl": 1,
            "test.jsonl": 2,
        }


def test_files_are_kept_for_an_output_folder(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    with as_files(ROWS, "data", kept_beside=out) as path:
        out.mkdir()
    with as_files(iter(ROWS), "data", kept_beside=out) as again:
        assert again == path and path.parent == out.parent
    with as_files(ROWS[:1], "data", kept_beside=out) as other:
        assert other != path
    assert len(read(path)) == 2 and len(read(other)) == 1


def test_errors_name_rows_and_leave_no_file(tmp_path: Path) -> None:
    for where in ("{}:2", "{}, line 2"):
        with (
            pytest.raises(DataError) as caught,
            as_files(ROWS, "data", kept_beside=tmp_path / "out") as path,
        ):
            raise DataError("a bad row", where=where.format(path))
        assert caught.value.where == "data, row 2" and "data, row 2" in str(caught.value)
    assert not list(tmp_path.iterdir())
