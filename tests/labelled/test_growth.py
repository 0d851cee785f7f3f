"""What a table costs grows with its size: each dimension of each format is doubled, and neither the
calls of functions nor the memory may more than triple. No clock is asked."""

from __future__ import annotations

import cProfile
import json
import pstats
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, write, write_parquet
from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import refuse_duplicates
from maskwright.text.tables import columns, read
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.survey import survey

ROWS = 20
Row = dict[str, Any]


def labelled(n: int, **more: Any) -> Row:
    return {"text": f"the small house {n}", "label": ("good", "bad")[n % 2], **more}


def lines(path: Path, rows: list[Row]) -> Path:
    return write(path.with_suffix(".jsonl"), "".join(json.dumps(row) + "\n" for row in rows))


def array(path: Path, rows: Any) -> Path:
    return write(path.with_suffix(".json"), json.dumps(rows))


def table(separator: str, ending: str) -> Callable[[Path, list[Row]], Path]:
    def write_cells(path: Path, rows: list[Row]) -> Path:
        cells = [list(rows[0]), *(map(str, row.values()) for row in rows)]
        text = "".join(separator.join(row) + "\n" for row in cells)
        return write(path.with_suffix(ending), text)

    return write_cells


def parquet(path: Path, rows: list[Row]) -> Path:
    return write_parquet(path.with_suffix(".parquet"), rows)


def words(path: Path, sentences: list[list[str]]) -> Path:
    text = "\n\n".join("\n".join(lines) for lines in sentences)
    return write(path.with_suffix(".conll"), text + "\n\n")


def squad(path: Path, contexts: int, questions: int) -> Path:
    answer = {"answers": [{"text": "Anna", "answer_start": 7}]}
    paragraphs = [
        {
            "context": f"In May Anna came to Rome {n}.",
            "qas": [{"id": f"{n} {k}", "question": f"{k}?", **answer} for k in range(questions)],
        }
        for n in range(contexts)
    ]
    return array(path, {"data": [{"title": "t", "paragraphs": paragraphs}]})


def label_studio(path: Path, tasks: int, marks: int) -> Path:
    def mark(begin: int) -> Row:
        value = {"start": begin + 4, "end": begin + 9, "text": "small", "labels": ["A"]}
        return {"from_name": "label", "to_name": "text", "type": "labels", "value": value}

    rows = []
    for n in range(tasks):
        text = f"the small house {n} "
        marked = [mark(k * len(text)) for k in range(marks)]
        annotations = [{"id": n, "result": marked}]
        rows.append({"id": n, "data": {"text": text * marks}, "annotations": annotations})
    return array(path, rows)


WRITERS = {
    "jsonl": lines,
    "json": array,
    "csv": table(",", ".csv"),
    "tsv": table("\t", ".tsv"),
    "parquet": parquet,
}
DIMENSIONS: dict[str, Callable[[int], list[Row]]] = {
    "rows": lambda size: [labelled(n) for n in range(4 * size)],
    "columns": lambda size: [
        labelled(n, **{f"c{k}": (n * 7 + k) % 50 for k in range(size)}) for n in range(ROWS)
    ],
    "length of a cell": lambda size: [
        labelled(n) | {"text": f"the small house {n} " * size} for n in range(ROWS)
    ],
    "classes": lambda size: [labelled(n) | {"label": f"class{n // 3}"} for n in range(6 * size)],
}
NESTED: dict[str, Callable[[int], list[Row]]] = {
    "keys of its own in each row": lambda size: [
        labelled(n, **{f"own{n}": n}) for n in range(4 * size)
    ],
    "texts of its own in each row": lambda size: [
        labelled(n, **{f"own{n}": f"some words {n}"}) for n in range(4 * size)
    ],
    "keys in a cell": lambda size: [
        labelled(n, meta={f"k{n} {k}": k for k in range(size)}) for n in range(ROWS)
    ],
    "nesting": lambda size: [
        labelled(n, meta=json.loads("[" * (size // 4) + "]" * (size // 4))) for n in range(ROWS)
    ],
    "labels in a row": lambda size: [
        {"text": f"the small house {n}", "labels": [f"l{(n % 3 + k)}" for k in range(size // 4)]}
        for n in range(ROWS)
    ],
}
CASES: dict[str, Callable[[Path, int], Path]] = {
    f"{ending}, {name}": lambda path, size, write=WRITERS[ending], make=make: write(
        path, make(size)
    )
    for cells in (DIMENSIONS, NESTED)
    for name, make in cells.items()
    for ending in WRITERS
    if ending in ("jsonl", "csv" if cells is DIMENSIONS else "json") or name in ("rows", "columns")
} | {
    "conll, sentences": lambda path, size: words(
        path, [[f"Anna{n} B-PER", "sleeps O"] for n in range(4 * size)]
    ),
    "conll, words": lambda path, size: words(
        path, [[f"Anna{n} B-PER", *["sleeps O"] * size] for n in range(ROWS)]
    ),
    "conll, columns": lambda path, size: words(
        path, [[f"Anna{n} {'x ' * size}B-PER", f"sleeps {'y ' * size}O"] for n in range(ROWS)]
    ),
    "squad, contexts": lambda path, size: squad(path, 4 * size, 1),
    "squad, questions": lambda path, size: squad(path, 10, size // 2),
    "Label Studio, tasks": lambda path, size: label_studio(path, 2 * size, 1),
    "Label Studio, marks": lambda path, size: label_studio(path, 10, size // 2),
}
SIZE = 16
RATIO = 3.0


def cost(path: Path) -> tuple[int, int]:
    """(calls of functions, bytes at the peak) of reading and surveying a file."""
    profile = cProfile.Profile()
    profile.runcall(lambda: survey(prepare(path)))
    tracemalloc.start()
    survey(prepare(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return pstats.Stats(profile).total_calls, peak


@pytest.mark.parametrize("case", CASES)
def test_twice_the_size_costs_at_most_three_times(case: str, tmp_path: Path) -> None:
    small, large = (cost(CASES[case](tmp_path / f"t{n}", n * SIZE)) for n in (1, 2))
    assert large[0] <= RATIO * small[0] and large[1] <= RATIO * small[1], (small, large)


def test_the_control_finds_a_column_that_is_looked_for_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(rows: Any, lists: Any = ()) -> dict[str, columns.Column]:
        cells = {n: [row.values.get(n) for row in rows] for row in rows for n in row.values}
        return {name: columns._described(name, cells[name], len(rows)) for name in cells}

    monkeypatch.setattr("maskwright.text.tables.infer.describe", describe)
    make = CASES["jsonl, keys of its own in each row"]
    small, large = (cost(make(tmp_path / f"t{n}", n * 2 * SIZE))[0] for n in (1, 2))
    assert large > RATIO * small


@pytest.mark.parametrize("ending", WRITERS)
def test_too_many_columns_are_refused(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MOST_COLUMNS", 40)
    file = WRITERS[ending](tmp_path / "t", DIMENSIONS["columns"](39))
    assert str(file) in str(refusal(DataError, lambda: prepare(file)).where)
    assert prepare(WRITERS[ending](tmp_path / "t", DIMENSIONS["columns"](38)))
    if ending == "jsonl":
        rows = lines(tmp_path / "rows", NESTED["keys of its own in each row"](10))
        assert refusal(DataError, lambda: prepare(rows)).where == f"{rows}, line 39"


def test_a_wide_header_is_looked_through_once() -> None:
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str(self) == other

    refuse_duplicates([Name(n) for n in range(2000)], "t.csv")
    assert Name.compared < 4000
