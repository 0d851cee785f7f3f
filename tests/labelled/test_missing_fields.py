"""A field that is missing or misspelt in rows to learn from is refused, and never read as empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.prepare import prepare

Rows = list[dict[str, Any]]
NONE: dict[str, Any] = {"text": [], "answer_start": []}
AT = 5  # the row that is changed


def questions() -> Rows:
    return [
        {
            "question": f"who is it {n}",
            "context": f"anna {n} sleeps",
            "answers": {"text": [f"anna {n}"], "answer_start": [0]},
        }
        for n in range(40)
    ]


def several() -> Rows:
    return [{"text": f"a text {n}", "labels": ["a", "b"][: 1 + n % 2]} for n in range(40)]


def classes() -> Rows:
    return [{"text": f"a text {n}", "label": "ab"[n % 2]} for n in range(40)]


def marks() -> Rows:
    return [{"text": f"anna {n} sleeps", "entities": [[0, 4, "PER"]]} for n in range(40)]


def tags() -> Rows:
    return [{"tokens": ["anna", str(n)], "tags": ["B-PER", "O"]} for n in range(40)]


def joined() -> Rows:
    return [
        {"title": f"a title {n}", "body": f"a text {n}", "label": "ab"[n % 2]} for n in range(40)
    ]


def pairs() -> Rows:
    return [
        {"premise": f"a text {n}", "hypothesis": f"another {n}", "label": "ab"[n % 2]}
        for n in range(40)
    ]


def wrote(folder: Path, rows: Rows) -> Path:
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(
    ("made", "name", "wrong"),
    [
        (questions, "answers", "answer"),
        (several, "labels", "label"),
        (several, "labels", "lables"),
        (classes, "label", "lable"),
        (marks, "entities", "entites"),
        (tags, "tags", "tag"),
        (pairs, "hypothesis", "hypothesys"),
    ],
)
def test_a_misspelt_field_is_named_with_what_may_be_it(
    made: Callable[[], Rows], name: str, wrong: str, tmp_path: Path
) -> None:
    assert prepare(wrote(tmp_path, made()))
    rows = made()
    rows[AT][wrong] = rows[AT].pop(name)
    with pytest.raises(DataError) as caught:
        prepare(wrote(tmp_path, rows))
    error = caught.value
    assert f"line {AT + 1}" in str(error.where)
    assert repr(name) in str(error.wanted)
    assert repr(wrong) in str(error.do)
    reading = ReadingOptions(on_bad="skip", max_bad_fraction=0.1)
    made_of = prepare(wrote(tmp_path, rows), reading=reading)
    assert sum(map(len, made_of.parts.values())) == len(rows) - 1


@pytest.mark.parametrize("made", [questions, several])
def test_a_missing_field_is_no_empty_one(made: Callable[[], Rows], tmp_path: Path) -> None:
    rows = made()
    name = list(rows[AT])[-1]
    empty: Any = NONE if name == "answers" else []
    rows[AT][name] = empty
    assert prepare(wrote(tmp_path, rows))  # as it is written where there is none
    del rows[AT][name]
    with pytest.raises(DataError) as caught:
        prepare(wrote(tmp_path, rows))
    assert json.dumps(empty) in str(caught.value.do)


def test_of_a_text_of_several_columns_one_may_be_left_out_and_none_misspelt(tmp_path: Path) -> None:
    rows, columns = joined(), {"text": ["title", "body"]}
    del rows[AT]["body"]
    assert prepare(wrote(tmp_path, rows), columns=columns)
    rows[AT]["bodi"] = "a text"
    with pytest.raises(DataError, match="'bodi'"):
        prepare(wrote(tmp_path, rows), columns=columns)


def test_a_question_marked_as_unanswerable_needs_no_answers_and_has_none(tmp_path: Path) -> None:
    rows = [{**row, "is_impossible": False} for row in questions()]
    rows[AT]["is_impossible"] = True
    with pytest.raises(DataError, match="contradict"):
        prepare(wrote(tmp_path, rows))
    del rows[AT]["answers"]
    assert prepare(wrote(tmp_path, rows))
    rows[AT] = {**rows[AT], "answers": NONE, "is_impossible": False}
    with pytest.raises(DataError, match="contradict"):
        prepare(wrote(tmp_path, rows))


def squad(name: str, **more: Any) -> dict[str, Any]:
    found = [{"text": "anna", "answer_start": 0}]
    paragraphs = [
        {"context": f"anna sleeps {n}", "qas": [{"id": str(n), "question": "who", name: found}]}
        for n in range(40)
    ]
    paragraphs[AT]["qas"] = [{"id": str(AT), "question": "who", **more}]
    return {"data": [{"title": "", "paragraphs": paragraphs}]}


def test_so_it_is_in_a_file_of_squad(tmp_path: Path) -> None:
    file = tmp_path / "squad.json"
    file.write_text(json.dumps(squad("answers", is_impossible=True)))
    assert prepare(file)
    file.write_text(json.dumps(squad("answers", answer=[{"text": "anna", "answer_start": 0}])))
    answers = {row.answers for part in prepare(file).parts.values() for row in part}
    assert answers == {(("anna", 0),)}
