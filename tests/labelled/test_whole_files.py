"""JSON that is no lines of objects, and tables below a title: read as what they hold, or refused
with advice that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence
from maskwright.base.errors import DataError
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.survey import survey

ROWS = [{"text": sentence(n), "label": ("good", "bad")[n % 2]} for n in range(60)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}
PAIRS = [[row["text"], row["label"]] for row in ROWS]


def indented(rows: list[Any], between: str = "\n") -> str:
    return between.join(json.dumps(row, indent=2) for row in rows)


def read(path: Path, text: str) -> list[tuple[str, int]]:
    path.write_text(text, encoding="utf-8")
    return sorted((row.text, row.label) for part in prepare(path).parts.values() for row in part)


WANTED = sorted((row["text"], int(row["label"] == "good")) for row in ROWS)
WHOLE = {
    "indented rows": indented(ROWS),
    "rows with commas": indented(ROWS, ",\n"),
    "lines with commas": ",\n".join(map(json.dumps, ROWS)),
    "rows without ends of lines": "".join(map(json.dumps, ROWS)),
    "an array": json.dumps(ROWS),
    "an indented array": json.dumps(ROWS, indent=1),
    "an array of lines": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    "columns": json.dumps(COLUMNS),
    "indented columns": json.dumps(COLUMNS, indent=1),
    "columns by number": json.dumps(
        {name: {str(n): v for n, v in enumerate(cells)} for name, cells in COLUMNS.items()}
    ),
    "rows by number": json.dumps({str(n): row for n, row in enumerate(ROWS)}),
    "names and cells": json.dumps({"columns": ["text", "label"], "data": PAIRS}),
    "wrapped": json.dumps({"schema": {"fields": []}, "data": ROWS}),
    "wrapped in rows": json.dumps({"rows": ROWS}),
    "lines": "\n".join(map(json.dumps, ROWS)),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_rows_are_read_however_the_file_holds_them(tmp_path: Path, name: str, ending: str) -> None:
    assert read(tmp_path / f"data.{ending}", WHOLE[name]) == WANTED


def test_what_was_made_rows_of_is_said(tmp_path: Path) -> None:
    for name in ("columns", "lines"):
        (path := tmp_path / f"{name}.json").write_text(WHOLE[name])
        said = {finding.name for finding in survey(prepare(path)).findings}
        assert ("rows-of-one-object" in said) is (name == "columns")


def test_the_control_is_one_row_of_words_and_a_broken_line(tmp_path: Path) -> None:
    """Equal lists of words and tags are a row; a line that is cut off is a bad row."""
    row = {"tokens": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}
    (path := tmp_path / "one.json").write_text(json.dumps(row))
    refusal(DataError, lambda: prepare(path))
    lines = ['{"text": "cut off",', *map(json.dumps, ROWS)]
    (path := tmp_path / "cut.jsonl").write_text("\n".join(lines))
    assert "line 1" in str(refusal(DataError, lambda: prepare(path)).where)


@pytest.mark.parametrize(
    "value",
    [
        PAIRS,
        {"train": ROWS, "test": ROWS},
        {"text": ["a", "b"], "label": ["c"]},
        {"columns": ["text", "label"], "data": [["a", "b"], ["c"]]},
        {"text": {"0": "a", "1": "b"}, "label": {"0": "c"}},
        [1, 2],
    ],
)
def test_other_values_are_refused(tmp_path: Path, value: Any) -> None:
    for ending in ("json", "jsonl"):
        (path := tmp_path / f"data.{ending}").write_text(json.dumps(value))
        refusal(DataError, lambda path=path: prepare(path))


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": [{"text": "Anna", "answer_start": 7}]},
        {"answer": [{"text": "Anna", "answer_start": 7}]},
        {"answer": {"text": "Anna", "answer_start": 7}},
        {"answers": {"text": "Anna", "answer_start": 7}},
        {"answers": {"text": ["Anna"], "answer_start": [7]}},
        {"answer": "Anna"},
    ],
)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_answers_of_squad_in_each_form(tmp_path: Path, answers: Any, ending: str) -> None:
    paragraphs = [
        {
            "context": f"In May Anna came to Rome {n}.",
            "qas": [{"id": str(n), "question": f"Who came {n}?", **answers}],
        }
        for n in range(40)
    ]
    path = tmp_path / f"squad.{ending}"
    path.write_text(
        json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    parts = prepare(path).parts
    assert {row.answers for part in parts.values() for row in part} == {(("Anna", 7),)}


@pytest.mark.parametrize(
    "above", ["# made in May", "# made, in May", "// a\n// b", "List of May", "List, of May", "% x"]
)
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_line_above_the_header_is_refused(tmp_path: Path, above: str, ending: str) -> None:
    separator = {"csv": ",", "tsv": "\t"}[ending]
    table = "".join(
        separator.join(row.values()) + "\n" for row in [dict(text="text", label="label"), *ROWS]
    )
    path = tmp_path / f"data.{ending}"
    path.write_text(f"{above.replace(',', separator)}\n{table}")
    error = refusal(DataError, lambda: prepare(path))
    line = int(str(error.do).rpartition(" ")[2])
    assert read(path, "\n".join(path.read_text().split("\n")[line - 1 :])) == WANTED
