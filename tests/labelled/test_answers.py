"""Answers in contexts; JSON that is no lines of objects, such as files of SQuAD: read as what it
holds, or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import finding_names, refusal, sentence, write, write_rows
from maskwright.base.errors import DataError
from maskwright.text.tables.formats.json_file import squad_rows
from maskwright.text.tables.marked_text import whole_words
from maskwright.text.tables.prepare import prepare


@pytest.mark.parametrize(
    ("context", "cut", "wanted"),
    [
        ("The internationalisation of it", "ternational", "internationalisation"),
        ("in 1990s style", "1990", "1990s"),
        ("it cost $1,200 then", "1,200", "1,200"),  # signs are words of their own
        ("France's king", "France", "France"),
        ("a well-known man", "known", "known"),
        ("наступила осенью 1812", "осен", "осенью"),
        ("cafe\u0301s here", "cafe", "cafe\u0301s"),
        ("中国的首都是北京市。", "北京", "北京"),  # no blanks: not the whole sentence
        ("東京タワーは高い", "東京", "東京"),
        ("กรุงเทพมหานครเป็นเมืองหลวง", "กรุงเทพ", "กรุงเทพ"),
        ("서울에서 만났다", "서울", "서울"),  # endings are written to the word
        ("in 北京Beijing now", "北京", "北京"),
        ("in 北京Beijing now", "Beij", "Beijing"),
        ("x" * 200 + " y", "x" * 100, "x" * 100),  # a hash is no word
        ("one two", "one two", "one two"),
        ("हिन्दी भाषा", "हिन्द", "हिन्दी"),
    ],
)
def test_answers_end_at_words(context: str, cut: str, wanted: str) -> None:
    begin = context.index(cut)
    first, last = whole_words(context, begin, begin + len(cut))
    assert context[first:last] == wanted
    assert whole_words(context, first, last) == (first, last)
    assert whole_words(context, 0, len(context)) == (0, len(context))


# ------------------------------------------------------------------------------ the file
def document(**change: Any) -> dict[str, Any]:
    first = {"id": "1", "question": "who", "answers": [{"text": "Po", "answer_start": 3}]}
    second = {"id": "2", "question": "why", "answers": [], "is_impossible": True}
    paragraph = {"context": "to Po", "qas": [first | change, second]}
    return {"data": [{"title": "T", "paragraphs": [paragraph]}]}


def rows_of(document: Any, where: str = "") -> list[dict[str, Any]]:
    rows = []
    for row in squad_rows(document, where):
        if isinstance(row, DataError):
            raise row
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": [{"text": "Po", "answer_start": "3"}]}, "a whole number"),
        ({"answers": [{"text": "Po", "answer_start": True}]}, "a whole number"),
        ({"answers": [{"text": "Po"}]}, '"answer_start"'),
        ({"answers": {"text": ["Po"]}}, '"answer_start"'),
        ({"answers": 3}, "a list"),
        ({"answers": {"text": ["Po", "to"], "answer_start": [3]}}, "a list"),
        ({"answers": ["Po"]}, '"text"'),
        ({"is_impossible": True}, "do not agree"),
        ({"answers": [], "is_impossible": False}, "do not agree"),
        ({"id": "2"}, "same id"),
        ({"question": None}, "a text"),
    ],
)
def test_faults_of_a_file_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="article 1, paragraph 1") as refused:
        list(rows_of(document(**change), "dev.json"))
    assert message in str(refused.value)


@pytest.mark.parametrize("bad", [{}, [], {"data": {}}, {"data": [{}]}, {"data": [1]}])
def test_other_documents_are_refused(bad: Any) -> None:
    with pytest.raises(DataError):
        list(rows_of(bad, "dev.json"))


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


@pytest.mark.parametrize(("name", "is_said"), [("columns", True), ("lines", False)])
def test_what_was_made_rows_of_is_said(name: str, is_said: bool, tmp_path: Path) -> None:
    made = prepare(write(tmp_path / "a.json", WHOLE[name]))
    assert ("rows-of-one-object" in finding_names(made)) is is_said


def test_the_control_is_one_row_of_words_and_a_broken_line(tmp_path: Path) -> None:
    """Equal lists of words and tags are a row; a line that is cut off is a bad row."""
    row = {"tokens": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}
    one = write(tmp_path / "one.json", json.dumps(row))
    refusal(DataError, lambda: prepare(one))
    lines = ['{"text": "cut off",', *map(json.dumps, ROWS)]
    cut = write(tmp_path / "cut.jsonl", "\n".join(lines))
    assert "line 1" in str(refusal(DataError, lambda: prepare(cut)).where)


@pytest.mark.parametrize("ending", ["json", "jsonl"])
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
def test_other_values_are_refused(tmp_path: Path, value: Any, ending: str) -> None:
    path = write(tmp_path / f"data.{ending}", json.dumps(value))
    refusal(DataError, lambda: prepare(path))


ANSWER = {"text": "Anna", "answer_start": 7}


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": [ANSWER]},
        {"answer": [ANSWER]},
        {"answer": ANSWER},
        {"answers": ANSWER},
        {"answers": {"text": ["Anna"], "answer_start": [7]}},
        {"answer": "Anna"},
    ],
)
@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_answers_of_squad_in_each_form(tmp_path: Path, answers: Any, ending: str) -> None:
    paragraphs = []
    for n in range(40):
        question = {"id": str(n), "question": f"Who came {n}?", **answers}
        paragraphs.append({"context": f"In May Anna came to Rome {n}.", "qas": [question]})
    articles = {"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    parts = prepare(write(tmp_path / f"squad.{ending}", json.dumps(articles))).parts
    assert {row.answers for part in parts.values() for row in part} == {(("Anna", 7),)}


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": [ANSWER]},
        {"answer_text": "Anna", "answer_start": 7, "answer_end": 11},
        {"answer": ["Anna"], "answer_start": [7]},
    ],
)
def test_answers_of_rows_in_each_form(tmp_path: Path, answers: dict[str, Any]) -> None:
    rows = [{"question": f"Who {n}?", "context": f"In May Anna came {n}."} for n in range(40)]
    rows = [row | {"title": "T"} | answers for row in rows]
    parts = prepare(write_rows(tmp_path / "a.jsonl", rows)).parts
    assert {row.answers for part in parts.values() for row in part} == {(("Anna", 7),)}


def test_an_empty_answer_is_none_whatever_its_position(tmp_path: Path) -> None:
    row = {"question": "Who?", "context": "Anna came.", "answer": "", "answer_start": -1}
    rows = [row | {"question": f"Who {n}?", "context": f"Anna came {n}."} for n in range(40)]
    rows[0] |= {"answer": "Anna", "answer_start": 0}
    parts = prepare(write_rows(tmp_path / "a.jsonl", rows)).parts
    assert {row.answers for part in parts.values() for row in part} == {(), (("Anna", 0),)}


def test_numbers_of_json_are_answers_in_their_context(tmp_path: Path) -> None:
    answers = [1912, "1912", [1912], {"text": [1912], "answer_start": [3]}]
    for mixed in (answers[:1], answers[:2], answers):
        rows = [
            {"question": f"When {n}?", "context": "in 1912", "answer": mixed[n % len(mixed)]}
            for n in range(8)
        ]
        columns = {"question": "question", "context": "context", "answers": "answer"}
        dataset = prepare(write_rows(tmp_path / "a.jsonl", rows), columns=columns, division=None)
        assert {row.answers for row in dataset.parts["all"]} == {(("1912", 3),)}


def test_an_answer_without_a_position_that_stands_twice_asks_for_one(tmp_path: Path) -> None:
    rows = [{"question": f"Who {n}?", "context": f"Anna {n}.", "answer": "Anna"} for n in range(9)]
    rows[3]["context"] = "Anna saw Anna."
    path = write_rows(tmp_path / "a.jsonl", rows)
    error = refusal(DataError, lambda: prepare(path))
    assert error.where == f"{path}, line 4, column 'answer'"
    assert {"answer_start:", "0,", "9,", "on_bad=skip"} <= set(
        re.split(r"[ (]|--read ", str(error.do))
    )


# ------------------------------------------------------------------------- tables below a title
@pytest.mark.parametrize("above", ["# in May", "# made, in May", "// a\n// b", "List, of May\n,"])
@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_line_above_the_header_is_refused(
    tmp_path: Path, above: str, ending: str, separator: str
) -> None:
    lines = [separator.join(row.values()) for row in [{"a": "text", "b": "label"}, *ROWS]]
    lines = [*above.replace(",", separator).split("\n"), *lines]
    path = write(tmp_path / f"data.{ending}", "\n".join(lines))
    error = refusal(DataError, lambda: prepare(path))
    assert str(error.do).startswith("delete")
    if "," in above:
        count = above.count("\n") + 1
        assert str(error.do).endswith(f" {count + 1}")
        assert read(path, "\n".join(lines[count:])) == WANTED


def test_a_row_of_words_that_name_columns_is_data(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    rows = ["wort,art", "lauf,verb", "text,label", *(f"haus{n},nomen" for n in range(6))]
    path.write_text("\n".join([*rows, "geh,verb", "text,verb"]))
    dataset = prepare(path, columns={"text": ["wort"], "label": ["art"]}, division=None)
    assert sum(map(len, dataset.parts.values())) == 10
