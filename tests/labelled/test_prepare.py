"""The whole way in one call: columns that make one text, missing fields, and the survey."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import (
    finding_names,
    loaded,
    refusal,
    sentence,
    sizes,
    table_of,
    understood,
    write,
    write_rows,
)
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.reading_options import how_read
from maskwright.text.tables.splits import SplitOptions
from maskwright.text.tables.survey import Survey, survey

LINES = [
    f'"{"good" if n % 3 else "bad"}, {sentence(n)}",{1 if n % 3 else 5},author {n % 40}'
    for n in range(200)
]


def reviews(folder: Path, *more: str) -> Path:
    return write(folder / "reviews.csv", "\n".join(["review,stars,author", *LINES, *more]) + "\n")


def test_a_csv_becomes_a_task_with_parts(tmp_path: Path) -> None:
    made = prepare(reviews(tmp_path), division=SplitOptions(validation=0.2, test=0.2))
    assert made.task.lines() == [
        "task: classification, because 'stars' holds only 2 different whole numbers",
        "using column 'review' as text (by its name)",
        "using column 'stars' as label (by its name)",
        "not used: 'author'",
    ]
    assert made.labels.names == ("1", "5")
    assert sizes(made) == {"train": 122, "validation": 39, "test": 39}
    assert made.parts["train"][0].where.startswith(f"{tmp_path}/reviews.csv, line ")
    assert survey(made).leaks == []


def test_what_is_said_overrules_what_is_found(tmp_path: Path) -> None:
    path = reviews(tmp_path)
    made = prepare(path, task="regression", columns={"group": "author"})
    assert made.task.name == "regression" and {e.label for e in made.parts["train"]} == {1.0, 5.0}
    assert not set(made.groups["train"]) & set(made.groups["validation"])
    refusal(UsageError, lambda: prepare(path, columns={"label": "star"}))


def test_what_was_dropped_is_said(tmp_path: Path) -> None:
    path = reviews(tmp_path, "short", '"good, but",,author 3')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    rejects = tmp_path / "rejects.jsonl"
    made = prepare(path, read=how_read("on_bad=skip"), rejects=rejects)
    names = {"rejected-rows", "byte-order-marks", "possible-groups", "bad-rows"}
    assert finding_names(made) >= {*names, "list-of-bad-rows"}
    assert len(rejects.read_text().splitlines()) == 2


def test_several_columns_make_one_text() -> None:
    bodies = ["" if n % 3 else sentence(n + 99) for n in range(20)]
    rows = [{"title": f"on {n}", "body": b, "label": "ab"[n % 2]} for n, b in enumerate(bodies)]
    table, joined = table_of(*rows), {"text": ["title", "body"]}
    task = infer(table, joined)
    assert task.name == "classification" and not task.columns.left_out
    assert any("columns 'title', 'body' as text" in line for line in task.lines())
    first, second = build(table, task).parts["all"][:2]
    assert first.text == f"on 0 {bodies[0]}" and second.text == "on 1"  # nothing stands below it
    rows[4] |= {"title": " ", "body": ""}
    bad = table_of(*rows)
    assert "line 5" in str(refusal(DataError, lambda: build(bad, infer(bad, joined))).where)


def test_what_is_asked_with_what_it_is_about() -> None:
    rows = [{"instruction": f"say {n}", "input": "it" * (n % 2), "output": "x"} for n in range(20)]
    table = table_of(*({**row, "output": sentence(n)} for n, row in enumerate(rows)))
    error = refusal(DataError, lambda: infer(table))
    advice = str(error.do).split("; ")[1].split(": ", 1)[1].replace("--column ", "").split()
    roles: dict[str, list[str]] = {}
    for role, name in (option.split("=") for option in advice):
        roles.setdefault(role, []).append(name)
    assert roles == {"source": ["instruction", "input"], "target": ["output"]}
    first, second = build(table, infer(table, roles)).parts["all"][:2]
    assert (first.source, second.source) == ("say 0", "say 1 it")


def test_places_are_counted_in_one_column_only() -> None:
    row = {"q": "what", "a": "river", "b": "a river", "answers": ["river"]}
    roles = {"question": "q", "context": ["a", "b"]}
    refusal(UsageError, lambda: infer(table_of(*[row] * 20), roles))


Rows = list[dict[str, Any]]
NONE: dict[str, Any] = {"text": [], "answer_start": []}
AT = 5  # the row that is changed


MAKERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "answers": lambda n: {
        "question": f"who is it {n}",
        "context": f"anna {n} sleeps",
        "answers": {"text": [f"anna {n}"], "answer_start": [0]},
    },
    "labels": lambda n: {"text": f"a text {n}", "labels": ["a", "b"][: 1 + n % 2]},
    "label": lambda n: {"text": f"a text {n}", "label": "ab"[n % 2]},
    "entities": lambda n: {"text": f"anna {n} sleeps", "entities": [[0, 4, "PER"]]},
    "tags": lambda n: {"tokens": ["anna", str(n)], "tags": ["B-PER", "O"]},
    "hypothesis": lambda n: {"label": "ab"[n % 2], "premise": f"a {n}", "hypothesis": f"b {n}"},
    "body": lambda n: {"title": f"a title {n}", "body": f"a text {n}", "label": "ab"[n % 2]},
}


def rows_with(name: str) -> Rows:
    """Rows of a task, of which that column is misspelt or missing in one."""
    return [MAKERS[name](n) for n in range(40)]


def prepared(folder: Path, rows: Rows, **options: Any) -> Dataset:
    return prepare(write_rows(folder / "data.jsonl", rows), **options)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("answers", "answer"),
        ("labels", "label"),
        ("labels", "lables"),
        ("label", "lable"),
        ("entities", "entites"),
        ("tags", "tag"),
        ("hypothesis", "hypothesys"),
    ],
)
def test_a_misspelt_field_is_named_with_what_may_be_it(
    name: str, wrong: str, tmp_path: Path
) -> None:
    rows = rows_with(name)
    assert prepared(tmp_path, rows)
    rows[AT][wrong] = rows[AT].pop(name)
    error = refusal(DataError, lambda: prepared(tmp_path, rows))
    assert f"line {AT + 1}" in str(error.where)
    assert repr(name) in str(error.wanted) and repr(wrong) in str(error.do)
    read = how_read(["on_bad=skip", "max_bad_fraction=0.1"])
    assert sum(sizes(prepared(tmp_path, rows, read=read)).values()) == len(rows) - 1


@pytest.mark.parametrize(("name", "empty"), [("answers", NONE), ("labels", [])])
def test_a_missing_field_is_no_empty_one(name: str, empty: Any, tmp_path: Path) -> None:
    rows = rows_with(name)
    rows[AT][name] = empty
    assert prepared(tmp_path, rows)  # as it is written where there is none
    del rows[AT][name]
    error = refusal(DataError, lambda: prepared(tmp_path, rows))
    assert json.dumps(empty) in str(error.do)


def test_of_a_text_of_several_columns_one_may_be_left_out_and_none_misspelt(tmp_path: Path) -> None:
    rows, columns = rows_with("body"), {"text": ["title", "body"]}
    del rows[AT]["body"]
    assert prepared(tmp_path, rows, columns=columns)
    rows[AT]["bodi"] = "a text"
    error = refusal(DataError, lambda: prepared(tmp_path, rows, columns=columns))
    assert "'bodi'" in str(error)


def test_a_question_marked_as_unanswerable_needs_no_answers_and_has_none(tmp_path: Path) -> None:
    rows = [{**row, "is_impossible": n == AT} for n, row in enumerate(rows_with("answers"))]
    contradicting = [dict(rows[AT]), {**rows[AT], "answers": NONE, "is_impossible": False}]
    del rows[AT]["answers"]
    assert prepared(tmp_path, rows)
    for row in contradicting:
        rows[AT] = row
        with pytest.raises(DataError, match="contradict"):
            prepared(tmp_path, rows)


def rows(count: int, start: int = 0, classes: int = 2) -> list[dict[str, Any]]:
    return [
        {"text": sentence(n), "label": "abcdef"[n % classes]} for n in range(start, start + count)
    ]


def of(*some: dict[str, Any], **parts: Any) -> Survey:
    return survey(understood(table_of(*some, **parts))[1])


def test_pairs_that_are_nearly_the_same_are_leaks_too() -> None:
    """A pair the other way round, but not a text that also stands beside another."""
    pairs = [(sentence(n), sentence(500 + n)) for n in range(40)]
    turned = [(second, first) for first, second in pairs[:7]]
    other = [(sentence(900 + n), second) for n, (_, second) in enumerate(pairs[:3])]
    train, test = (
        [{"sentence1": a, "sentence2": b, "score": n / 40} for n, (a, b) in enumerate(some)]
        for some in (pairs, turned + other)
    )
    assert [leak.rows for leak in of(train=train, test=test).leaks] == [7]


def test_triples_of_one_anchor_are_leaks_and_stay_together(tmp_path: Path) -> None:
    triples = [
        {"anchor": sentence(n), "positive": f"answer {n}", "negative": f"wrong {n} {k}"}
        for n in range(30)
        for k in range(3)
    ]
    test = [triples[1], triples[89]]
    assert [leak.rows for leak in of(train=triples[:84:2], test=test).leaks] == [1]
    parts = prepare(write_rows(tmp_path / "triples.jsonl", triples)).parts
    anchors = [{row.anchor for row in part} for part in parts.values()]
    assert len(anchors) > 1 and sum(map(len, anchors)) == 30


def test_labels_that_nobody_may_have_given(tmp_path: Path) -> None:
    def survey_of(header: str, *labels: str) -> tuple[Path, Survey]:
        lines = "".join(f"{sentence(n)},{labels[n % 5]}\n" for n in range(50))
        path = write(tmp_path / "a.csv", f"text,{header}\n{lines}")
        return path, survey(loaded(path))

    _, found = survey_of("labels", "a|b", "", "b", "a", " ")
    assert "empty-labels" in {finding.name for finding in found.findings}
    path, found = survey_of("label", "yes", "no", "NA", "None", "no")
    told = [w for w in map(str, found.findings) if "the name of a class" in w]
    assert len(told) == 2 and told[0].startswith("'NA' (10 rows)"), told
    write(path, path.read_text().replace("NA", ""))
    left = loaded(path, reading=ReadingOptions(on_bad="skip", max_bad_fraction=0.3))
    assert left.labels.names == ("no", "None", "yes")
